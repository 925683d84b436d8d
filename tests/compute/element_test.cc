#include "compute/element.h"

#include <gtest/gtest.h>

namespace lochos {
namespace {

TEST(Element, NamesAreReadBack) {
  for (const DataType type : kDataTypes) {
    const auto parsed = parse_data_type(to_string(type));
    ASSERT_TRUE(parsed) << to_string(type);
    EXPECT_EQ(*parsed, type);
  }
  for (const ReduceOp op : kReduceOps) {
    const auto parsed = parse_reduce_op(to_string(op));
    ASSERT_TRUE(parsed) << to_string(op);
    EXPECT_EQ(*parsed, op);
  }
}

TEST(Element, NamesOfOtherLibrariesAreKnown) {
  EXPECT_EQ(parse_data_type("float32").value(), DataType::kF32);
  EXPECT_EQ(parse_data_type("float").value(), DataType::kF32);
  EXPECT_EQ(parse_data_type("half").value(), DataType::kF16);
  EXPECT_EQ(parse_data_type("bfloat16").value(), DataType::kBf16);
  EXPECT_EQ(parse_data_type("uint64").value(), DataType::kU64);
  EXPECT_EQ(parse_reduce_op("average").value(), ReduceOp::kAverage);
  EXPECT_EQ(parse_reduce_op("xor").value(), ReduceOp::kBitXor);
}

TEST(Element, UnknownNamesAreRefusedWithTheList) {
  const auto type = parse_data_type("f8");
  ASSERT_FALSE(type);
  EXPECT_EQ(type.error().code(), Errc::kInvalidArgument);
  EXPECT_NE(type.error().message().find("'f8' is not one of f16, bf16, f32"), std::string::npos);
  const auto op = parse_reduce_op("");
  ASSERT_FALSE(op);
  EXPECT_NE(op.error().message().find("sum, prod, min"), std::string::npos);
}

TEST(Element, SizesAreThoseOfTheNames) {
  for (const DataType type : kDataTypes) {
    const std::string name(to_string(type));
    const std::size_t bits = std::stoul(name.substr(name.find_first_of("123468")));
    EXPECT_EQ(element_size(type) * 8, bits) << name;
  }
}

TEST(Element, BitsAreForIntegersAndAveragesForFloats) {
  for (const DataType type : kDataTypes) {
    EXPECT_TRUE(supported(ReduceOp::kSum, type));
    EXPECT_TRUE(supported(ReduceOp::kMax, type));
    EXPECT_EQ(supported(ReduceOp::kBitXor, type), !is_float(type)) << to_string(type);
    EXPECT_EQ(supported(ReduceOp::kAverage, type), is_float(type)) << to_string(type);
  }
}

}  // namespace
}  // namespace lochos
