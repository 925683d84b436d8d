#include "compute/reduce_kernels.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>

#include "tests/compute/reduce_reference.h"

namespace lochos {
namespace {

using test::Buffer;

// Around every vector length and its unrolled multiple, and some that are far from both.
constexpr std::size_t kElementCounts[] = {0,   1,   2,   3,   4,   5,   7,   8,   9,  15,
                                          16,  17,  31,  32,  33,  63,  64,  65,  95, 127,
                                          128, 129, 255, 256, 257, 511, 513, 1000};
constexpr std::size_t kOffsets[] = {0, 1, 3, 8, 31};
constexpr std::byte kGuard{0xA5};

// 0: whatever the processor has.
void use_target(std::int64_t target) {
  hwy::SetSupportedTargetsForTest(target);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

// Every instruction set this processor has, one after the other.
class ReduceKernels : public testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override { use_target(GetParam()); }
  void TearDown() override { use_target(0); }

  std::mt19937_64 random_{42};

  // Any bits: NaNs, infinities, subnormals among them.
  Buffer any_bits(std::size_t bytes) {
    Buffer buffer(bytes);
    for (std::byte& byte : buffer)
      byte = static_cast<std::byte>(random_());
    return buffer;
  }

  // Bits of numbers near one, so that sums and products are ordinary.
  Buffer ordinary(DataType type, std::size_t bytes) {
    Buffer buffer = any_bits(bytes);
    const std::size_t size = element_size(type);
    for (std::size_t last = size - 1; is_float(type) && last < bytes; last += size)
      buffer[last] = (buffer[last] & std::byte{0x80}) | std::byte{0x3C};
    return buffer;
  }
};

// A copy of a buffer at an odd address, between guards.
class Misaligned {
 public:
  Misaligned(const Buffer& content, std::size_t offset)
      : offset_(offset), size_(content.size()), bytes_(64 + offset + content.size() + 64, kGuard) {
    if (size_ != 0) std::memcpy(data(), content.data(), size_);
  }
  std::byte* data() { return bytes_.data() + 64 + offset_; }
  Buffer content() { return Buffer(data(), data() + size_); }
  bool guards_hold() {
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
      const bool inside = i >= 64 + offset_ && i < 64 + offset_ + size_;
      if (!inside && bytes_[i] != kGuard) return false;
    }
    return true;
  }

