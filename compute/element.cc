#include "compute/element.h"

#include <string>

#include "base/check.h"

namespace lochos {
namespace {

struct TypeFacts {
  std::string_view name;
  std::string_view long_name;
  std::size_t bytes;
  bool floating;
};

// In the order of DataType.
constexpr std::array<TypeFacts, kDataTypes.size()> kTypes = {{
    {"f16", "float16", 2, true},
    {"bf16", "bfloat16", 2, true},
    {"f32", "float32", 4, true},
    {"f64", "float64", 8, true},
    {"i8", "int8", 1, false},
    {"i16", "int16", 2, false},
    {"i32", "int32", 4, false},
    {"i64", "int64", 8, false},
    {"u8", "uint8", 1, false},
    {"u16", "uint16", 2, false},
    {"u32", "uint32", 4, false},
    {"u64", "uint64", 8, false},
}};

struct OpFacts {
  std::string_view name;
  std::string_view long_name;
};

// In the order of ReduceOp.
constexpr std::array<OpFacts, kReduceOps.size()> kOps = {{
    {"sum", "sum"},
    {"prod", "product"},
    {"min", "min"},
    {"max", "max"},
    {"band", "and"},
    {"bor", "or"},
    {"bxor", "xor"},
    {"avg", "average"},
}};

struct Alias {
  std::string_view alias;
  std::string_view name;
};
constexpr std::array<Alias, 4> kAliases = {{
    {"half", "f16"},
    {"float", "f32"},
    {"double", "f64"},
    {"mean", "avg"},
}};

const TypeFacts& facts(DataType type) {
  const auto index = static_cast<std::size_t>(type);
  LOCHOS_CHECK(index < kTypes.size());
  return kTypes[index];
}

std::string_view without_alias(std::string_view name) {
  for (const Alias& entry : kAliases) {
    if (entry.alias == name) return entry.name;
  }
  return name;
}

template <class Value, class Facts>
Result<Value> parse(std::string_view name, const Facts& facts, const char* what) {
  const std::string_view wanted = without_alias(name);
  std::string known;
  for (std::size_t index = 0; index < facts.size(); ++index) {
    if (facts[index].name == wanted || facts[index].long_name == wanted) {
      return static_cast<Value>(index);
    }
    known += known.empty() ? "" : ", ";
    known += facts[index].name;
  }
  return fail(Errc::kInvalidArgument,
              std::string(what) + " '" + std::string(name) + "' is not one of " + known);
}

}  // namespace

std::size_t element_size(DataType type) {
  return facts(type).bytes;
}

bool is_float(DataType type) {
  return facts(type).floating;
}

bool supported(ReduceOp op, DataType type) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kProd:
    case ReduceOp::kMin:
    case ReduceOp::kMax:
      return true;
    case ReduceOp::kBitAnd:
    case ReduceOp::kBitOr:
    case ReduceOp::kBitXor:
      return !is_float(type);
    case ReduceOp::kAverage:
      return is_float(type);
  }
  return false;
}

std::string_view to_string(DataType type) {
  return facts(type).name;
}

std::string_view to_string(ReduceOp op) {
  const auto index = static_cast<std::size_t>(op);
  LOCHOS_CHECK(index < kOps.size());
  return kOps[index].name;
}

Result<DataType> parse_data_type(std::string_view name) {
  return parse<DataType>(name, kTypes, "element type");
}

Result<ReduceOp> parse_reduce_op(std::string_view name) {
  return parse<ReduceOp>(name, kOps, "operation");
}

}  // namespace lochos
