#include "scheduler/link_model.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

namespace lochos {
namespace {

using namespace std::chrono_literals;

LinkMeasurement transfer(std::uint32_t from, std::uint32_t to, double rate) {
  constexpr std::uint64_t kBytes = 64 << 20;
  return {.from = from,
          .to = to,
          .bytes = kBytes,
          .elapsed = std::chrono::duration_cast<Duration>(
              std::chrono::duration<double>(static_cast<double>(kBytes) / rate)),
          .round_trip = 40us};
}

TEST(LinkModel, SaneBeforeAnyMeasurement) {
  const LinkModel model;
  EXPECT_EQ(model.overall().bytes_per_second, LinkModel::kPrior.bytes_per_second);
  EXPECT_EQ(model.pair(1, 2).latency, LinkModel::kPrior.latency);
}

TEST(LinkModel, FirstMeasurementReplacesTheAssumption) {
  LinkModel model;
  model.add(transfer(1, 2, 5e9));
  EXPECT_NEAR(model.overall().bytes_per_second, 5e9, 1e7);
  EXPECT_EQ(model.overall().latency, 20us);
  EXPECT_NEAR(model.pair(7, 8).bytes_per_second, 5e9, 1e7) << "the best guess for another pair";
}

TEST(LinkModel, FollowsAChangeAndForgivesOneOddTransfer) {
  LinkModel model;
  for (int i = 0; i < 20; ++i)
    model.add(transfer(1, 2, 1e9));
  model.add(transfer(1, 2, 1e7));
  EXPECT_GT(model.pair(1, 2).bytes_per_second, 0.75e9);
  for (int i = 0; i < 20; ++i)
    model.add(transfer(1, 2, 1e8));
  EXPECT_NEAR(model.pair(1, 2).bytes_per_second, 1e8, 2e7);
}

TEST(LinkModel, PairsAreKeptApart) {
  LinkModel model;
  model.add(transfer(1, 2, 1e9));
  model.add(transfer(2, 1, 1e8));
  EXPECT_NEAR(model.pair(1, 2).bytes_per_second, 1e9, 1e7);
  EXPECT_NEAR(model.pair(2, 1).bytes_per_second, 1e8, 1e6);
}

TEST(LinkModel, TimeSpentWaitingForTheSenderDoesNotCount) {
  LinkModel model;
  LinkMeasurement m = transfer(1, 2, 1e9);
  m.stalled = m.elapsed;
  m.elapsed *= 2;
  model.add(m);
  EXPECT_NEAR(model.overall().bytes_per_second, 1e9, 1e7);
}

TEST(LinkModel, SmallTransfersSayNothingAboutBandwidth) {
  LinkModel model;
  model.add({.from = 1, .to = 2, .bytes = 1000, .elapsed = 1s, .round_trip = 1ms});
  EXPECT_EQ(model.overall().bytes_per_second, LinkModel::kPrior.bytes_per_second);
  EXPECT_EQ(model.overall().latency, 500us);
}

TEST(LinkModel, NodesThatAreGoneAreForgotten) {
  LinkModel model;
  model.add(transfer(1, 2, 1e9));
  model.add(transfer(3, 1, 1e9));
  model.add(transfer(2, 3, 1e9));
  model.forget(1);
  EXPECT_EQ(model.pairs(), 1U);
}

TEST(LinkModel, MemoryIsBounded) {
  LinkModel model;
  for (std::uint32_t n = 0; n < LinkModel::kMaxPairs + 1000; ++n)
    model.add(transfer(n, n + 1, 1e9));
  EXPECT_EQ(model.pairs(), LinkModel::kMaxPairs);
}

RC_GTEST_PROP(LinkModel, NoMeasurementMakesItAbsurd, ()) {
  LinkModel model;
  for (int i = 0; i < 20; ++i) {
    model.add({.from = *rc::gen::arbitrary<std::uint32_t>(),
               .to = *rc::gen::arbitrary<std::uint32_t>(),
               .bytes = *rc::gen::arbitrary<std::uint64_t>(),
               .elapsed = Duration(*rc::gen::inRange<std::int64_t>(-1'000'000, 1'000'000'000)),
               .stalled = Duration(*rc::gen::inRange<std::int64_t>(-1'000'000, 1'000'000'000)),
               .round_trip = Duration(*rc::gen::inRange<std::int64_t>(-1'000'000, 1'000'000'000))});
    const LinkEstimate estimate = model.overall();
    RC_ASSERT(std::isfinite(estimate.bytes_per_second));
    RC_ASSERT(estimate.bytes_per_second > 0);
    RC_ASSERT(estimate.latency > Duration(0));
  }
}

}  // namespace
}  // namespace lochos
