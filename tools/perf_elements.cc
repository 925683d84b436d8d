#include "tools/perf_elements.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "compute/reduce_kernels.h"

namespace lochos {
namespace {

// Compared in one go; small enough to stay in the cache with all contributions of a usual group.
constexpr std::size_t kBlockBytes = 16 * 1024;
// Of so many blocks one is compared when not all are.
constexpr std::size_t kSampleEvery = 16;

std::uint64_t mix(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t x = (seed + 1) * 0x9E3779B97F4A7C15ULL + index;
  x = (x ^ (x >> 32)) * 0xD6E8FEB86659FD93ULL;
  return x ^ (x >> 32);
}

// The bits of -2, -1, 1 and 2. Powers of two: products are exact, too.
std::array<std::uint64_t, 4> values_of(DataType type) {
  switch (type) {
    case DataType::kF16:
      return {0xC000, 0xBC00, 0x3C00, 0x4000};
    case DataType::kBf16:
      return {0xC000, 0xBF80, 0x3F80, 0x4000};
    case DataType::kF32:
      return {0xC0000000, 0xBF800000, 0x3F800000, 0x40000000};
    default:
      return {0xC000000000000000, 0xBFF0000000000000, 0x3FF0000000000000, 0x4000000000000000};
  }
}

template <class Word>
void fill_words(std::span<std::byte> memory, DataType type, std::uint64_t seed,
                std::uint64_t first) {
  const std::array<std::uint64_t, 4> values = values_of(type);
  const bool any_bits = !is_float(type);
  for (std::size_t at = 0; at + sizeof(Word) <= memory.size(); at += sizeof(Word)) {
    const std::uint64_t bits = mix(seed, first++);
    const auto word = static_cast<Word>(any_bits ? bits : values[bits >> 62]);
    std::memcpy(memory.data() + at, &word, sizeof word);
  }
}

}  // namespace

void fill_elements(std::span<std::byte> memory, DataType type, std::uint64_t seed,
                   std::uint64_t first) {
  switch (element_size(type)) {
    case 1:
      return fill_words<std::uint8_t>(memory, type, seed, first);
    case 2:
      return fill_words<std::uint16_t>(memory, type, seed, first);
    case 4:
      return fill_words<std::uint32_t>(memory, type, seed, first);
    default:
      return fill_words<std::uint64_t>(memory, type, seed, first);
  }
}

std::optional<std::size_t> find_wrong_element(std::span<const std::byte> memory, ReduceOp op,
                                              DataType type, std::span<const std::uint64_t> seeds,
                                              bool all, std::uint64_t first) {
  std::vector<std::vector<std::byte>> inputs(seeds.size(), std::vector<std::byte>(kBlockBytes));
  std::vector<const std::byte*> pointers;
  for (const auto& input : inputs)
    pointers.push_back(input.data());
  std::vector<std::byte> expected(kBlockBytes);
  const std::size_t blocks = (memory.size() + kBlockBytes - 1) / kBlockBytes;
  for (std::size_t block = 0; block < blocks; ++block) {
    if (!all && block % kSampleEvery != 0 && block + 1 != blocks) continue;
    const std::size_t at = block * kBlockBytes;
    const std::size_t bytes = std::min(kBlockBytes, memory.size() - at);
    for (std::size_t i = 0; i < seeds.size(); ++i)
      fill_elements(std::span(inputs[i]).first(bytes), type, seeds[i],
                    first + at / element_size(type));
    reduce_many(op, type, expected.data(), pointers, bytes);
    if (op == ReduceOp::kAverage) scale(type, expected.data(), bytes, seeds.size());
    const std::byte* const begin = memory.data() + at;
    const auto wrong = std::mismatch(begin, begin + bytes, expected.begin()).first;
    if (wrong != begin + bytes) return at + static_cast<std::size_t>(wrong - begin);
  }
  return std::nullopt;
}

}  // namespace lochos
