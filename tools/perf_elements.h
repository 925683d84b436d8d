// Contents of objects that are reduced: elements whose combination is exact in every type, so that
// one wrong, missing or doubled contribution is found. Pure functions; use anywhere.
//
// Floats are -2, -1, 1 and 2, integers any bits (they wrap). Sums in bf16 are exact for up to 128
// contributions, in f16 for up to 1024.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "compute/element.h"

namespace lochos {

// Fills `memory` with what contribution `seed` has from element number `first` on.
// REQUIRES: whole elements.
void fill_elements(std::span<std::byte> memory, DataType type, std::uint64_t seed,
                   std::uint64_t first = 0);

// The first byte of `memory` that is not what combining the contributions `seeds` in this order
// gives, or nothing. `first` is the number of memory's first element. Unless `all`, only some of
// the bytes are compared, first and last ones among them.
// REQUIRES: supported(op, type); at least one seed; whole elements.
std::optional<std::size_t> find_wrong_element(std::span<const std::byte> memory, ReduceOp op,
                                              DataType type, std::span<const std::uint64_t> seeds,
                                              bool all, std::uint64_t first = 0);

}  // namespace lochos
