#include "scheduler/rail_choice.h"

#include <fmt/format.h>
#include <netinet/in.h>

#include <algorithm>
#include <bit>

namespace lochos {
namespace {

struct Candidate {
  RailPair pair;
  int preference = 0;
  int common_bits = 0;
};

std::span<const unsigned char> address_bytes(const SocketAddress& address) {
  if (address.family() == AF_INET6) {
    return {reinterpret_cast<const sockaddr_in6*>(address.get())->sin6_addr.s6_addr, 16};
  }
  const auto* v4 = reinterpret_cast<const sockaddr_in*>(address.get());
  return {reinterpret_cast<const unsigned char*>(&v4->sin_addr), 4};
}

int common_prefix_bits(const SocketAddress& a, const SocketAddress& b) {
  const auto left = address_bytes(a);
  const auto right = address_bytes(b);
  int bits = 0;
  for (std::size_t i = 0; i < left.size() && i < right.size(); ++i) {
    const auto difference = static_cast<unsigned char>(left[i] ^ right[i]);
    bits += std::countl_zero(difference);
    if (difference != 0) break;
  }
  return bits;
}

bool allows(TransportPolicy policy, TransportKind kind) {
  if (kind == TransportKind::kVerbs) return policy != TransportPolicy::kTcp;
  if (kind == TransportKind::kTcp) return policy != TransportPolicy::kVerbs;
  return true;
}

std::string list_kinds(std::span<const RailAddress> rails) {
  std::string text;
  for (const RailAddress& rail : rails) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", to_string(rail.kind), rail.address);
  }
  return text.empty() ? "nothing" : text;
}

}  // namespace

Result<std::vector<RailPair>> choose_rail_pairs(std::span<const RailAddress> own,
                                                TransportPolicy own_policy,
                                                std::span<const RailAddress> peer,
                                                TransportPolicy peer_policy) {
  std::vector<Candidate> candidates;
  for (std::size_t i = 0; i < own.size(); ++i) {
    for (std::size_t j = 0; j < peer.size(); ++j) {
      const TransportKind kind = own[i].kind;
      if (kind != peer[j].kind || !allows(own_policy, kind) || !allows(peer_policy, kind)) continue;
      const auto own_address = SocketAddress::parse(own[i].address);
      const auto peer_address = SocketAddress::parse(peer[j].address);
      if (!own_address || !peer_address || own_address->family() != peer_address->family())
        continue;
      // Loopback reaches nobody outside this host.
      if (own_address->is_loopback() != peer_address->is_loopback()) continue;
      candidates.push_back({{i, j, kind},
                            kind == TransportKind::kVerbs ? 0 : 1,
                            common_prefix_bits(*own_address, *peer_address)});
    }
  }
  if (candidates.empty()) {
    return fail(
        Error(Errc::kUnsupported,
              fmt::format(
                  "no common transport: this node has {} (policy {}), the peer has {} (policy {})",
                  list_kinds(own), to_string(own_policy), list_kinds(peer), to_string(peer_policy)))
            .with_fix("give both nodes a rail of the same kind, or set transport=auto"));
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) {
                     if (a.preference != b.preference) return a.preference < b.preference;
                     return a.common_bits > b.common_bits;
                   });
  std::vector<RailPair> pairs;
  pairs.reserve(candidates.size());
  for (const Candidate& candidate : candidates)
    pairs.push_back(candidate.pair);
  return pairs;
}

bool falls_back_to_tcp(std::span<const RailAddress> own, TransportPolicy own_policy,
                       std::span<const RailAddress> peer, TransportPolicy peer_policy) {
  const auto has_verbs = [](const RailAddress& rail) { return rail.kind == TransportKind::kVerbs; };
  return own_policy != TransportPolicy::kTcp && peer_policy != TransportPolicy::kTcp &&
         std::any_of(own.begin(), own.end(), has_verbs) !=
             std::any_of(peer.begin(), peer.end(), has_verbs);
}

}  // namespace lochos
