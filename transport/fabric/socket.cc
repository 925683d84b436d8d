#include "transport/fabric/socket.h"

#include <dirent.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>

namespace lochos::fabric {
namespace {

// How far around the hint to look before listing every descriptor of the process.
constexpr int kHintBefore = 8;
constexpr int kHintAfter = 64;

template <class Get>
SocketAddress get_address(int fd, Get get) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  if (get(fd, address, &length) != 0) return {};
  if (address->sa_family != AF_INET && address->sa_family != AF_INET6) return {};
  return SocketAddress(address, length);
}

bool matches(int fd, const SocketAddress& local, const SocketAddress& peer) {
  // Ports first: they nearly always decide, and comparing addresses makes strings.
  const SocketAddress fd_peer = peer_address(fd);
  return fd_peer.port() == peer.port() && peer.port() != 0 && fd_peer == peer &&
         local_address(fd) == local;
}

void set_option(int fd, int level, int name, int value) {
  ::setsockopt(fd, level, name, &value, sizeof value);
}

}  // namespace

void tune_socket(int fd) {
  const auto limit = std::chrono::duration_cast<std::chrono::milliseconds>(kSilenceLimit).count();
  const int limit_ms = static_cast<int>(limit);
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, limit_ms / 4000);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, limit_ms / 1000 - limit_ms / 4000);
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, limit_ms);
}

SocketAddress local_address(int fd) {
  return get_address(fd, ::getsockname);
}

SocketAddress peer_address(int fd) {
  return get_address(fd, ::getpeername);
}

int next_descriptor(int any) {
  const UniqueFd probe(::fcntl(any, F_DUPFD_CLOEXEC, 0));
  return probe.get();
}

int find_socket(const SocketAddress& local, const SocketAddress& peer, int hint) {
  for (int fd = std::max(0, hint - kHintBefore); fd < hint + kHintAfter; ++fd) {
    if (matches(fd, local, peer)) return fd;
  }
  struct Close {
    void operator()(DIR* list) const { closedir(list); }
  };
  const std::unique_ptr<DIR, Close> list(opendir("/proc/self/fd"));
  if (list == nullptr) return -1;
  while (const dirent* entry = readdir(list.get())) {
    int fd = -1;
    const char* name = entry->d_name;
    const auto [end, error] = std::from_chars(name, name + std::strlen(name), fd);
    if (error == std::errc() && *end == '\0' && matches(fd, local, peer)) return fd;
  }
  return -1;
}

}  // namespace lochos::fabric
