// Whether this machine has ::1 at all; many containers have not. Asked of the system alone, so that
// a fault of ours with IPv6 cannot pass for a machine without it.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include "base/unique_fd.h"

namespace lochos {

inline bool has_ipv6_loopback() {
  const UniqueFd fd(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 loopback{};
  loopback.sin6_family = AF_INET6;
  loopback.sin6_addr = in6addr_loopback;
  return fd && ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&loopback), sizeof loopback) == 0;
}

}  // namespace lochos
