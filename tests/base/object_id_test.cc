#include "base/object_id.h"

#include <gtest/gtest.h>

namespace lochos {
namespace {

TEST(ObjectId, NameMapsToItsSha256) {
  auto id = ObjectId::from_name("abc");
  ASSERT_TRUE(id);
  EXPECT_EQ(id->to_hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(ObjectId, HexRoundTrips) {
  auto id = ObjectId::from_name("x");
  EXPECT_EQ(ObjectId::from_hex(id->to_hex()).value(), *id);
  EXPECT_FALSE(ObjectId::from_hex("12"));
  EXPECT_FALSE(ObjectId::from_hex(std::string(64, 'g')));
}

class BadName : public testing::TestWithParam<std::string> {};

TEST_P(BadName, IsRefusedWithTheLimits) {
  auto id = ObjectId::from_name(GetParam());
  ASSERT_FALSE(id);
  EXPECT_EQ(id.error().code(), Errc::kInvalidArgument);
  EXPECT_NE(id.error().message().find("1 to 1024 bytes of UTF-8"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(ObjectId, BadName,
                         testing::Values(std::string(), std::string(4096, 'a'),
                                         std::string(1025, 'a'), std::string("a\0b", 3),
                                         std::string("\xff"), std::string("\xc0\x80"),
                                         std::string("\xed\xa0\x80"),
                                         std::string("\xf4\x90\x80\x80"), std::string("\xe2\x82")));

TEST(ObjectId, LongestAndUnicodeNamesAreValid) {
  EXPECT_TRUE(ObjectId::from_name(std::string(1024, 'a')));
  EXPECT_TRUE(ObjectId::from_name("λόχος/Ω-𝛀"));
}

}  // namespace
}  // namespace lochos
