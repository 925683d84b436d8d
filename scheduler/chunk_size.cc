#include "scheduler/chunk_size.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace lochos {
namespace {

// What one chunk costs a node apart from its bytes: two passes of the event loop, a work request
// and its completion on each side, on a core that also serves others. It is a property of this
// implementation, not of the network. Too small makes chunks that the CPU, not the wire, limits.
constexpr double kChunkOverheadSeconds = 15e-6;

}  // namespace

std::uint64_t chunk_size(std::uint64_t size, const LinkEstimate& link, std::uint64_t hops) {
  const double bandwidth = std::max(link.bytes_per_second, 1.0);
  const double waiting_hops = hops > 2 ? static_cast<double>(hops - 1) : 1.0;
  const double balanced =
      std::sqrt(static_cast<double>(size) * kChunkOverheadSeconds * bandwidth / waiting_hops);
  const double latency_floor = bandwidth * std::max(seconds(link.latency), 0.0) / 4;
  const double wanted =
      std::clamp(std::max(balanced, latency_floor), static_cast<double>(kMinChunkBytes),
                 static_cast<double>(kMaxChunkBytes));
  // The nearest power of two on the logarithmic scale: T(c) is flat around its minimum.
  const auto exponent = static_cast<unsigned>(std::lround(std::log2(wanted)));
  return std::uint64_t{1} << exponent;
}

}  // namespace lochos
