// Which registration covers what, for how long, and what is left of it afterwards.
#include "node/registered_ranges.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <map>

#include "tests/node/sim_cluster.h"

namespace lochos {
namespace {

class RegisteredRangesTest : public testing::Test {
 protected:
  std::span<std::byte> piece(std::size_t first, std::size_t count) {
    return std::span(memory_).subspan(first, count);
  }
  std::size_t live() const { return counts_.live; }

  std::array<std::byte, 1000> memory_{};
  RegistrationCounts counts_;
  SimNetwork network_{1};
  std::unique_ptr<Transport> first_ = open("10.0.0.1:0");
  std::unique_ptr<Transport> second_ = open("10.0.0.2:0");
  RegisteredRanges ranges_{{first_.get(), second_.get()}};

 private:
  std::unique_ptr<Transport> open(const char* address) {
    return std::make_unique<CountingTransport>(
        network_.open_transport(*SocketAddress::parse(address), {}), counts_, TransportKind::kTcp);
  }
};

TEST_F(RegisteredRangesTest, UsesOfARangeShareItsRegistrations) {
  ASSERT_TRUE(ranges_.add(piece(100, 500)));
  EXPECT_EQ(live(), 2U) << "one a rail";
  const auto inside = ranges_.use(piece(200, 100)).value();
  const auto whole = ranges_.use(piece(100, 500)).value();
  EXPECT_EQ(inside, whole);
  EXPECT_EQ(counts_.made, 2U);
  EXPECT_NE(&inside->region(0), &inside->region(1));
}

TEST_F(RegisteredRangesTest, WhatNoRangeCoversIsRegisteredForOneUse) {
  ASSERT_TRUE(ranges_.add(piece(100, 500)));
  for (const auto& [first, count] : {std::pair{99, 10}, {599, 2}, {700, 10}, {0, 1000}}) {
    auto use = ranges_.use(piece(static_cast<std::size_t>(first), static_cast<std::size_t>(count)));
    ASSERT_TRUE(use);
    EXPECT_EQ(live(), 4U);
    use->reset();
    EXPECT_EQ(live(), 2U);
  }
}

TEST_F(RegisteredRangesTest, ARemovedRangeLivesUntilItsLastUse) {
  const auto number = ranges_.add(piece(0, 1000)).value();
  auto use = ranges_.use(piece(10, 10)).value();
  ranges_.remove(number);
  EXPECT_EQ(live(), 2U);
  auto later = ranges_.use(piece(10, 10)).value();
  EXPECT_NE(later, use) << "it is not given out any more";
  use.reset();
  EXPECT_EQ(live(), 2U);
  later.reset();
  EXPECT_EQ(live(), 0U);
  ranges_.remove(number);  // unknown by now
  EXPECT_EQ(ranges_.size(), 0U);
}

TEST_F(RegisteredRangesTest, AFailureLeavesNothingRegistered) {
  counts_.fail_after = 1;  // the second rail's
  const auto failed = ranges_.add(piece(0, 10));
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code(), Errc::kPermission);
  EXPECT_FALSE(failed.error().transport().empty());
  EXPECT_EQ(live(), 0U);
  EXPECT_EQ(ranges_.size(), 0U);
  EXPECT_EQ(ranges_.add(piece(0, 0)).error().code(), Errc::kInvalidArgument);
}

// Ranges that come, overlap and go, against a list that is searched from end to end.
RC_GTEST_FIXTURE_PROP(RegisteredRangesTest, ACoveringRangeIsFoundIfThereIsOne, ()) {
  std::map<RegistrationNumber, std::span<std::byte>> model;
  const auto any_piece = [&] {
    const auto first = *rc::gen::inRange<std::size_t>(0, 100);
    return piece(first, *rc::gen::inRange<std::size_t>(1, 101 - first));
  };
  const auto steps = *rc::gen::inRange(1, 60);
  for (int step = 0; step < steps; ++step) {
    if (!model.empty() && *rc::gen::inRange(0, 3) == 0) {
      const auto victim = *rc::gen::inRange<std::size_t>(0, model.size());
      const auto at = std::next(model.begin(), static_cast<std::ptrdiff_t>(victim));
      ranges_.remove(at->first);
      model.erase(at);
    } else {
      const auto range = any_piece();
      model.emplace(ranges_.add(range).value(), range);
    }
    const auto wanted = any_piece();
    const bool covered = std::any_of(model.begin(), model.end(), [&](const auto& entry) {
      const auto& range = entry.second;
      return range.data() <= wanted.data() &&
             wanted.data() + wanted.size() <= range.data() + range.size();
    });
    const auto made = counts_.made;
    const auto use = ranges_.use(wanted).value();
    RC_ASSERT(use->bytes().data() <= wanted.data());
    RC_ASSERT(use->bytes().data() + use->bytes().size() >= wanted.data() + wanted.size());
    RC_ASSERT((counts_.made == made) == covered);
    RC_ASSERT(ranges_.size() == model.size());
  }
}

}  // namespace
}  // namespace lochos
