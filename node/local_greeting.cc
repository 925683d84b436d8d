#include "node/local_greeting.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <limits>

namespace lochos {
namespace {

Error named(Error error, const std::string& path) {
  return std::move(error).with_operation("connect").with_peer("node at " + path);
}

Error no_answer(const std::string& path) {
  return named(Error(Errc::kTimedOut, "the node has not answered the greeting in time")
                   .with_cause("its process is stopped, or too busy to answer"),
               path);
}

int poll_timeout(Instant deadline) {
  if (deadline == kNever) return -1;
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1'000'000));
}

// Waits until `events` happen. False: the deadline came first.
bool wait_for(int fd, short events, Instant deadline) {
  for (;;) {
    pollfd entry{fd, events, 0};
    const int count = ::poll(&entry, 1, poll_timeout(deadline));
    if (count > 0) return true;
    if (std::chrono::steady_clock::now() >= deadline) return false;
  }
}

Error connect_error(int error, const std::string& path) {
  if (error == ENOENT || error == ECONNREFUSED) {
    return named(Error(Errc::kUnreachable, "no node answers at this socket")
                     .with_cause(error == ENOENT ? "the socket file does not exist"
                                                 : "the node that made the file is gone")
                     .with_fix("start one: lochos node --directory ADDR:PORT --socket PATH"),
                 path);
  }
  Error result = named(system_error(error, "connecting to " + path), path);
  if (result.code() != Errc::kPermission) return result;
  return std::move(result).with_fix("run as the user of the node, who alone may use it");
}

Result<UniqueFd> connect_socket(const std::string& path, Instant deadline) {
  sockaddr_un address{};
  if (auto valid = make_socket_address(path, address); !valid) {
    return fail(named(std::move(valid.error()), path));
  }
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return fail(named(system_error(errno, "socket"), path));
  while (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) !=
         0) {
    // EAGAIN: the queue of the listening socket is full. Nothing tells when it no longer is.
    if (errno != EAGAIN && errno != EINTR) return fail(connect_error(errno, path));
    if (std::chrono::steady_clock::now() >= deadline) return fail(no_answer(path));
    ::poll(nullptr, 0, 1);
  }
  return socket;
}

// Receives more of the answer, and the descriptor that comes with its first byte. Returns the count
// as recvmsg does.
ssize_t receive(int socket, std::span<std::byte> into, UniqueFd& memfd) {
  iovec part{into.data(), into.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t count = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (count <= 0) return count;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(c), sizeof fd);
    memfd.reset(fd);
  }
  return count;
}

// Judges the node's answer.
Result<LocalConnection> accept_answer(std::span<const std::byte> answer, UniqueFd socket,
                                      UniqueFd memfd, const std::string& path) {
  if (answer.size() < kLocalAnswerBytes) {
    return fail(named(decode_refusal(answer, local_hello()), path));
  }
  auto hello = decode_hello(answer.first(kHelloBytes), local_hello());
  if (!hello) return fail(named(std::move(hello.error()), path));
  PoolOffer offer;
  std::memcpy(&offer, answer.data() + kHelloBytes, sizeof offer);
  struct stat file {};
  if (!memfd || ::fstat(memfd.get(), &file) != 0 ||
      static_cast<std::uint64_t>(file.st_size) < offer.bytes || offer.bytes == 0) {
    return fail(named(Error(Errc::kProtocol, "the node did not pass its pool"), path));
  }
  return LocalConnection{std::move(socket), std::move(memfd), offer.bytes};
}

}  // namespace

Status make_socket_address(const std::string& path, sockaddr_un& address) {
  constexpr std::size_t kMost = sizeof(sockaddr_un::sun_path) - 1;
  if (path.empty() || path.size() > kMost || path.find('\0') != std::string::npos) {
    return fail(Error(Errc::kInvalidArgument,
                      fmt::format("the socket path '{}' has {} bytes; the system allows 1 to {}",
                                  path, path.size(), kMost))
                    .with_fix("choose a shorter path, e.g. below /run or /tmp"));
  }
  address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  return {};
}

Result<LocalConnection> connect_to_node(const std::string& path, Instant deadline) {
  auto socket = connect_socket(path, deadline);
  if (!socket) return fail(std::move(socket.error()));
  const auto hello = encode(local_hello());
  if (::send(socket->get(), hello.data(), hello.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(hello.size())) {
    return fail(named(Error(Errc::kUnreachable, "the node closed the connection"), path));
  }
  std::array<std::byte, kLocalAnswerBytes> answer{};
  std::size_t have = 0;
  UniqueFd memfd;
  while (have < answer.size()) {
    if (!wait_for(socket->get(), POLLIN, deadline)) return fail(no_answer(path));
    const ssize_t count = receive(socket->get(), std::span(answer).subspan(have), memfd);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (count <= 0) break;  // the end, after a refusal or without a word
    have += static_cast<std::size_t>(count);
  }
  return accept_answer(std::span(answer).first(have), std::move(*socket), std::move(memfd), path);
}

}  // namespace lochos
