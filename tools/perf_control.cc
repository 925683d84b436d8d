#include "tools/perf_control.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "transport/hello.h"

namespace lochos {
namespace {

constexpr Duration kGreetingTimeout = std::chrono::seconds(1);
constexpr Duration kRetryEvery = std::chrono::milliseconds(50);
// Unacknowledged bytes for this long mean that the other host is gone.
constexpr unsigned kUserTimeoutMs = 5000;

Hello perf_hello() {
  Hello hello;
  hello.purpose = HelloPurpose::kPerf;
  hello.max_message_bytes = kMaxPerfFrameBytes;
  return hello;
}

Instant now() {
  return SteadyClock().now();
}

int remaining_ms(Instant deadline) {
  if (deadline == kNever) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 3'600'000));
}

// What getsockname and getpeername say, with IPv4 in its own form: a rail is an IPv4 address or an
// IPv6 address, never one dressed as the other.
SocketAddress plain_address(int fd, int (*ask)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  if (ask(fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0) return {};
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&storage);
  if (storage.ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr))
    return SocketAddress(reinterpret_cast<const sockaddr*>(&storage), length);
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = v6->sin6_port;
  std::memcpy(&v4.sin_addr, v6->sin6_addr.s6_addr + 12, sizeof v4.sin_addr);
  return SocketAddress(reinterpret_cast<const sockaddr*>(&v4), sizeof v4);
}

void set_option(int fd, int level, int name, unsigned value) {
  ::setsockopt(fd, level, name, &value, sizeof value);
}

// A connected socket, or why not.
Result<UniqueFd> connect_once(const SocketAddress& address, Instant deadline, int stop_fd) {
  UniqueFd fd(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return fail(system_error(errno, "cannot open a socket"));
  if (::connect(fd.get(), address.get(), address.length()) != 0) {
    if (errno != EINPROGRESS) return fail(system_error(errno, "cannot connect"));
    std::array<pollfd, 2> fds{pollfd{fd.get(), POLLOUT, 0}, pollfd{stop_fd, POLLIN, 0}};
    ::poll(fds.data(), fds.size(), remaining_ms(deadline));
    if (fds[1].revents != 0) return fail(Errc::kCancelled, "interrupted");
    if (fds[0].revents == 0) return fail(Errc::kTimedOut, "no answer");
    int error = 0;
    socklen_t length = sizeof error;
    ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return fail(system_error(error, "cannot connect"));
  }
  return fd;
}

}  // namespace

PerfControl::PerfControl(UniqueFd fd, int stop_fd) : fd_(std::move(fd)), stop_fd_(stop_fd) {
  set_option(fd_.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd_.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMs);
  set_option(fd_.get(), SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd_.get(), IPPROTO_TCP, TCP_KEEPIDLE, 2);
  set_option(fd_.get(), IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set_option(fd_.get(), IPPROTO_TCP, TCP_KEEPCNT, 3);
  local_ = plain_address(fd_.get(), ::getsockname).with_port(0);
  peer_ = plain_address(fd_.get(), ::getpeername);
}

Result<std::unique_ptr<PerfControl>> PerfControl::connect(
    const std::vector<SocketAddress>& addresses, Instant deadline, int stop_fd) {
  Error last(Errc::kUnreachable, "no address");
  for (;;) {
    for (const SocketAddress& address : addresses) {
      auto fd = connect_once(address, deadline, stop_fd);
      if (fd) {
        std::unique_ptr<PerfControl> control(new PerfControl(std::move(*fd), stop_fd));
        if (auto greeted = control->greet(deadline); !greeted) return fail(greeted.error());
        return control;
      }
      last = Error(fd.error()).with_peer(address.to_string());
      if (last.code() == Errc::kCancelled) return fail(last);
    }
    if (now() + kRetryEvery >= deadline) break;
    pollfd stopped{stop_fd, POLLIN, 0};
    if (::poll(&stopped, 1, remaining_ms(now() + kRetryEvery)) > 0)
      return fail(Errc::kCancelled, "interrupted");
  }
  return fail(std::move(last)
                  .with_operation("connecting to the perf server")
                  .with_fix("start 'lochos perf bw' or 'lochos perf lat' without a host there"));
}

Status PerfControl::greet(Instant deadline) {
  const Hello ours = perf_hello();
  if (auto sent = write_all(encode(ours)); !sent) return sent;
  std::array<std::byte, kHelloBytes> theirs{};
  const Instant until = std::min(deadline, now() + kGreetingTimeout + kGreetingTimeout);
  // A refusal is shorter than a greeting and ends the connection.
  const std::span<std::byte> all(theirs);
  if (auto got = read_exactly(all.first(kRefusalBytes), until); !got) return got;
  if (auto got = read_exactly(all.subspan(kRefusalBytes), until); !got)
    return fail(decode_refusal(all.first(kRefusalBytes), ours).with_peer(peer_.to_string()));
  if (auto hello = decode_hello(theirs, ours); !hello) return fail(hello.error());
  return {};
}

Error PerfControl::lost(const std::string& why) const {
  return Error(Errc::kConnectionLost, why).with_peer(peer_.to_string());
}

Status PerfControl::wait(short events, Instant deadline) {
  std::array<pollfd, 2> fds{pollfd{fd_.get(), events, 0}, pollfd{stop_fd_, POLLIN, 0}};
  const int ready = ::poll(fds.data(), fds.size(), remaining_ms(deadline));
  if (ready < 0 && errno != EINTR) return fail(system_error(errno, "poll"));
  if (fds[1].revents != 0) return fail(Errc::kCancelled, "interrupted");
  if (ready == 0)
    return fail(Error(Errc::kTimedOut, "the other side says nothing").with_peer(peer_.to_string()));
  return {};
}

Status PerfControl::write_all(std::span<const std::byte> bytes) {
  const Instant deadline = now() + std::chrono::milliseconds(kUserTimeoutMs);
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN) {
      if (auto ready = wait(POLLOUT, deadline); !ready) return ready;
    } else if (errno != EINTR) {
      return fail(lost("the other side has ended"));
    }
  }
  return {};
}

