// The control connection between the two sides of `lochos perf`: a TCP connection that carries the
// agreement before a measurement and the results after it, and says at once when the other process
// dies. One thread.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/unique_fd.h"
#include "tools/perf_messages.h"
#include "transport/address.h"

namespace lochos {

class PerfControl {
 public:
  // Tries all `addresses` in turn until `deadline`: a server that is just being started is waited
  // for. `stop_fd` ends the waiting when it becomes readable (-1: none), here and in all that
  // follows. Errors: kUnreachable, kTimedOut, kVersionMismatch, kProtocol, kCancelled.
  static Result<std::unique_ptr<PerfControl>> connect(const std::vector<SocketAddress>& addresses,
                                                      Instant deadline, int stop_fd);

  const SocketAddress& local() const { return local_; }  // with port 0
  const SocketAddress& peer() const { return peer_; }

  // Errors: kConnectionLost.
  Status send(const PerfMessage& message);
  // Waits for the next message. Errors: kTimedOut; kCancelled when stopped; kConnectionLost when
  // the other side died, or with its reason when it gave up; kProtocol.
  Result<PerfMessage> receive(Instant deadline);
  // The same, for a message of the type that must come now. Errors: also kProtocol for another.
  template <class T>
  Result<T> receive_a(Instant deadline);

  // Takes in what has arrived, without waiting. Errors: as receive().
  Status pump();
  bool has_message() const { return !arrived_.empty(); }
  int fd() const { return fd_.get(); }
  int stop_fd() const { return stop_fd_; }

 private:
  friend class PerfListener;
  PerfControl(UniqueFd fd, int stop_fd);
  Status greet(Instant deadline);
  Status read_exactly(std::span<std::byte> bytes, Instant deadline);
  Status write_all(std::span<const std::byte> bytes);
  Status wait(short events, Instant deadline);
  Status take_frames();
  Error lost(const std::string& why) const;

  const UniqueFd fd_;
  const int stop_fd_;
  SocketAddress local_;
  SocketAddress peer_;
  std::vector<std::byte> buffer_;  // bytes of frames that are not complete yet
  std::deque<PerfMessage> arrived_;
};

// Waits for the one client of a run.
class PerfListener {
 public:
  // Port 0: any. An unspecified IPv6 address accepts IPv4 as well.
  // Errors: kAddressInUse (names the port), kPermission, kUnreachable.
  static Result<std::unique_ptr<PerfListener>> open(const SocketAddress& address);
  const SocketAddress& address() const { return address_; }

  // Waits for a client with a valid greeting; strangers are refused within a second, one log line
  // each, and the waiting goes on. Errors: kCancelled when stopped, kSystem.
  Result<std::unique_ptr<PerfControl>> accept(int stop_fd);

 private:
  PerfListener(UniqueFd fd, SocketAddress address) : fd_(std::move(fd)), address_(address) {}
  const UniqueFd fd_;
  const SocketAddress address_;
};

template <class T>
Result<T> PerfControl::receive_a(Instant deadline) {
  auto message = receive(deadline);
  if (!message) return fail(message.error());
  if (T* wanted = std::get_if<T>(&*message)) return std::move(*wanted);
  return fail(Errc::kProtocol, "the other side sent a message out of turn");
}

}  // namespace lochos
