#include "transport/hello.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lochos {
namespace {

const std::string kOurs = "version " + std::to_string(kProtocolVersion);

Hello sample() {
  Hello hello;
  hello.capabilities = 0xdeadbeefU;
  hello.max_message_bytes = 4096;
  hello.node = {.number = 12, .incarnation = 0x123456789abcULL};
  hello.cluster = 77;
  return hello;
}

TEST(HelloTest, ComesBackAsItWas) {
  const Hello hello = sample();
  const auto decoded = decode_hello(encode(hello), hello);
  ASSERT_TRUE(decoded);
  EXPECT_EQ(*decoded, hello);
}

TEST(HelloTest, MayBePaddedButNotCut) {
  const auto bytes = encode(sample());
  std::vector<std::byte> padded(bytes.begin(), bytes.end());
  padded.resize(196);
  EXPECT_TRUE(decode_hello(padded, sample()));
  for (std::size_t length = 0; length < kHelloBytes; ++length) {
    const auto cut = decode_hello(std::span(bytes).first(length), sample());
    ASSERT_FALSE(cut);
    EXPECT_EQ(cut.error().code(), Errc::kProtocol);
  }
}

TEST(HelloTest, LayoutNeverChanges) {
  // Other versions must always find the magic number and both versions where they are today.
  const auto bytes = encode(sample());
  EXPECT_EQ(bytes[0], std::byte{'L'});
  EXPECT_EQ(bytes[1], std::byte{'C'});
  EXPECT_EQ(bytes[2], std::byte{'O'});
  EXPECT_EQ(bytes[3], std::byte{'H'});
  EXPECT_EQ(bytes[4], std::byte{kProtocolVersion});
  EXPECT_EQ(bytes[6], std::byte{kOldestProtocolVersion});
}

TEST(HelloTest, VersionsThatOverlapUnderstandEachOther) {
  Hello newer = sample();
  newer.version = 5;
  newer.oldest_version = kProtocolVersion;
  EXPECT_TRUE(decode_hello(encode(newer), sample()));
  newer.oldest_version = kProtocolVersion + 1;
  const auto refused = decode_hello(encode(newer), sample());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Errc::kVersionMismatch);
  EXPECT_NE(refused.error().to_string().find("version 5"), std::string::npos);
  EXPECT_NE(refused.error().to_string().find(kOurs), std::string::npos);
}

TEST(HelloTest, RefusalNamesBothVersionsToTheRefused) {
  Hello client = sample();
  client.version = client.oldest_version = 5;
  const auto reason = decode_hello(encode(client), sample());
  ASSERT_FALSE(reason);
  const Error seen = decode_refusal(encode_refusal(reason.error(), sample()), client);
  EXPECT_EQ(seen.code(), Errc::kVersionMismatch);
  EXPECT_NE(seen.to_string().find("version 5"), std::string::npos);
  EXPECT_NE(seen.to_string().find(kOurs), std::string::npos);
}

TEST(HelloTest, PurposeAndClusterMustAgree) {
  Hello other = sample();
  other.purpose = HelloPurpose::kDirectory;
  EXPECT_EQ(decode_hello(encode(other), sample()).error().code(), Errc::kProtocol);
  other = sample();
  other.cluster = 78;
  EXPECT_EQ(decode_hello(encode(other), sample()).error().code(), Errc::kProtocol);
  other.cluster = 0;
  EXPECT_TRUE(decode_hello(encode(other), sample()));
}

TEST(HelloTest, RefusalMayBeAnything) {
  for (std::size_t length = 0; length < 64; ++length) {
    const std::vector<std::byte> bytes(length, std::byte{0x4c});
    EXPECT_EQ(decode_refusal(bytes, sample()).code(), Errc::kUnreachable);
  }
  const Error fenced(Errc::kFenced, "");
  EXPECT_EQ(decode_refusal(encode_refusal(fenced, sample()), sample()).code(), Errc::kFenced);
}

}  // namespace
}  // namespace lochos
