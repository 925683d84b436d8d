// Contents that show where they belong, so that a message in the wrong place or with a wrong byte
// is found. Pure functions; use anywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace lochos {

// Fills `memory` with bytes that depend on `seed` and on the position.
void fill_pattern(std::span<std::byte> memory, std::uint64_t seed);

// The first byte of `memory` that fill_pattern() with this seed would not have written, or nothing.
std::optional<std::size_t> find_mismatch(std::span<const std::byte> memory, std::uint64_t seed);

// The same for a sample: the first and last bytes, and a few of every page between.
std::optional<std::size_t> find_sampled_mismatch(std::span<const std::byte> memory,
                                                 std::uint64_t seed);

}  // namespace lochos
