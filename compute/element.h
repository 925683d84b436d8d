// What reductions are made of: element types and operations. Values; use anywhere.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"

namespace lochos {

// The numbers are part of the wire format: append only.
enum class DataType : std::uint8_t {
  kF16,   // IEEE 754 binary16
  kBf16,  // the upper half of a binary32
  kF32,
  kF64,
  kI8,
  kI16,
  kI32,
  kI64,
  kU8,
  kU16,
  kU32,
  kU64,
};

enum class ReduceOp : std::uint8_t {
  kSum,
  kProd,
  kMin,
  kMax,
  kBitAnd,
  kBitOr,
  kBitXor,
  kAverage,  // a sum, divided once by the number of contributions when it is complete
};

inline constexpr std::array kDataTypes = {
    DataType::kF16, DataType::kBf16, DataType::kF32, DataType::kF64, DataType::kI8,  DataType::kI16,
    DataType::kI32, DataType::kI64,  DataType::kU8,  DataType::kU16, DataType::kU32, DataType::kU64,
};
inline constexpr std::array kReduceOps = {
    ReduceOp::kSum,    ReduceOp::kProd,  ReduceOp::kMin,    ReduceOp::kMax,
    ReduceOp::kBitAnd, ReduceOp::kBitOr, ReduceOp::kBitXor, ReduceOp::kAverage,
};

// Bytes; 1, 2, 4 or 8. Elements are little-endian, as they lie in memory.
std::size_t element_size(DataType type);
// f16, bf16, f32, f64
bool is_float(DataType type);
// Bitwise operations are for integers alone. Averages are for floats alone: an integer's partial
// sum wraps, and dividing what has wrapped gives a number that has nothing to do with the mean.
bool supported(ReduceOp op, DataType type);

// "f16" "bf16" "f32" "f64" "i8" "i16" "i32" "i64" "u8" "u16" "u32" "u64"
std::string_view to_string(DataType type);
// "sum" "prod" "min" "max" "band" "bor" "bxor" "avg"
std::string_view to_string(ReduceOp op);

// The names above, and those that other libraries use: "float16" "half" "bfloat16" "float32"
// "float" "float64" "double" "int8" … "uint64".
// Errors: kInvalidArgument, with the list of names.
Result<DataType> parse_data_type(std::string_view name);
// The names above, and "product", "and", "or", "xor", "average", "mean".
// Errors: kInvalidArgument, with the list of names.
Result<ReduceOp> parse_reduce_op(std::string_view name);

}  // namespace lochos
