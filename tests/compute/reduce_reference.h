// What the kernels must compute, one element after the other, written without regard to speed and
// without anything of theirs.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "compute/element.h"

namespace lochos::test {

using Buffer = std::vector<std::byte>;

// inputs[0] op inputs[1] op …; 16-bit floats are added in f32 and rounded once.
Buffer reduce_reference(ReduceOp op, DataType type, std::span<const Buffer> inputs);
Buffer scale_reference(DataType type, const Buffer& values, double divisor);

// Value of element `index`, for messages and bounds. Exact but for 64-bit integers.
double value_at(DataType type, const Buffer& buffer, std::size_t index);
// Index of the first element that differs, or -1. Any NaN is as good as any other.
std::ptrdiff_t first_difference(DataType type, const Buffer& a, const Buffer& b);

// The nearest 16-bit float, ties to even, as its bits.
std::uint16_t round_to_half(DataType type, float value);
float half_value(DataType type, std::uint16_t bits);

}  // namespace lochos::test
