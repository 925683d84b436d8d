// An IP address and port, as people write them. Values; use anywhere. Only `resolve` blocks (it
// asks the name service).
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace lochos {

class SocketAddress {
 public:
  SocketAddress() = default;  // 0.0.0.0:0
  // REQUIRES: `address` is AF_INET or AF_INET6 and `length` covers it.
  SocketAddress(const sockaddr* address, socklen_t length);

  // "10.0.0.1:7777", "[::1]:7777", "[fe80::1%eth0]:7777", and with `default_port` also without a
  // port, where a bare "::1" is fine. No host names: see resolve(). Errors: kInvalidArgument;
  // "::1:7777" is refused and the bracket form shown.
  static Result<SocketAddress> parse(std::string_view text, int default_port = -1);

  int family() const { return storage_.ss_family; }
  std::uint16_t port() const;
  SocketAddress with_port(std::uint16_t port) const;
  bool is_unspecified() const;  // 0.0.0.0 or ::
  bool is_loopback() const;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t length() const;

  // "10.0.0.1:7777" or "[fe80::1%eth0]:7777": what parse() reads.
  std::string to_string() const;
  // The same without the port (and without brackets).
  std::string host() const;

  bool operator==(const SocketAddress& other) const { return to_string() == other.to_string(); }

 private:
  sockaddr_storage storage_{};
};

// Everything parse() reads, and host names ("host:7777"), in the order the name service gives.
// Blocks. Errors: kInvalidArgument for the form, kUnreachable for a name that has no address.
Result<std::vector<SocketAddress>> resolve(std::string_view text, int default_port = -1);

}  // namespace lochos
