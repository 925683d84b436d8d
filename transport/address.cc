#include "transport/address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <net/if.h>
#include <netdb.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>

#include "base/check.h"

namespace lochos {
namespace {

struct HostPort {
  std::string host;
  int port = -1;
  bool bracketed = false;
};

Error bad_address(std::string_view text, std::string_view why) {
  return Error(
      Errc::kInvalidArgument,
      fmt::format("'{}' is no address: {}; write 10.0.0.1:7777, [::1]:7777, [fe80::1%eth0]:7777 "
                  "or host:7777",
                  text.substr(0, 128), why));
}

Result<int> parse_port(std::string_view whole, std::string_view digits) {
  int port = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (error != std::errc() || end != digits.data() + digits.size() || port < 0 || port > 65535) {
    return fail(bad_address(whole, "the port must be 0 to 65535"));
  }
  return port;
}

// Whether "host:last", an IPv6 address as it stands, may be meant as an address and a port.
bool may_be_port(std::string_view host, std::string_view last) {
  in6_addr ignored;
  return !last.empty() && std::ranges::all_of(last, [](char c) { return c >= '0' && c <= '9'; }) &&
         inet_pton(AF_INET6, std::string(host).c_str(), &ignored) == 1;
}

// Takes the text apart; says nothing about whether the host is valid.
Result<HostPort> split(std::string_view text, int default_port) {
  HostPort parts;
  std::string_view rest;
  if (text.starts_with('[')) {
    const std::size_t close = text.find(']');
    if (close == std::string_view::npos) return fail(bad_address(text, "']' is missing"));
    parts.host = text.substr(1, close - 1);
    parts.bracketed = true;
    rest = text.substr(close + 1);
    if (!rest.empty() && rest[0] != ':')
      return fail(bad_address(text, "only ':PORT' may follow ']'"));
  } else if (std::count(text.begin(), text.end(), ':') > 1) {
    const std::size_t colon = text.rfind(':');
    const auto host = text.substr(0, colon);
    const auto last = text.substr(colon + 1);
    if (default_port < 0) {
      return fail(bad_address(
          text, fmt::format("an IPv6 address with a port needs brackets: [{}]:{}", host, last)));
    }
    if (may_be_port(host, last)) {
      return fail(bad_address(
          text, fmt::format("is {} a port? Write [{}]:{} or [{}]", last, host, last, text)));
    }
    parts.host = text;
  } else {
    const std::size_t colon = text.find(':');
    parts.host = text.substr(0, colon);
    if (colon != std::string_view::npos) rest = text.substr(colon);
  }
  if (parts.host.empty()) return fail(bad_address(text, "the host is missing"));
  if (rest.empty()) {
    if (default_port < 0) return fail(bad_address(text, "':PORT' is missing"));
    parts.port = default_port;
    return parts;
  }
  auto port = parse_port(text, rest.substr(1));
  if (!port) return fail(port.error());
  parts.port = *port;
  return parts;
}

// Fills `out` from a numeric host, with an optional %scope. Not found: the host is no number.
Result<bool> parse_numeric(std::string_view whole, const HostPort& parts, sockaddr_storage& out) {
  std::memset(&out, 0, sizeof out);
  const auto port = htons(static_cast<std::uint16_t>(parts.port));
  sockaddr_in v4{};
  if (!parts.bracketed && inet_pton(AF_INET, parts.host.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = port;
    std::memcpy(&out, &v4, sizeof v4);
    return true;
  }
  const std::size_t percent = parts.host.find('%');
  sockaddr_in6 v6{};
  if (inet_pton(AF_INET6, parts.host.substr(0, percent).c_str(), &v6.sin6_addr) != 1) {
    if (parts.bracketed)
      return fail(bad_address(whole, "what is in brackets must be an IPv6 address"));
    return false;
  }
  if (percent != std::string::npos) {
    const std::string scope = parts.host.substr(percent + 1);
    v6.sin6_scope_id = if_nametoindex(scope.c_str());
    if (v6.sin6_scope_id == 0) {
      const auto [end, error] =
          std::from_chars(scope.data(), scope.data() + scope.size(), v6.sin6_scope_id);
      if (error != std::errc() || end != scope.data() + scope.size()) {
        return fail(bad_address(whole, fmt::format("there is no network interface '{}'", scope)));
      }
    }
  }
  v6.sin6_family = AF_INET6;
  v6.sin6_port = port;
  std::memcpy(&out, &v6, sizeof v6);
  return true;
}

}  // namespace

SocketAddress::SocketAddress(const sockaddr* address, socklen_t length) {
  LOCHOS_CHECK(address->sa_family == AF_INET || address->sa_family == AF_INET6);
  std::memcpy(&storage_, address, std::min<std::size_t>(length, sizeof storage_));
}

Result<SocketAddress> SocketAddress::parse(std::string_view text, int default_port) {
  auto parts = split(text, default_port);
  if (!parts) return fail(parts.error());
  SocketAddress address;
  auto numeric = parse_numeric(text, *parts, address.storage_);
  if (!numeric) return fail(numeric.error());
  if (!*numeric) return fail(bad_address(text, "the host is not an IP address"));
  return address;
}

std::uint16_t SocketAddress::port() const {
  if (family() == AF_INET6)
    return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_port);
}

SocketAddress SocketAddress::with_port(std::uint16_t port) const {
  SocketAddress copy = *this;
  if (family() == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(&copy.storage_)->sin6_port = htons(port);
  } else {
    copy.storage_.ss_family = AF_INET;
    reinterpret_cast<sockaddr_in*>(&copy.storage_)->sin_port = htons(port);
  }
  return copy;
}

bool SocketAddress::is_unspecified() const {
  if (family() == AF_INET6) {
    return IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr);
  }
  return reinterpret_cast<const sockaddr_in*>(&storage_)->sin_addr.s_addr == htonl(INADDR_ANY);
}