 private:
  std::size_t offset_, size_;
  Buffer bytes_;
};

std::string describe(ReduceOp op, DataType type, std::size_t elements, std::ptrdiff_t at) {
  return std::string(to_string(op)) + " " + std::string(to_string(type)) + ", " +
         std::to_string(elements) + " elements, differs at " + std::to_string(at) + " with " +
         reduce_instructions();
}

template <class F>
void for_each_supported(const F& f) {
  for (const ReduceOp op : kReduceOps) {
    for (const DataType type : kDataTypes) {
      if (supported(op, type)) f(op, type);
    }
  }
}

TEST_P(ReduceKernels, PairsAreBitExactAtEverySizeAndAddress) {
  for_each_supported([&](ReduceOp op, DataType type) {
    for (const std::size_t elements : kElementCounts) {
      for (const std::size_t offset : kOffsets) {
        const std::size_t bytes = elements * element_size(type);
        const Buffer inputs[] = {offset % 2 == 0 ? ordinary(type, bytes) : any_bits(bytes),
                                 any_bits(bytes)};
        const Buffer expected = test::reduce_reference(op, type, inputs);
        Misaligned a(inputs[0], offset), b(inputs[1], (offset + 5) % 32);
        Misaligned out(Buffer(bytes), (offset + 9) % 32);
        reduce_into(op, type, out.data(), a.data(), b.data(), bytes);
        const auto at = test::first_difference(type, expected, out.content());
        ASSERT_EQ(at, -1) << describe(op, type, elements, at);
        ASSERT_TRUE(out.guards_hold()) << describe(op, type, elements, at);
        ASSERT_EQ(a.content(), inputs[0]);
        ASSERT_EQ(b.content(), inputs[1]);
      }
    }
  });
}

TEST_P(ReduceKernels, TheResultMayReplaceEitherInput) {
  for_each_supported([&](ReduceOp op, DataType type) {
    const std::size_t elements = 261, bytes = elements * element_size(type);
    const Buffer inputs[] = {any_bits(bytes), any_bits(bytes)};
    const Buffer expected = test::reduce_reference(op, type, inputs);
    Misaligned a(inputs[0], 1), b(inputs[1], 2);
    reduce_into(op, type, a.data(), a.data(), b.data(), bytes);
    auto at = test::first_difference(type, expected, a.content());
    ASSERT_EQ(at, -1) << describe(op, type, elements, at);
    Misaligned again(inputs[0], 1);
    reduce_into(op, type, b.data(), again.data(), b.data(), bytes);
    at = test::first_difference(type, expected, b.content());
    ASSERT_EQ(at, -1) << describe(op, type, elements, at);
  });
}

TEST_P(ReduceKernels, ManyInputsAreCombinedInOrderAndRoundedOnce) {
  for_each_supported([&](ReduceOp op, DataType type) {
    for (const std::size_t count : {1U, 2U, 3U, 5U, 16U}) {
      for (const std::size_t elements : {0U, 1U, 3U, 31U, 64U, 133U, 512U}) {
        const std::size_t bytes = elements * element_size(type);
        std::vector<Buffer> inputs;
        std::vector<Misaligned> placed;
        std::vector<const std::byte*> pointers;
        for (std::size_t i = 0; i < count; ++i) {
          inputs.push_back(i == 2 ? any_bits(bytes) : ordinary(type, bytes));
          placed.emplace_back(inputs.back(), (i * 7) % 32);
        }
        for (Misaligned& input : placed)
          pointers.push_back(input.data());
        const Buffer expected = count == 1 ? inputs[0] : test::reduce_reference(op, type, inputs);
        Misaligned out(Buffer(bytes), 3);
        reduce_many(op, type, out.data(), pointers, bytes);
        auto at = test::first_difference(type, expected, out.content());
        ASSERT_EQ(at, -1) << describe(op, type, elements, at) << ", inputs " << count;
        ASSERT_TRUE(out.guards_hold());
        // And in place of the last one.
        reduce_many(op, type, placed.back().data(), pointers, bytes);
        at = test::first_difference(type, expected, placed.back().content());
        ASSERT_EQ(at, -1) << describe(op, type, elements, at) << ", inputs " << count;
      }
    }
  });
}

// Each of the 65536 values of a 16-bit float, kept by what changes nothing.
TEST_P(ReduceKernels, EveryHalfSurvivesTheWayThroughF32) {
  for (const DataType type : {DataType::kF16, DataType::kBf16}) {
    Buffer all(65536 * 2);
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
      const auto half = static_cast<std::uint16_t>(bits);
      std::memcpy(all.data() + 2 * std::size_t{bits}, &half, 2);
    }
    Buffer out = all;
    scale(type, out.data(), out.size(), 1);
    EXPECT_EQ(test::first_difference(type, all, out), -1) << to_string(type);
    reduce_into(ReduceOp::kMax, type, out.data(), all.data(), all.data(), all.size());
    EXPECT_EQ(test::first_difference(type, all, out), -1) << to_string(type);
  }
}

// Quotients reach every rounding case: ties, carries into the exponent, subnormals, underflow.
TEST_P(ReduceKernels, EveryHalfIsRoundedToNearestEven) {
  for (const DataType type : {DataType::kF16, DataType::kBf16}) {
    for (const std::uint64_t divisor : {2ULL, 3ULL, 7ULL, 32ULL, 1000ULL}) {
      Buffer all = any_bits(65536 * 2);
      const Buffer expected = test::scale_reference(type, all, static_cast<double>(divisor));
      scale(type, all.data(), all.size(), divisor);
      EXPECT_EQ(test::first_difference(type, expected, all), -1) << to_string(type);
    }
  }
}

TEST_P(ReduceKernels, ScaleDividesAtEverySizeAndAddress) {
  for (const DataType type : kDataTypes) {
    if (!is_float(type)) continue;
    for (const std::size_t elements : kElementCounts) {
      const Buffer values = any_bits(elements * element_size(type));
      const Buffer expected = test::scale_reference(type, values, 6);
      Misaligned placed(values, elements % 32);
      scale(type, placed.data(), values.size(), 6);
      const auto at = test::first_difference(type, expected, placed.content());
      ASSERT_EQ(at, -1) << to_string(type) << ' ' << elements;
      ASSERT_TRUE(placed.guards_hold());
    }
  }
}

