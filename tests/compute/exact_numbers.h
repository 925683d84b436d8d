// Inputs of reductions whose results are exact, and those results. Use anywhere in tests.
#pragma once

#include <cstring>
#include <random>
#include <vector>

#include "tests/compute/reduce_reference.h"

namespace lochos::test {

// Elements whose sums and products are exact in every type, whatever the order: small integers held
// in floats, any bits for integers (they wrap).
inline Buffer numbers(DataType type, std::uint64_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  Buffer buffer(bytes);
  if (!is_float(type)) {
    for (std::byte& byte : buffer)
      byte = static_cast<std::byte>(random());
    return buffer;
  }
  const std::uint64_t width = element_size(type);
  for (std::uint64_t at = 0; at + width <= bytes; at += width) {
    const int value = static_cast<int>(random() % 4) - 1;  // -1 … 2
    const float single = static_cast<float>(value);
    const double wide = value;
    if (type == DataType::kF64) {
      std::memcpy(&buffer[at], &wide, width);
    } else if (type == DataType::kF32) {
      std::memcpy(&buffer[at], &single, width);
    } else {
      const std::uint16_t half = round_to_half(type, single);
      std::memcpy(&buffer[at], &half, width);
    }
  }
  return buffer;
}

inline Buffer reduced(ReduceOp op, DataType type, const std::vector<Buffer>& inputs) {
  if (op != ReduceOp::kAverage) return reduce_reference(op, type, inputs);
  return scale_reference(type, reduce_reference(ReduceOp::kSum, type, inputs),
                         static_cast<double>(inputs.size()));
}

}  // namespace lochos::test
