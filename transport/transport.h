// How bytes move between two machines: the one interface that verbs/, fabric/ and sim/ implement.
//
// Thread word: a `Transport`, its endpoints and its regions belong to one thread (the engine
// thread). Nothing here blocks: connections are made in the background and reported as events.
//
// Ownership: the transport owns its endpoints. An `Endpoint*` is given out by `connect` or by a
// kEstablished event and stays valid until its kClosed (or kFailed) event has been returned by
// `poll_connections`; the next call on the transport may free it.
//
// The three promises everything above relies on (each is tested over every backend):
//  1. Order: requests posted on one endpoint take effect at the peer in the order of posting, and a
//     kImmediate or kMessage completion at the peer says that all earlier writes have landed.
//  2. Exactly once: every accepted request yields exactly one completion, also when the connection
//     fails or is closed. Until then its memory belongs to the transport; from then on to the
//     caller.
//  3. After kClosed nobody can write into memory through that endpoint any more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/error.h"
#include "transport/address.h"
#include "transport/hello.h"

namespace lochos {

enum class TransportKind : std::uint8_t { kTcp = 1, kVerbs = 2, kSim = 3 };
std::string_view to_string(TransportKind kind);

// What a node is willing to use. kAuto: verbs where both ends can, TCP otherwise; kVerbs refuses
// instead of falling back.
enum class TransportPolicy : std::uint8_t { kAuto = 0, kVerbs = 1, kTcp = 2 };
std::string_view to_string(TransportPolicy policy);

// One way to reach a node.
struct RailAddress {
  TransportKind kind = TransportKind::kTcp;
  std::string address;  // SocketAddress::to_string() of its listener
  bool operator==(const RailAddress&) const = default;
};

// Memory that this transport may read from and write to, and through which peers may write or read
// when they are told `remote_address` and `remote_key`. Destroying it deregisters the memory.
// REQUIRES at destruction: no request that uses it is outstanding, no peer can still write to it.
class Region {
 public:
  virtual ~Region() = default;
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  std::span<std::byte> memory() const { return memory_; }
  // What a peer puts into a WorkRequest to name `local`. REQUIRES: `local` lies in memory().
  std::uint64_t remote_address(const std::byte* local) const {
    return remote_base_ + static_cast<std::uint64_t>(local - memory_.data());
  }
  std::uint64_t remote_key() const { return remote_key_; }

 protected:
  Region(std::span<std::byte> memory, std::uint64_t remote_base, std::uint64_t remote_key)
      : memory_(memory), remote_base_(remote_base), remote_key_(remote_key) {}

 private:
  const std::span<std::byte> memory_;
  const std::uint64_t remote_base_;
  const std::uint64_t remote_key_;
};

enum class Opcode : std::uint8_t {
  kSend,            // a message; arrives as a kMessage completion
  kWrite,           // one-sided write; the peer's CPU hears nothing
  kWriteImmediate,  // one-sided write that also arrives as a kImmediate completion; length 0 is
                    // valid
  kRead,            // one-sided read
};

struct WorkRequest {
  Opcode opcode = Opcode::kSend;
  std::uint32_t immediate = 0;  // kWriteImmediate only
  std::byte* local = nullptr;   // first byte, in `region` (or any memory if region is null)
  std::uint64_t length = 0;     // bytes, at most Limits::max_transfer_bytes
  const Region* region =
      nullptr;  // null only for kSend up to Limits::inline_bytes: copied in post()
  std::uint64_t remote_address = 0;  // write and read only
  std::uint64_t remote_key = 0;
  std::uint64_t context = 0;  // comes back in the completion
};

class Endpoint;

struct Completion {
  enum class Kind : std::uint8_t {
    kRequest,    // one of our requests ended: `context`, `status`
    kMessage,    // a peer's kSend: `message`, valid until the next poll() of this transport
    kImmediate,  // a peer's kWriteImmediate: `immediate`, `bytes`
  };
  // How a request ended. kFlushed: not known to have been done, because the endpoint died or
  // closed; the details are in the endpoint's kClosed event.
  enum class Status : std::uint8_t { kDone, kFlushed };

