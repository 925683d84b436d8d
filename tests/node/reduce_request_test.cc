// What Store::reduce refuses before it asks anybody, and what it makes of the answer.
#include "node/reduce_request.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "node/local_codec.h"

namespace lochos {
namespace {

using Keys = std::vector<Store::Key>;

Error refusal(const Store::Key& target, const Keys& sources, const ReduceOptions& options = {}) {
  const auto made = make_reduce(target, sources, options);
  EXPECT_FALSE(made);
  if (made) return {Errc::kSystem, "accepted"};
  EXPECT_EQ(made.error().code(), Errc::kInvalidArgument) << made.error().to_string();
  return made.error();
}

bool names(const Error& error, const std::string& part) {
  return error.to_string().find(part) != std::string::npos;
}

Keys many(std::size_t count, const std::string& prefix = "s") {
  Keys keys;
  for (std::size_t i = 0; i < count; ++i)
    keys.emplace_back(prefix + std::to_string(i));
  return keys;
}

TEST(MakeReduce, TakesOverWhatWasAsked) {
  const ReduceOptions options{
      .op = ReduceOp::kBitXor, .dtype = DataType::kU16, .count = 2, .deterministic = true};
  const auto made = make_reduce("sum", Keys{"a", "b", "c"}, options);
  ASSERT_TRUE(made) << made.error().to_string();
  EXPECT_EQ(made->target, ObjectId::from_name("sum").value());
  EXPECT_EQ(made->name, "sum");
  ASSERT_EQ(made->sources.size(), 3U);
  EXPECT_EQ(made->sources[1], (ReduceSource{ObjectId::from_name("b").value(), "b"}));
  EXPECT_EQ(made->count, 2U);
  EXPECT_EQ(made->op, ReduceOp::kBitXor);
  EXPECT_EQ(made->dtype, DataType::kU16);
  EXPECT_TRUE(made->deterministic);
  EXPECT_EQ(make_reduce("sum", Keys{"a", "b", "c"}, {})->count, 3U);  // 0: all
}

TEST(MakeReduce, RefusesNumbersThatCannotBe) {
  EXPECT_TRUE(names(refusal("t", {}), "no sources"));
  EXPECT_TRUE(names(refusal("t", many(2), {.count = 3}), "first 3 of only 2"));
  EXPECT_TRUE(make_reduce("t", many(kMaxReduceSources), {}));
  EXPECT_TRUE(names(refusal("t", many(kMaxReduceSources + 1)), std::to_string(kMaxReduceSources)));
}

TEST(MakeReduce, NamesWhatIsThereTwice) {
  const Error twice = refusal("t", {"a", "b", "c", "b"});
  EXPECT_TRUE(names(twice, "'b'") && names(twice, "1") && names(twice, "3")) << twice.to_string();
  EXPECT_TRUE(names(refusal("t", {"a", "t"}), "source 1"));
  // A name and the id that it stands for are the same object.
  const ObjectId id = ObjectId::from_name("a").value();
  EXPECT_TRUE(names(refusal("t", {"a", id}), id.to_hex()));
}

TEST(MakeReduce, RefusesBadNames) {
  EXPECT_TRUE(names(refusal("", {"a"}), "1024"));
  const Error bad = refusal("t", {"a", std::string(2000, 'x')});
  EXPECT_TRUE(names(bad, "1024"));
  EXPECT_EQ(bad.object(), std::string(2000, 'x'));
}

TEST(MakeReduce, EveryOperationIsForTheTypesThatHaveIt) {
  for (const ReduceOp op : kReduceOps) {
    for (const DataType dtype : kDataTypes) {
      const auto made = make_reduce("t", many(2), {.op = op, .dtype = dtype});
      EXPECT_EQ(made.has_value(), supported(op, dtype)) << to_string(op) << to_string(dtype);
    }
  }
  const Error floats = refusal("t", many(2), {.op = ReduceOp::kBitAnd, .dtype = DataType::kF32});
  EXPECT_TRUE(names(floats, "band") && names(floats, "f32")) << floats.to_string();
  EXPECT_TRUE(names(refusal("t", many(2), {.op = static_cast<ReduceOp>(99)}), "99"));
  EXPECT_TRUE(names(refusal("t", many(2), {.dtype = static_cast<DataType>(99)}), "99"));
}

TEST(MakeReduce, TheLongestNamesFitIntoAFrame) {
  const std::string prefix(600, 'n');
  const std::string accents = [] {
    std::string text;
    while (text.size() < 600)
      text += "\u03bb";  // two bytes each: cuts fall inside one
    return text;
  }();
  for (const std::string& long_prefix : {prefix, "x" + accents}) {
    auto made =
        make_reduce(std::string(kMaxNameBytes, 't'), many(kMaxReduceSources, long_prefix), {});
    ASSERT_TRUE(made);
    made->request = 1;
    std::vector<std::byte> frame;
    EXPECT_TRUE(append_frame(LocalMessage(*made), frame));
    const std::string& name = made->sources.back().name;
    EXPECT_GE(name.size(), 100U);
    EXPECT_TRUE(ObjectId::from_name(name)) << "no UTF-8 any more";
    EXPECT_EQ(long_prefix.substr(0, name.size()), name);
  }
  // Names that fit stay whole.
  EXPECT_EQ(make_reduce("t", many(100, prefix), {})->sources[99].name, prefix + "99");
}

TEST(ReduceResult, SaysOfEverySourceWhetherItWentIn) {
  const auto result = reduce_result({64, 5, {1, 3}}, 5);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->size, 64U);
  EXPECT_EQ(result->generation, 5U);
  EXPECT_EQ(result->included, (std::vector<std::size_t>{1, 3}));
  EXPECT_EQ(result->left_out, (std::vector<std::size_t>{0, 2, 4}));
  EXPECT_TRUE(reduce_result({64, 5, {0, 1, 2}}, 3)->left_out.empty());
}

TEST(ReduceResult, PositionsThatCannotBeAreTheNodesFault) {
  for (const std::vector<std::uint32_t>& included :
       {std::vector<std::uint32_t>{3}, {1, 1}, {2, 1}, {0, 1, 2, 3}, {0xFFFFFFFFU}}) {
    const auto result = reduce_result({1, 1, included}, 3);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code(), Errc::kProtocol);
  }
}

}  // namespace
}  // namespace lochos
