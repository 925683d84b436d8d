#include "scheduler/tree_degree.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "scheduler/chunk_size.h"

namespace lochos {
namespace {

using namespace std::chrono_literals;

TEST(TreeDegree, LargeObjectsGoThroughAChain) {
  constexpr std::uint64_t kSize = 64 << 20;
  const LinkEstimate link{100us, 60e6};
  EXPECT_EQ(tree_degree(kSize, chunk_size(kSize, link, 7), link, 7), 1U);
}

TEST(TreeDegree, SmallObjectsForManyNodesGoThroughATree) {
  const LinkEstimate link{50us, 1e9};
  EXPECT_GT(tree_degree(100'000, 64 * 1024, link, 100), 1U);
}

TEST(TreeDegree, TwoReceiversAreAlwaysAChain) {
  EXPECT_EQ(tree_degree(100'000, 16 * 1024, {1ms, 1e9}, 2), 1U);
}

TEST(TreeDegree, ChainCostsWhatTheModelSays) {
  // 10 hops of 1 ms and 0.1 s for a chunk, and the other 9 chunks behind the first.
  EXPECT_NEAR(broadcast_seconds(1'000'000, 100'000, {1ms, 1e6}, 10, 1), 10 * 0.101 + 0.9, 1e-9);
  // 3 + 9 places: two levels, each child at a third of the link.
  EXPECT_NEAR(broadcast_seconds(1'000'000, 100'000, {1ms, 1e6}, 10, 3), 2 * 0.301 + 2.7, 1e-9);
}

RC_GTEST_PROP(TreeDegree, NoOtherDegreeIsBetter, ()) {
  const auto size = *rc::gen::inRange<std::uint64_t>(1, 1 << 28);
  const auto receivers = *rc::gen::inRange<std::uint64_t>(1, 5000);
  const LinkEstimate link{
      Duration(*rc::gen::inRange<std::int64_t>(1, 10'000'000)),
      static_cast<double>(*rc::gen::inRange<std::int64_t>(1'000'000, 1LL << 34))};
  const std::uint64_t chunk = chunk_size(size, link, receivers);
  const std::uint32_t chosen = tree_degree(size, chunk, link, receivers);
  RC_ASSERT(chosen >= 1U);
  RC_ASSERT(chosen <= kMaxTreeDegree);
  const double best = broadcast_seconds(size, chunk, link, receivers, chosen);
  for (std::uint32_t degree = 1; degree <= kMaxTreeDegree && degree <= receivers; ++degree) {
    RC_ASSERT(best <= broadcast_seconds(size, chunk, link, receivers, degree) * 1.0001);
  }
}

}  // namespace
}  // namespace lochos
