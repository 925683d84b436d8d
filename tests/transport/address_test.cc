#include "transport/address.h"

#include <gtest/gtest.h>

namespace lochos {
namespace {

TEST(AddressTest, ParsesWhatPeopleWriteAndWritesItBack) {
  for (const char* text : {"10.0.0.1:7777", "0.0.0.0:0", "127.0.0.1:65535", "[::1]:7777", "[::]:0",
                           "[fe80::1%lo]:7777", "[2001:db8::5]:1"}) {
    const auto address = SocketAddress::parse(text);
    ASSERT_TRUE(address) << address.error().to_string();
    EXPECT_EQ(address->to_string(), text);
  }
}

TEST(AddressTest, DefaultPortAllowsBareHosts) {
  EXPECT_EQ(SocketAddress::parse("::1", 7777)->to_string(), "[::1]:7777");
  EXPECT_EQ(SocketAddress::parse("fe80::1%lo", 7777)->to_string(), "[fe80::1%lo]:7777");
  EXPECT_EQ(SocketAddress::parse("10.0.0.1", 7777)->to_string(), "10.0.0.1:7777");
  EXPECT_EQ(SocketAddress::parse("[::1]", 7777)->to_string(), "[::1]:7777");
  EXPECT_EQ(SocketAddress::parse("10.0.0.1:1", 7777)->to_string(), "10.0.0.1:1");
}

TEST(AddressTest, UnbracketedIPv6WithPortIsRefusedAndTheRightFormShown) {
  const auto address = SocketAddress::parse("::1:7777");
  ASSERT_FALSE(address);
  EXPECT_EQ(address.error().code(), Errc::kInvalidArgument);
  EXPECT_NE(address.error().to_string().find("[::1]:7777"), std::string::npos)
      << address.error().to_string();
}

TEST(AddressTest, AmbiguousFormIsRefusedAlsoWithADefaultPort) {
  const auto address = SocketAddress::parse("::1:7777", 7000);
  ASSERT_FALSE(address);
  EXPECT_NE(address.error().to_string().find("[::1]:7777"), std::string::npos)
      << address.error().to_string();
}

TEST(AddressTest, RefusesEverythingElse) {
  for (const char* text : {"",
                           ":",
                           ":7777",
                           "10.0.0.1",
                           "10.0.0.1:",
                           "10.0.0.1:x",
                           "10.0.0.1:65536",
                           "10.0.0.1:-1",
                           "10.0.0.1:7777x",
                           "10.0.0.1: 7777",
                           "10.0.0:7777",
                           "256.0.0.1:1",
                           "[::1",
                           "[::1]7777",
                           "[::1]:",
                           "[]:7777",
                           "[10.0.0.1]:7777",
                           "[::g]:1",
                           "[fe80::1%nonesuch0]:7777",
                           "[fe80::1%]:7777",
                           "host:7777",
                           "[host]:7777",
                           "::1"}) {
    const auto address = SocketAddress::parse(text);
    ASSERT_FALSE(address) << text;
    EXPECT_EQ(address.error().code(), Errc::kInvalidArgument) << text;
  }
}

TEST(AddressTest, KnowsWhatItIs) {
  EXPECT_TRUE(SocketAddress().is_unspecified());
  EXPECT_TRUE(SocketAddress::parse("[::]:1")->is_unspecified());
  EXPECT_TRUE(SocketAddress::parse("127.3.4.5:1")->is_loopback());
  EXPECT_TRUE(SocketAddress::parse("[::1]:1")->is_loopback());
  EXPECT_FALSE(SocketAddress::parse("128.0.0.1:1")->is_loopback());
  const auto address = SocketAddress::parse("[fe80::1%lo]:7777");
  EXPECT_EQ(address->host(), "fe80::1%lo");
  EXPECT_EQ(address->port(), 7777);
  EXPECT_EQ(address->with_port(5).port(), 5);
  EXPECT_EQ(address->with_port(7777), *address);
  EXPECT_NE(address->with_port(5), *address);
}

TEST(AddressTest, ResolvesNamesAndNumbers) {
  const auto number = resolve("[::1]:7777");
  ASSERT_TRUE(number);
  EXPECT_EQ(number->front().to_string(), "[::1]:7777");
  const auto name = resolve("localhost:7777");
  ASSERT_TRUE(name) << name.error().to_string();
  EXPECT_TRUE(name->front().is_loopback());
  EXPECT_EQ(name->front().port(), 7777);
  const auto default_port = resolve("localhost", 1);
  ASSERT_TRUE(default_port);
  EXPECT_EQ(default_port->front().port(), 1);
}

TEST(AddressTest, UnknownNameIsUnreachableAndNamed) {
  const auto unknown = resolve("no-such-host.invalid:1");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code(), Errc::kUnreachable);
  EXPECT_NE(unknown.error().to_string().find("no-such-host.invalid"), std::string::npos);
  EXPECT_EQ(resolve("a b:1").error().code(), Errc::kUnreachable);
  EXPECT_EQ(resolve(":1").error().code(), Errc::kInvalidArgument);
}

}  // namespace
}  // namespace lochos
