#include <arpa/inet.h>
#include <fmt/format.h>
#include <net/if.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>

#include "transport/topology.h"

namespace lochos {
namespace {

constexpr std::string_view kGrammar =
    "a comma-separated list of interface names (a trailing * matches any ending), RDMA devices "
    "(mlx5_0 or mlx5_0:1), addresses or networks (10.0.0.0/8); '^' excludes an item, or the whole "
    "list when it comes first";

std::string_view trimmed(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && blank(text.front()))
    text.remove_prefix(1);
  while (!text.empty() && blank(text.back()))
    text.remove_suffix(1);
  return text;
}

// The address as bytes in network order, and how many count.
struct RawAddress {
  std::array<std::uint8_t, 16> bytes{};
  std::size_t length = 0;
};

RawAddress raw(const SocketAddress& address) {
  RawAddress out;
  if (address.family() == AF_INET) {
    out.length = 4;
    std::memcpy(out.bytes.data(), &reinterpret_cast<const sockaddr_in*>(address.get())->sin_addr,
                out.length);
  } else {
    out.length = 16;
    std::memcpy(out.bytes.data(), &reinterpret_cast<const sockaddr_in6*>(address.get())->sin6_addr,
                out.length);
  }
  return out;
}

bool contains(const SocketAddress& network, int prefix_length, const SocketAddress& address) {
  const RawAddress a = raw(network), b = raw(address);
  if (a.length != b.length) return false;
  for (int bit = 0; bit < prefix_length; ++bit) {
    const auto byte = static_cast<std::size_t>(bit / 8);
    const int mask = 0x80 >> (bit % 8);
    if ((a.bytes[byte] & mask) != (b.bytes[byte] & mask)) return false;
  }
  return true;
}

bool is_name(std::string_view text) {
  return !text.empty() && text.size() < 64 && std::all_of(text.begin(), text.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || std::strchr("._-@:", c) != nullptr;
  });
}

Error bad_item(std::string_view item) {
  return Error(Errc::kInvalidArgument,
               fmt::format("'{}' is no interface, device, address or network", item))
      .with_operation("reading the interface filter")
      .with_fix(fmt::format("write {}", kGrammar));
}

std::string list_what_exists(const HostTopology& host) {
  std::string text;
  for (const NetworkInterface& interface : host.interfaces) {
    text += fmt::format("{}{}", text.empty() ? "" : ", ", interface.name);
    for (std::size_t i = 0; i < interface.addresses.size(); ++i) {
      text += fmt::format("{}{}", i == 0 ? " (" : " ", interface.addresses[i].host());
    }
    if (!interface.addresses.empty()) text += ")";
  }
  for (const RdmaPort& rdma : host.rdma_ports) {
    text += fmt::format(", {}:{}", rdma.port.device, rdma.port.port);
  }
  return text;
}

}  // namespace

Result<InterfaceFilter> InterfaceFilter::parse(std::string_view text) {
  InterfaceFilter filter;
  text = trimmed(text);
  const bool exclude_all = text.starts_with('^');
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    std::string_view word = trimmed(text.substr(0, comma));
    text = comma == std::string_view::npos ? std::string_view{} : text.substr(comma + 1);
    const std::string_view whole = word;
    Item item;
    item.exclude = exclude_all;
    if (word.starts_with('^')) {
      item.exclude = true;
      word = trimmed(word.substr(1));
    }
    const std::size_t slash = word.find('/');
    if (auto address = SocketAddress::parse(word.substr(0, slash), 0);
        address && !word.starts_with('[') &&
        (slash != std::string_view::npos || address->host() == word)) {
      const int longest = address->family() == AF_INET ? 32 : 128;
      item.network = *address;
      item.prefix_length = longest;
      if (slash != std::string_view::npos) {
        const std::string_view digits = word.substr(slash + 1);
        const auto [end, error] =
            std::from_chars(digits.data(), digits.data() + digits.size(), item.prefix_length);
        if (error != std::errc{} || end != digits.data() + digits.size() ||
            item.prefix_length < 0 || item.prefix_length > longest) {
          return fail(bad_item(whole));
        }
      }
    } else {
      item.prefix = word.ends_with('*');
      if (item.prefix) word.remove_suffix(1);
      if (!is_name(word) && !(item.prefix && word.empty())) return fail(bad_item(whole));
    }
    item.text = word;
    filter.items_.push_back(std::move(item));
  }
  return filter;
}

bool InterfaceFilter::Item::matches(const Candidate& candidate) const {
  if (prefix_length >= 0) {
    return candidate.address != nullptr && contains(network, prefix_length, *candidate.address);
  }
  const auto fits = [&](std::string_view name) {
    return !name.empty() && (prefix ? name.starts_with(text) : name == text);
  };
  return fits(candidate.interface) || fits(candidate.device) ||
         (!candidate.device.empty() &&
          fits(fmt::format("{}:{}", candidate.device, candidate.port)));
}

bool InterfaceFilter::excludes(const Candidate& candidate) const {
  return std::any_of(items_.begin(), items_.end(),
                     [&](const Item& item) { return item.exclude && item.matches(candidate); });
}

bool InterfaceFilter::names(const Candidate& candidate) const {
  return std::any_of(items_.begin(), items_.end(),
                     [&](const Item& item) { return !item.exclude && item.matches(candidate); });
}

bool InterfaceFilter::has_including_items() const {
  return std::any_of(items_.begin(), items_.end(), [](const Item& item) { return !item.exclude; });
}

Status InterfaceFilter::check(const HostTopology& host) const {
  const auto exists = [&](const Item& item) {
    for (const NetworkInterface& interface : host.interfaces) {
      if (item.matches({.interface = interface.name, .device = ""})) return true;
      for (const SocketAddress& address : interface.addresses) {
        if (item.matches({.interface = "", .device = "", .address = &address})) return true;
      }
    }
    return std::any_of(host.rdma_ports.begin(), host.rdma_ports.end(), [&](const RdmaPort& rdma) {
      return item.matches({.interface = "", .device = rdma.port.device, .port = rdma.port.port});
    });
  };
  for (const Item& item : items_) {
    if (item.exclude || exists(item)) continue;
    return fail(Error(Errc::kInvalidArgument,
                      fmt::format("there is no interface '{}{}' here; there are: {}", item.text,
                                  item.prefix ? "*" : "", list_what_exists(host)))
                    .with_operation("applying the interface filter"));
  }
  return {};
}

}  // namespace lochos
