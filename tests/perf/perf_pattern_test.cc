#include "tools/perf_pattern.h"

#include <gtest/gtest.h>

#include <vector>

namespace lochos {
namespace {

class PatternSizes : public testing::TestWithParam<std::size_t> {};

TEST_P(PatternSizes, EveryWrongByteIsFound) {
  std::vector<std::byte> memory(GetParam());
  fill_pattern(memory, 3);
  EXPECT_FALSE(find_mismatch(memory, 3));
  EXPECT_FALSE(find_sampled_mismatch(memory, 3));
  for (std::size_t i = 0; i < memory.size(); ++i) {
    memory[i] ^= std::byte{1};
    EXPECT_EQ(find_mismatch(memory, 3), i);
    memory[i] ^= std::byte{1};
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, PatternSizes, testing::Values(0, 1, 2, 7, 8, 9, 64, 1001));

TEST(Pattern, DependsOnSeedAndPlace) {
  std::vector<std::byte> memory(64);
  fill_pattern(memory, 1);
  EXPECT_TRUE(find_mismatch(memory, 2));
  EXPECT_TRUE(find_mismatch(std::span(memory).subspan(8), 1));
}

TEST(Pattern, TheSampleHoldsTheFirstAndTheLastByte) {
  std::vector<std::byte> memory(5001);
  fill_pattern(memory, 1);
  memory.back() ^= std::byte{1};
  EXPECT_EQ(find_sampled_mismatch(memory, 1), 5000U);
  memory.front() ^= std::byte{1};
  EXPECT_EQ(find_sampled_mismatch(memory, 1), 0U);
}

}  // namespace
}  // namespace lochos
