#include "tools/perf_pattern.h"

#include <algorithm>
#include <cstring>

namespace lochos {
namespace {

// Multiplying by an odd number and folding the upper half down makes every byte of the result
// depend on all of the input.
std::uint64_t mix(std::uint64_t seed, std::uint64_t position) {
  std::uint64_t x = (seed + 1) * 0xD6E8FEB86659FD93ULL + position;
  x = (x ^ (x >> 32)) * 0xD6E8FEB86659FD93ULL;
  return x ^ (x >> 32);
}

}  // namespace

void fill_pattern(std::span<std::byte> memory, std::uint64_t seed) {
  for (std::size_t at = 0; at < memory.size(); at += sizeof(std::uint64_t)) {
    const std::uint64_t word = mix(seed, at);
    std::memcpy(memory.data() + at, &word, std::min(sizeof word, memory.size() - at));
  }
}

std::optional<std::size_t> find_mismatch(std::span<const std::byte> memory, std::uint64_t seed) {
  for (std::size_t at = 0; at < memory.size(); at += sizeof(std::uint64_t)) {
    const std::uint64_t word = mix(seed, at);
    const std::size_t count = std::min(sizeof word, memory.size() - at);
    if (std::memcmp(memory.data() + at, &word, count) == 0) continue;
    std::byte expected[sizeof word];
    std::memcpy(expected, &word, sizeof word);
    const auto* found = std::mismatch(memory.data() + at, memory.data() + at + count, expected).first;
    return static_cast<std::size_t>(found - memory.data());
  }
  return std::nullopt;
}

}  // namespace lochos
