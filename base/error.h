// What can go wrong in operation, as a value. Thread word: values, use anywhere.
//
// One `Errc` stands for each thing a caller can do about it. `Error` carries the context that a
// person needs: operation, object, peer, transport, NIC, bytes done, likely cause, and a fix.
// A layer that knows more than the one below adds it with the `with_…` calls while passing it up.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

namespace lochos {

enum class Errc : std::uint8_t {
  kInvalidArgument,  // the caller's input is wrong; the message says which and the limits
  kAlreadyExists,    // the id is taken; what is stored under it is readable
  kNotFound,         // nothing under that id (only for calls that do not wait)
  kDeleted,          // erased while the call was running
  kAborted,          // the producer gave up before sealing
  kObjectLost,       // no complete copy can be formed any more; put it again
  kNoSpace,          // the pool has no room; retry after a release or with a larger pool
  kTimedOut,         // the call's deadline passed
  kCancelled,        // the caller cancelled it
  kUnreachable,      // the peer cannot be reached (refused, no route, name unknown)
  kConnectionLost,   // an established connection broke
  kVersionMismatch,  // the peer speaks another protocol version; both are named
  kProtocol,         // the peer sent something that is no valid message
  kFenced,           // this incarnation was declared dead; join anew
  kPermission,       // the system refused (locked memory, port, file)
  kAddressInUse,     // a port or socket path is taken
  kUnsupported,      // the device, provider or build cannot do it
  kClosed,           // the object used was closed by this side
  kSystem,           // any other failure of a system call; the message carries its text
};

std::string_view to_string(Errc code);

class [[nodiscard]] Error {
 public:
  Error(Errc code, std::string message) : code_(code), message_(std::move(message)) {}

  Errc code() const { return code_; }
  // What happened, in one clause, without the context fields.
  const std::string& message() const { return message_; }

  // Context. An empty string (or no value) means "does not apply"; the innermost setter wins, so a
  // layer may add what it knows without erasing what a lower one said. The error moves into the one
  // returned, which may be assigned back: `error = std::move(error).with_peer(…)`.
  Error with_operation(std::string_view v) && { return std::move(set(operation_, v)); }
  Error with_object(std::string_view v) && { return std::move(set(object_, v)); }
  Error with_peer(std::string_view v) && { return std::move(set(peer_, v)); }
  Error with_transport(std::string_view v) && { return std::move(set(transport_, v)); }
  Error with_nic(std::string_view v) && { return std::move(set(nic_, v)); }
  Error with_cause(std::string_view v) && { return std::move(set(cause_, v)); }
  Error with_fix(std::string_view v) && { return std::move(set(fix_, v)); }
  Error with_bytes(std::uint64_t done, std::uint64_t total) && {
    bytes_done_ = done;
    bytes_total_ = total;
    return std::move(*this);
  }

  const std::string& operation() const { return operation_; }
  const std::string& object() const { return object_; }
  const std::string& peer() const { return peer_; }
  const std::string& transport() const { return transport_; }
  const std::string& nic() const { return nic_; }
  const std::string& cause() const { return cause_; }
  const std::string& fix() const { return fix_; }
  std::uint64_t bytes_done() const { return bytes_done_; }
  std::uint64_t bytes_total() const { return bytes_total_; }

  // One line: "get of 'model': connection lost (peer n3/1, tcp, eth0, 12 of 64 bytes); likely …;
  // …".
  std::string to_string() const;

 private:
  Error& set(std::string& field, std::string_view value) {
    if (field.empty()) field = value;
    return *this;
  }

  Errc code_;
  std::string message_;
  std::string operation_, object_, peer_, transport_, nic_, cause_, fix_;
  std::uint64_t bytes_done_ = 0, bytes_total_ = 0;
};

// Every fallible call returns one of these; nothing throws across our headers.
template <class T>
using Result = tl::expected<T, Error>;

using Status = Result<void>;

inline tl::unexpected<Error> fail(Error error) {
  return tl::unexpected<Error>(std::move(error));
}
inline tl::unexpected<Error> fail(Errc code, std::string message) {
  return tl::unexpected<Error>(Error(code, std::move(message)));
}

// An `Error` from an errno value: maps the few that callers act on (EADDRINUSE, EACCES, EPERM,
// ECONNREFUSED, ETIMEDOUT, …) and appends the system's text. `what` names the call and its object.
Error system_error(int errno_value, std::string_view what);

}  // namespace lochos
