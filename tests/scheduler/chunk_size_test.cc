#include "scheduler/chunk_size.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <bit>

namespace lochos {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kKiB = 1024;
constexpr std::uint64_t kObject = 64 * 1024 * kKiB;

TEST(ChunkSize, ShapedLab) {
  const std::uint64_t chunk = chunk_size(kObject, {100us, 60e6}, 7);
  EXPECT_GE(chunk, 64 * kKiB);
  EXPECT_LE(chunk, 128 * kKiB);
}

TEST(ChunkSize, Loopback) {
  for (const std::uint64_t hops : {1U, 2U, 7U}) {
    EXPECT_GE(chunk_size(kObject, {20us, 5e9}, hops), 512 * kKiB) << hops;
  }
}

TEST(ChunkSize, UnmeasuredNetworkDoesNotStretchTheFirstChain) {
  const std::uint64_t chunk = chunk_size(kObject, LinkModel::kPrior, 7);
  EXPECT_LE(chunk, 256 * kKiB);
}

TEST(ChunkSize, LongLatencyMakesSmallChunksPointless) {
  // 10 ms at 1 GB/s: 10 MB are on the wire anyway.
  EXPECT_EQ(chunk_size(128 * kKiB, {10ms, 1e9}, 100), kMaxChunkBytes);
}

RC_GTEST_PROP(ChunkSize, PowerOfTwoWithinBounds, ()) {
  const auto size = *rc::gen::arbitrary<std::uint64_t>();
  const auto latency_ns = *rc::gen::inRange<std::int64_t>(0, 10'000'000'000);
  const auto bandwidth = static_cast<double>(*rc::gen::inRange<std::int64_t>(0, 1'000'000'000'000));
  const auto hops = *rc::gen::arbitrary<std::uint64_t>();
  const std::uint64_t chunk = chunk_size(size, {Duration(latency_ns), bandwidth}, hops);
  RC_ASSERT(std::has_single_bit(chunk));
  RC_ASSERT(chunk >= kMinChunkBytes);
  RC_ASSERT(chunk <= kMaxChunkBytes);
}

RC_GTEST_PROP(ChunkSize, MoreHopsNeverMeanLargerChunks, ()) {
  const auto size = *rc::gen::inRange<std::uint64_t>(1, std::uint64_t{1} << 40);
  const auto hops = *rc::gen::inRange<std::uint64_t>(1, 1000);
  const LinkEstimate link{20us, 1e9};
  RC_ASSERT(chunk_size(size, link, hops + 1) <= chunk_size(size, link, hops));
}

}  // namespace
}  // namespace lochos
