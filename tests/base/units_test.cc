#include "base/units.h"

#include <gtest/gtest.h>

namespace lochos {
namespace {

using namespace std::chrono_literals;

TEST(Units, SizesAreExact) {
  EXPECT_EQ(parse_size("0").value(), 0U);
  EXPECT_EQ(parse_size("4294967297").value(), 4294967297U);
  EXPECT_EQ(parse_size("9007199254740993").value(), 9007199254740993U);
  EXPECT_EQ(parse_size("64K").value(), 65536U);
  EXPECT_EQ(parse_size("64KiB").value(), 65536U);
  EXPECT_EQ(parse_size("4G").value(), 4ULL << 30);
  EXPECT_EQ(parse_size("1.5M").value(), 1572864U);
}

TEST(Units, NonsenseIsNoSize) {
  for (const char* text :
       {"", "-1", "K", "1X", "1KK", "1.2.3", "1e3", "99999999999999999999", "16E", " 1", "nan"}) {
    EXPECT_FALSE(parse_size(text)) << text;
  }
}

TEST(Units, Durations) {
  EXPECT_EQ(parse_duration("250ms").value(), 250ms);
  EXPECT_EQ(parse_duration("30s").value(), 30s);
  EXPECT_EQ(parse_duration("1.5s").value(), 1500ms);
  EXPECT_EQ(parse_duration("2m").value(), 2min);
  EXPECT_EQ(parse_duration("7").value(), 7s);
  for (const char* text : {"", "-1s", "1y", "s", "1e9h", "99999999999h"})
    EXPECT_FALSE(parse_duration(text)) << text;
}

TEST(Units, Format) {
  EXPECT_EQ(format_size(64ULL << 20), "64 MiB");
  EXPECT_EQ(format_size(1536), "1.50 KiB");
  EXPECT_EQ(format_size(17), "17 B");
  EXPECT_EQ(format_duration(1250ms), "1.25 s");
}

}  // namespace
}  // namespace lochos