Status PerfControl::read_exactly(std::span<std::byte> bytes, Instant deadline) {
  while (!bytes.empty()) {
    const ssize_t got = ::recv(fd_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(got));
    } else if (got == 0) {
      return fail(lost("the other side has ended"));
    } else if (errno == EAGAIN) {
      if (auto ready = wait(POLLIN, deadline); !ready) return ready;
    } else if (errno != EINTR) {
      return fail(lost("the other side has ended"));
    }
  }
  return {};
}

Status PerfControl::send(const PerfMessage& message) {
  const std::vector<std::byte> payload = encode(message);
  const auto length = static_cast<std::uint32_t>(payload.size());
  std::vector<std::byte> frame(sizeof length + payload.size());
  std::memcpy(frame.data(), &length, sizeof length);
  std::memcpy(frame.data() + sizeof length, payload.data(), payload.size());
  return write_all(frame);
}

Status PerfControl::pump() {
  std::array<std::byte, 4096> chunk;
  for (;;) {
    const ssize_t got = ::recv(fd_.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (got > 0) {
      buffer_.insert(buffer_.end(), chunk.begin(), chunk.begin() + got);
      if (auto taken = take_frames(); !taken) return taken;
    } else if (got < 0 && errno == EINTR) {
      continue;
    } else if (got < 0 && errno == EAGAIN) {
      return {};
    } else {
      // What it said before it ended still counts; then nothing more will come.
      if (has_message()) return {};
      return fail(lost("the other side has ended"));
    }
  }
}

Status PerfControl::take_frames() {
  std::uint32_t length = 0;
  while (buffer_.size() >= sizeof length) {
    std::memcpy(&length, buffer_.data(), sizeof length);
    if (length > kMaxPerfFrameBytes)
      return fail(Errc::kProtocol,
                  fmt::format("a frame of {} bytes; {} is the limit", length, kMaxPerfFrameBytes));
    if (buffer_.size() < sizeof length + length) return {};
    auto message =
        decode_perf_message(std::span<const std::byte>(buffer_).subspan(sizeof length, length));
    if (!message) return fail(message.error());
    buffer_.erase(buffer_.begin(),
                  buffer_.begin() + static_cast<std::ptrdiff_t>(sizeof length + length));
    if (const auto* abort = std::get_if<PerfAbort>(&*message))
      return fail(lost("the other side gave up: " + abort->reason));
    arrived_.push_back(std::move(*message));
  }
  return {};
}

Result<PerfMessage> PerfControl::receive(Instant deadline) {
  for (;;) {
    if (has_message()) {
      PerfMessage message = std::move(arrived_.front());
      arrived_.pop_front();
      return message;
    }
    if (auto pumped = pump(); !pumped) return fail(pumped.error());
    if (has_message()) continue;
    if (auto ready = wait(POLLIN, deadline); !ready) return fail(ready.error());
  }
}

Result<std::unique_ptr<PerfListener>> PerfListener::open(const SocketAddress& address) {
  UniqueFd fd(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return fail(system_error(errno, "cannot open a socket"));
  set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (address.family() == AF_INET6 && address.is_unspecified())
    set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (::bind(fd.get(), address.get(), address.length()) != 0 || ::listen(fd.get(), 16) != 0) {
    return fail(system_error(errno, "cannot listen on " + address.to_string())
                    .with_fix("choose another port with --port, or --port 0 for any"));
  }
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&storage), &length) != 0)
    return fail(system_error(errno, "getsockname"));
  const SocketAddress bound(reinterpret_cast<const sockaddr*>(&storage), length);
  return std::unique_ptr<PerfListener>(new PerfListener(std::move(fd), bound));
}

Result<std::unique_ptr<PerfControl>> PerfListener::accept(int stop_fd) {
  for (;;) {
    std::array<pollfd, 2> fds{pollfd{fd_.get(), POLLIN, 0}, pollfd{stop_fd, POLLIN, 0}};
    if (::poll(fds.data(), fds.size(), -1) < 0 && errno != EINTR)
      return fail(system_error(errno, "poll"));
    if (fds[1].revents != 0) return fail(Errc::kCancelled, "interrupted");
    UniqueFd fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) continue;
    std::unique_ptr<PerfControl> control(new PerfControl(std::move(fd), stop_fd));
    std::array<std::byte, kHelloBytes> bytes{};
    const Hello ours = perf_hello();
    Status greeted = control->read_exactly(bytes, now() + kGreetingTimeout);
    if (greeted) {
      if (auto hello = decode_hello(bytes, ours); !hello) {
        (void)control->write_all(encode_refusal(hello.error(), ours));
        greeted = fail(hello.error());
      } else {
        greeted = control->write_all(encode(ours));
      }
    }
    if (greeted) return control;
    if (greeted.error().code() == Errc::kCancelled) return fail(greeted.error());
    log_warning("refused a connection from {}: {}", control->peer().to_string(),
                greeted.error().message());
  }
}

}  // namespace lochos
