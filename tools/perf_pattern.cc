#include "tools/perf_pattern.h"

#include <algorithm>
#include <cstring>

namespace lochos {
namespace {

constexpr std::size_t kWord = sizeof(std::uint64_t);
constexpr std::size_t kSampleEvery = 1024;  // a multiple of kWord

// Multiplying by an odd number and folding the upper half down makes every byte of the result
// depend on all of the input.
std::uint64_t mix(std::uint64_t seed, std::uint64_t position) {
  std::uint64_t x = (seed + 1) * 0xD6E8FEB86659FD93ULL + position;
  x = (x ^ (x >> 32)) * 0xD6E8FEB86659FD93ULL;
  return x ^ (x >> 32);
}

// Whether the word that begins at `at` (the last one may be short) is what it should be.
std::optional<std::size_t> mismatch_in_word(std::span<const std::byte> memory, std::uint64_t seed,
                                            std::size_t at) {
  const std::uint64_t word = mix(seed, at);
  const std::size_t count = std::min(kWord, memory.size() - at);
  if (std::memcmp(memory.data() + at, &word, count) == 0) return std::nullopt;
  std::byte expected[kWord];
  std::memcpy(expected, &word, kWord);
  const std::byte* first = memory.data() + at;
  return at + static_cast<std::size_t>(std::mismatch(first, first + count, expected).first - first);
}

}  // namespace

void fill_pattern(std::span<std::byte> memory, std::uint64_t seed) {
  for (std::size_t at = 0; at < memory.size(); at += kWord) {
    const std::uint64_t word = mix(seed, at);
    std::memcpy(memory.data() + at, &word, std::min(kWord, memory.size() - at));
  }
}

std::optional<std::size_t> find_mismatch(std::span<const std::byte> memory, std::uint64_t seed) {
  for (std::size_t at = 0; at < memory.size(); at += kWord) {
    if (auto mismatch = mismatch_in_word(memory, seed, at)) return mismatch;
  }
  return std::nullopt;
}

std::optional<std::size_t> find_sampled_mismatch(std::span<const std::byte> memory,
                                                 std::uint64_t seed) {
  for (std::size_t at = 0; at < memory.size(); at += kSampleEvery) {
    if (auto mismatch = mismatch_in_word(memory, seed, at)) return mismatch;
  }
  if (memory.empty()) return std::nullopt;
  return mismatch_in_word(memory, seed, (memory.size() - 1) / kWord * kWord);
}

}  // namespace lochos
