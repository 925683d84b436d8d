// How large the unit of pipelining should be. Pure.
#pragma once

#include <cstdint>

#include "scheduler/link_model.h"

namespace lochos {

inline constexpr std::uint64_t kMinChunkBytes = 16 * 1024;
inline constexpr std::uint64_t kMaxChunkBytes = 1024 * 1024;

// A power of two between kMinChunkBytes and kMaxChunkBytes for an object of `size` bytes that will
// pass over `hops` links one after the other (0 counts as 1).
//
// A chain of n hops ends (n-1)·(c/B + L) after its first link would have: every node waits for one
// whole chunk before it can forward it. Against that stand the S/c chunks, each of which costs both
// ends a fixed time o for posting, completion and book-keeping. The sum
//     T(c) = (n-1)·(c/B + L) + (S/c)·o
// is smallest at c = sqrt(S·o·B / (n-1)); L drops out, except that a chunk much shorter than the
// latency (c/B < L/4) makes the pipeline no shorter and is not worth its overhead. With S = 64 MiB
// and 8 nodes that is about 100 KiB at 60 MB/s, and a megabyte at 5 GB/s.
std::uint64_t chunk_size(std::uint64_t size, const LinkEstimate& link, std::uint64_t hops);

}  // namespace lochos
