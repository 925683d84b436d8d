// Adds up (multiplies, compares …) whole buffers with the widest vectors that the processor has;
// which those are is found out at the first call. Thread-safe: functions of their arguments alone.
//
// Arithmetic:
//   * f16 and bf16 are computed in f32 and rounded to the nearest, ties to even, when they are
//     stored: reduce_many rounds once, a chain of reduce_into once a step.
//   * f32 and f64: IEEE 754, inputs combined from the first to the last. The same inputs in the
//     same order give the same bits on every processor, for all but the payload of a NaN.
//   * min and max are IEEE 754-2019 minimum and maximum: a NaN in any input gives a NaN, and -0 is
//     below +0.
//   * Integers wrap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "compute/element.h"

namespace lochos {

// destination = a op b, element by element, in `bytes` bytes of each. kAverage adds.
// REQUIRES: supported(op, type); bytes is a multiple of the element's size; destination is exactly
// a or exactly b, or overlaps neither. No pointer needs any alignment.
void reduce_into(ReduceOp op, DataType type, std::byte* destination, const std::byte* a,
                 const std::byte* b, std::size_t bytes);

// destination = inputs[0] op inputs[1] op …, in one pass over memory. One input is a copy.
// REQUIRES: as above, for every input; at least one input.
void reduce_many(ReduceOp op, DataType type, std::byte* destination,
                 std::span<const std::byte* const> inputs, std::size_t bytes);

// Divides each element by `divisor`: the end of an average. The quotient is rounded to nearest. A
// sum that has overflowed stays infinite; for f16 that is beyond 65504.
// REQUIRES: is_float(type); divisor > 0; bytes is a multiple of the element's size.
void scale(DataType type, std::byte* values, std::size_t bytes, std::uint64_t divisor);

// The instruction set in use, for reports: "AVX2".
const char* reduce_instructions();

}  // namespace lochos
