// How many children a holder of an object should feed at the same time. Pure.
#pragma once

#include <cstdint>

#include "scheduler/link_model.h"

namespace lochos {

inline constexpr std::uint32_t kMaxTreeDegree = 16;

// Estimated time until the last of `receivers` has an object of `size` bytes, when every holder
// feeds `degree` children and passes on chunks of `chunk` bytes:
//     T(1) = n·(L + c/B) + (S-c)/B
//     T(d) = ceil(log_d n)·(L + d·c/B) + d·(S-c)/B      (d children share one link)
// With chunks that are short against L this is the familiar n·L + S/B against L·log_d n + d·S/B.
double broadcast_seconds(std::uint64_t size, std::uint64_t chunk, const LinkEstimate& link,
                         std::uint64_t receivers, std::uint32_t degree);

// The degree in 1 … kMaxTreeDegree with the smallest broadcast_seconds.
std::uint32_t tree_degree(std::uint64_t size, std::uint64_t chunk, const LinkEstimate& link,
                          std::uint64_t receivers);

}  // namespace lochos