  Kind kind = Kind::kRequest;
  Status status = Status::kDone;
  std::uint32_t immediate = 0;
  Endpoint* endpoint = nullptr;
  std::uint64_t context = 0;
  std::uint64_t bytes = 0;
  std::span<const std::byte> message;
};

// A reliable, ordered connection to one peer.
class Endpoint {
 public:
  virtual ~Endpoint() = default;

  // Queues requests in order and returns how many were accepted (a prefix; 0 when the queue is full
  // or the endpoint is closing). Fewer than asked is back-pressure: post the rest after a
  // completion.
  virtual std::size_t post(std::span<const WorkRequest> requests) = 0;

  // Ends the connection. Outstanding requests complete (kDone or kFlushed), then kClosed is
  // reported. Idempotent. Never blocks.
  virtual void close() = 0;

  // Requests accepted and not yet returned by poll().
  virtual std::size_t outstanding() const = 0;

  // For people: addresses, device, GID.
  virtual std::string describe() const = 0;

  // The caller's own word; null until set.
  void* user = nullptr;
};

// What an endpoint of this transport can take.
struct Limits {
  std::uint64_t max_transfer_bytes = 0;  // one write or read
  std::uint64_t max_message_bytes = 0;   // one kSend
  // One kSend without a region. At least 1024 on every backend, so that control messages need no
  // registered buffer of the caller's (backends copy into preallocated slots what the device cannot
  // take inline).
  std::uint64_t inline_bytes = 0;
  std::size_t queue_depth = 0;  // outstanding requests an endpoint
};

struct ConnectionEvent {
  enum class Kind : std::uint8_t {
    kEstablished,  // `endpoint` may be used; `peer` is the other side's hello
    kFailed,       // a connect() did not work; `error` says why; no kClosed follows
    kClosed,  // an established endpoint has ended, drained; `error` says why (kClosed if we did it)
  };
  Kind kind;
  Endpoint* endpoint;
  bool incoming = false;  // kEstablished: the peer connected to us
  Hello peer;
  Error error{Errc::kClosed, ""};
};

// One rail: one RDMA device port, or one network interface (or all of them) used by TCP.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual TransportKind kind() const = 0;
  // For people and error text: "tcp 10.0.0.1 (eth0)", "verbs mlx5_0/1 GID 3 10.0.0.1 (eth0)".
  virtual std::string describe() const = 0;
  virtual const Limits& limits() const = 0;

  // Registers memory for all four opcodes, local and remote. The memory must outlive the region.
  // Errors: kPermission with limit, need and fix when the locked-memory limit is too low; kSystem.
  virtual Result<std::unique_ptr<Region>> register_memory(std::span<std::byte> memory) = 0;

  // Accepts connections at `address` (port 0: any) from peers whose hello is compatible; strangers,
  // garbage and other versions are refused within Options::handshake_timeout and leave nothing
  // behind. At most one listener. Returns the real address. Errors: kAddressInUse, kPermission,
  // kUnreachable.
  virtual Result<SocketAddress> listen(const SocketAddress& address) = 0;

  // Starts connecting; ends in a kEstablished or kFailed event by `deadline`. Never blocks; never
  // null.
  virtual Endpoint* connect(const SocketAddress& address, Instant deadline) = 0;

  // Changes the hello sent on connections made or accepted from now on.
  virtual void set_hello(const Hello& hello) = 0;

  // Makes progress and returns how many completions were written to `completions`.
  virtual std::size_t poll(std::span<Completion> completions) = 0;

  // Returns how many events were written to `events`. `now` is this turn's time, for deadlines.
  virtual std::size_t poll_connections(Instant now, std::span<ConnectionEvent> events) = 0;

  // Readable when poll() or poll_connections() has something to do, provided that arm() returned
  // true. -1 for a transport that lives in virtual time.
  virtual int event_fd() const = 0;

  // Call before sleeping on event_fd(). False: something is there already, poll instead of
  // sleeping.
  virtual bool arm() = 0;

  // When poll_connections() must be called at the latest even if event_fd() stays silent.
  virtual Instant next_deadline() const = 0;
};

struct TransportOptions {
  Hello hello;
  std::size_t queue_depth = 128;                   // outstanding requests an endpoint
  std::uint64_t receive_buffer_bytes = 16 * 1024;  // the largest kSend that can be received
  std::size_t receive_buffers = 64;                // posted receives (per endpoint, or shared)
  Duration handshake_timeout = std::chrono::seconds(1);
};

}  // namespace lochos