TEST_P(ReduceKernels, MinAndMaxPassNansOnAndKnowTheSignOfZero) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float a[] = {nan, 1, nan, 0.0F, -0.0F, -0.0F, 2};
  const float b[] = {1, nan, nan, -0.0F, 0.0F, -0.0F, -2};
  float low[7], high[7];
  const auto bytes = [](auto* p) { return reinterpret_cast<const std::byte*>(p); };
  reduce_into(ReduceOp::kMin, DataType::kF32, reinterpret_cast<std::byte*>(low), bytes(a), bytes(b),
              sizeof a);
  reduce_into(ReduceOp::kMax, DataType::kF32, reinterpret_cast<std::byte*>(high), bytes(a),
              bytes(b), sizeof a);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(std::isnan(low[i])) << i;
    EXPECT_TRUE(std::isnan(high[i])) << i;
  }
  for (int i = 3; i < 6; ++i) {
    EXPECT_TRUE(low[i] == 0 && std::signbit(low[i])) << i;
    EXPECT_TRUE(high[i] == 0 && std::signbit(high[i]) == (i == 5)) << i;
  }
  EXPECT_EQ(low[6], -2);
  EXPECT_EQ(high[6], 2);
}

// 256 + 1 + 1: bf16 cannot hold 257, but the sum of all three is 258.
TEST_P(ReduceKernels, ManyBf16sAreAddedInF32) {
  const std::uint16_t big = test::round_to_half(DataType::kBf16, 256);
  const std::uint16_t one = test::round_to_half(DataType::kBf16, 1);
  const std::byte* inputs[] = {reinterpret_cast<const std::byte*>(&big),
                               reinterpret_cast<const std::byte*>(&one),
                               reinterpret_cast<const std::byte*>(&one)};
  std::uint16_t sum = 0;
  reduce_many(ReduceOp::kSum, DataType::kBf16, reinterpret_cast<std::byte*>(&sum), inputs, 2);
  EXPECT_EQ(test::half_value(DataType::kBf16, sum), 258);
}

TEST_P(ReduceKernels, IntegersWrap) {
  const std::int32_t a[] = {std::numeric_limits<std::int32_t>::max(), 65536};
  const std::int32_t b[] = {1, 65537};
  std::int32_t out[2];
  const auto reduce = [&](ReduceOp op) {
    reduce_into(op, DataType::kI32, reinterpret_cast<std::byte*>(out),
                reinterpret_cast<const std::byte*>(a), reinterpret_cast<const std::byte*>(b),
                sizeof a);
  };
  reduce(ReduceOp::kSum);
  EXPECT_EQ(out[0], std::numeric_limits<std::int32_t>::min());
  reduce(ReduceOp::kProd);
  EXPECT_EQ(out[1], 65536);
}

TEST_P(ReduceKernels, CallersErrorsEndTheProcess) {
  std::byte bytes[8]{};
  EXPECT_DEATH(reduce_into(ReduceOp::kSum, DataType::kF64, bytes, bytes, bytes, 7), "bytes");
  EXPECT_DEATH(reduce_into(ReduceOp::kBitOr, DataType::kF64, bytes, bytes, bytes, 8), "supported");
  EXPECT_DEATH(reduce_many(ReduceOp::kSum, DataType::kF64, bytes, {}, 8), "inputs");
  EXPECT_DEATH(scale(DataType::kI32, bytes, 8, 2), "is_float");
}

// What this processor has and the library was compiled for.
std::vector<std::int64_t> targets() {
  std::vector<std::int64_t> all;
  for (std::int64_t left = hwy::SupportedTargets(); left != 0; left &= left - 1) {
    const std::int64_t target = left & -left;
    use_target(target);
    if (std::string(reduce_instructions()) == hwy::TargetName(target)) all.push_back(target);
  }
  use_target(0);
  return all;
}

TEST(ReduceInstructions, AreTheBestThereAre) {
#if HWY_ARCH_X86
  const std::string chosen = reduce_instructions();
  if (__builtin_cpu_supports("avx2") != 0) {
    EXPECT_EQ(chosen.substr(0, 3), "AVX");
  } else if (__builtin_cpu_supports("sse4.2") != 0) {
    EXPECT_EQ(chosen, "SSE4");
  } else {
    EXPECT_NE(chosen, "");
  }
#else
  EXPECT_STREQ(reduce_instructions(), "NEON");
#endif
  EXPECT_GE(targets().size(), 1U);
}

INSTANTIATE_TEST_SUITE_P(Targets, ReduceKernels, testing::ValuesIn(targets()),
                         [](const testing::TestParamInfo<std::int64_t>& target) {
                           return std::string(hwy::TargetName(target.param));
                         });

}  // namespace
}  // namespace lochos
