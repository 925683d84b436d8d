#include "scheduler/tree_degree.h"

#include <algorithm>

namespace lochos {
namespace {

// Levels of a complete tree below the root that hold at least `receivers` nodes.
std::uint64_t levels(std::uint64_t receivers, std::uint32_t degree) {
  if (degree <= 1) return receivers;
  std::uint64_t count = 0, width = 1;
  for (std::uint64_t covered = 0; covered < receivers; ++count) {
    width *= degree;
    covered += width;
  }
  return count;
}

}  // namespace

double broadcast_seconds(std::uint64_t size, std::uint64_t chunk, const LinkEstimate& link,
                         std::uint64_t receivers, std::uint32_t degree) {
  const double first = static_cast<double>(std::min(size, chunk));
  const double rest = static_cast<double>(size) - first;
  const double share = link.bytes_per_second / degree;
  return static_cast<double>(levels(receivers, degree)) * (seconds(link.latency) + first / share) +
         rest / share;
}

std::uint32_t tree_degree(std::uint64_t size, std::uint64_t chunk, const LinkEstimate& link,
                          std::uint64_t receivers) {
  const double chain = broadcast_seconds(size, chunk, link, receivers, 1);
  const double rest = static_cast<double>(size - std::min(size, chunk)) / link.bytes_per_second;
  // Two children need at least 2·rest: the usual answer for large objects, without a search.
  if (receivers <= 2 || 2 * rest >= chain) return 1;
  std::uint32_t best = 1;
  double best_seconds = chain;
  const auto limit = static_cast<std::uint32_t>(std::min<std::uint64_t>(receivers, kMaxTreeDegree));
  for (std::uint32_t degree = 2; degree <= limit; ++degree) {
    const double t = broadcast_seconds(size, chunk, link, receivers, degree);
    if (t < best_seconds) {
      best = degree;
      best_seconds = t;
    }
  }
  return best;
}

}  // namespace lochos