bool SocketAddress::is_loopback() const {
  if (family() == AF_INET6) {
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr);
  }
  return (ntohl(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_addr.s_addr) >> 24) == 127;
}

socklen_t SocketAddress::length() const {
  return family() == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

std::string SocketAddress::host() const {
  char text[INET6_ADDRSTRLEN] = {};
  if (family() != AF_INET6) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(&storage_)->sin_addr, text,
              sizeof text);
    return text;
  }
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&storage_);
  inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
  if (v6->sin6_scope_id == 0) return text;
  char interface[IF_NAMESIZE] = {};
  if (if_indextoname(v6->sin6_scope_id, interface) != nullptr)
    return fmt::format("{}%{}", text, interface);
  return fmt::format("{}%{}", text, v6->sin6_scope_id);
}

std::string SocketAddress::to_string() const {
  return family() == AF_INET6 ? fmt::format("[{}]:{}", host(), port())
                              : fmt::format("{}:{}", host(), port());
}

Result<std::vector<SocketAddress>> resolve(std::string_view text, int default_port) {
  auto parts = split(text, default_port);
  if (!parts) return fail(parts.error());
  sockaddr_storage numeric_storage;
  auto numeric = parse_numeric(text, *parts, numeric_storage);
  if (!numeric) return fail(numeric.error());
  if (*numeric) {
    return std::vector{
        SocketAddress(reinterpret_cast<sockaddr*>(&numeric_storage), sizeof numeric_storage)};
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(parts->host.c_str(), nullptr, &hints, &found);
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  if (code != 0) {
    return fail(Error(Errc::kUnreachable,
                      fmt::format("host name '{}': {}", parts->host, gai_strerror(code)))
                    .with_fix("check the spelling, /etc/hosts and the name service"));
  }
  std::vector<SocketAddress> addresses;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_family != AF_INET && entry->ai_family != AF_INET6) continue;
    addresses.push_back(SocketAddress(entry->ai_addr, entry->ai_addrlen)
                            .with_port(static_cast<std::uint16_t>(parts->port)));
  }
  if (addresses.empty())
    return fail(Errc::kUnreachable, fmt::format("host name '{}' has no IP address", parts->host));
  return addresses;
}

}  // namespace lochos
