// Which rails two nodes use to reach each other. Pure.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "transport/transport.h"

namespace lochos {

struct RailPair {
  std::size_t own = 0;   // index into `own`
  std::size_t peer = 0;  // index into `peer`
  TransportKind kind = TransportKind::kTcp;
};

// Every usable pair, best first: verbs before TCP if both policies allow it, then the pair whose
// addresses have the longest common prefix (same subnet), then the order given. Both ends of a pair
// have the same kind and address family. Errors: kUnsupported when policy leaves nothing; the
// message says what each side has and wants.
Result<std::vector<RailPair>> choose_rail_pairs(std::span<const RailAddress> own,
                                                TransportPolicy own_policy,
                                                std::span<const RailAddress> peer,
                                                TransportPolicy peer_policy);

// True if both would use verbs by policy but at least one side has no verbs rail: a fallback worth
// a line in the log.
bool falls_back_to_tcp(std::span<const RailAddress> own, TransportPolicy own_policy,
                       std::span<const RailAddress> peer, TransportPolicy peer_policy);

}  // namespace lochos
