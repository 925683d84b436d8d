#include "tests/compute/reduce_reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

namespace lochos::test {
namespace {

struct Layout {
  int exponent_bits;
  int mantissa_bits;
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
};

Layout layout_of(DataType type) {
  return type == DataType::kF16 ? Layout{5, 10} : Layout{8, 7};
}

template <class T>
T element(const Buffer& buffer, std::size_t index) {
  T value;
  std::memcpy(&value, buffer.data() + index * sizeof(T), sizeof value);
  return value;
}

template <class T>
void set_element(Buffer& buffer, std::size_t index, T value) {
  std::memcpy(buffer.data() + index * sizeof(T), &value, sizeof value);
}

template <class T>
T combine_floats(ReduceOp op, T a, T b) {
  if (op == ReduceOp::kSum || op == ReduceOp::kAverage) return a + b;
  if (op == ReduceOp::kProd) return a * b;
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
  if (a == b) return std::signbit(a) == (op == ReduceOp::kMin) ? a : b;
  return (a < b) == (op == ReduceOp::kMin) ? a : b;
}

// All integers are computed with 64 bits without sign and cut off; only the order knows the sign.
template <class T>
T combine_integers(ReduceOp op, T a, T b) {
  const auto x = static_cast<std::uint64_t>(a), y = static_cast<std::uint64_t>(b);
  switch (op) {
    case ReduceOp::kProd:
      return static_cast<T>(x * y);
    case ReduceOp::kMin:
      return a < b ? a : b;
    case ReduceOp::kMax:
      return a > b ? a : b;
    case ReduceOp::kBitAnd:
      return static_cast<T>(x & y);
    case ReduceOp::kBitOr:
      return static_cast<T>(x | y);
    case ReduceOp::kBitXor:
      return static_cast<T>(x ^ y);
    default:
      return static_cast<T>(x + y);
  }
}

template <class T>
Buffer reduce_typed(ReduceOp op, std::span<const Buffer> inputs) {
  Buffer out(inputs[0].size());
  for (std::size_t index = 0; index < out.size() / sizeof(T); ++index) {
    T sum = element<T>(inputs[0], index);
    for (const Buffer& input : inputs.subspan(1)) {
      if constexpr (std::is_floating_point_v<T>) {
        sum = combine_floats(op, sum, element<T>(input, index));
      } else {
        sum = combine_integers(op, sum, element<T>(input, index));
      }
    }
    set_element(out, index, sum);
  }
  return out;
}

Buffer reduce_halves(ReduceOp op, DataType type, std::span<const Buffer> inputs) {
  Buffer out(inputs[0].size());
  for (std::size_t index = 0; index < out.size() / 2; ++index) {
    float sum = half_value(type, element<std::uint16_t>(inputs[0], index));
    for (const Buffer& input : inputs.subspan(1))
      sum = combine_floats(op, sum, half_value(type, element<std::uint16_t>(input, index)));
    set_element(out, index, round_to_half(type, sum));
  }
  return out;
}

// Calls f with a value of the C++ type; not for the 16-bit floats.
template <class F>
auto with_type(DataType type, const F& f) {
  switch (type) {
    case DataType::kF32:
      return f(float{});
    case DataType::kF64:
      return f(double{});
    case DataType::kI8:
      return f(std::int8_t{});
    case DataType::kI16:
      return f(std::int16_t{});
    case DataType::kI32:
      return f(std::int32_t{});
    case DataType::kI64:
      return f(std::int64_t{});
    case DataType::kU8:
      return f(std::uint8_t{});
    case DataType::kU16:
      return f(std::uint16_t{});
    case DataType::kU32:
      return f(std::uint32_t{});
    default:
      return f(std::uint64_t{});
  }
}

bool is_half(DataType type) {
  return type == DataType::kF16 || type == DataType::kBf16;
}

}  // namespace

float half_value(DataType type, std::uint16_t bits) {
  const Layout layout = layout_of(type);
  const float sign = (bits & 0x8000) != 0 ? -1.0F : 1.0F;
  const int exponent = (bits & 0x7FFF) >> layout.mantissa_bits;
  const int mantissa = bits & ((1 << layout.mantissa_bits) - 1);
  if (exponent == (1 << layout.exponent_bits) - 1) {
    if (mantissa != 0) return std::numeric_limits<float>::quiet_NaN();
    return sign * std::numeric_limits<float>::infinity();
  }
  const int scale = (exponent == 0 ? 1 : exponent) - layout.bias() - layout.mantissa_bits;
  const int digits = mantissa + (exponent == 0 ? 0 : 1 << layout.mantissa_bits);
  return sign * static_cast<float>(std::ldexp(digits, scale));
}

std::uint16_t round_to_half(DataType type, float value) {
  const Layout layout = layout_of(type);
  const int sign = std::signbit(value) ? 0x8000 : 0;
  const int infinity = ((1 << layout.exponent_bits) - 1) << layout.mantissa_bits;
  if (std::isnan(value)) return static_cast<std::uint16_t>(infinity + 1);
  if (std::isinf(value)) return static_cast<std::uint16_t>(sign + infinity);
  if (value == 0) return static_cast<std::uint16_t>(sign);
  int exponent = 0;
  std::frexp(value, &exponent);  // |value| = [0.5, 1) * 2^exponent
  const int place = std::max(exponent - 1, 1 - layout.bias());
  // In units of the last place; the rounding mode of the process is to nearest, ties to even.
  const double units = std::nearbyint(
      std::ldexp(std::fabs(static_cast<double>(value)), layout.mantissa_bits - place));
  // A subnormal has no implicit bit; else it counts one into the exponent, as does a carry.
  const int bits = ((place + layout.bias() - 1) << layout.mantissa_bits) + static_cast<int>(units);
  return static_cast<std::uint16_t>(sign + std::min(bits, infinity));
}

Buffer reduce_reference(ReduceOp op, DataType type, std::span<const Buffer> inputs) {
  if (is_half(type)) return reduce_halves(op, type, inputs);
  return with_type(type, [&](auto zero) { return reduce_typed<decltype(zero)>(op, inputs); });
}

Buffer scale_reference(DataType type, const Buffer& values, double divisor) {
  Buffer out = values;
  for (std::size_t index = 0; index < out.size() / element_size(type); ++index) {
    if (type == DataType::kF64) {
      set_element(out, index, element<double>(out, index) / divisor);
    } else if (type == DataType::kF32) {
      set_element(out, index, element<float>(out, index) / static_cast<float>(divisor));
    } else {
      const float value = half_value(type, element<std::uint16_t>(out, index));
      set_element(out, index, round_to_half(type, value / static_cast<float>(divisor)));
    }
  }
  return out;
}

double value_at(DataType type, const Buffer& buffer, std::size_t index) {
  if (is_half(type)) {
    return static_cast<double>(half_value(type, element<std::uint16_t>(buffer, index)));
  }
  return with_type(
      type, [&](auto zero) { return static_cast<double>(element<decltype(zero)>(buffer, index)); });
}

std::ptrdiff_t first_difference(DataType type, const Buffer& a, const Buffer& b) {
  const std::size_t size = element_size(type);
  for (std::size_t index = 0; index < a.size() / size; ++index) {
    if (std::memcmp(a.data() + index * size, b.data() + index * size, size) == 0) continue;
    if (is_float(type) && std::isnan(value_at(type, a, index)) &&
        std::isnan(value_at(type, b, index))) {
      continue;
    }
    return static_cast<std::ptrdiff_t>(index);
  }
  return -1;
}

}  // namespace lochos::test
