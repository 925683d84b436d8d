#include "node/peer_codec.h"

#include <gtest/gtest.h>

#include <random>

namespace lochos {
namespace {

ObjectId some_id() {
  ObjectId id;
  for (std::size_t i = 0; i < id.bytes.size(); ++i)
    id.bytes[i] = static_cast<std::uint8_t>(255 - i);
  return id;
}

std::vector<PeerMessage> one_of_each() {
  return {PullMessage{7, 1ULL << 60, some_id(), 3, (4ULL << 30) + 1, 1 << 20, 0xfedcba9876543210,
                      ~0ULL},
          CancelPullMessage{8, 9}, PullEndMessage{10, 11, Errc::kObjectLost}, PingMessage{-12},
          PongMessage{1LL << 62}};
}

PeerMessage round_trip(const PeerMessage& message) {
  const auto bytes = encode(message);
  EXPECT_LE(bytes.size(), kMaxPeerMessageBytes);
  auto decoded = decode_peer_message(bytes);
  EXPECT_TRUE(decoded) << decoded.error().to_string();
  return decoded.value();
}

TEST(PeerCodec, PullKeepsEveryField) {
  const auto sent = std::get<PullMessage>(one_of_each()[0]);
  const auto got = std::get<PullMessage>(round_trip(sent));
  EXPECT_EQ(got.slot, sent.slot);
  EXPECT_EQ(got.edge, sent.edge);
  EXPECT_EQ(got.id, sent.id);
  EXPECT_EQ(got.generation, sent.generation);
  EXPECT_EQ(got.first, sent.first);
  EXPECT_EQ(got.chunk, sent.chunk);
  EXPECT_EQ(got.address, sent.address);
  EXPECT_EQ(got.key, sent.key);
}

TEST(PeerCodec, OthersKeepEveryField) {
  const auto cancel = std::get<CancelPullMessage>(round_trip(CancelPullMessage{8, 9}));
  EXPECT_EQ(cancel.slot, 8U);
  EXPECT_EQ(cancel.edge, 9U);
  for (int code = 0; code <= static_cast<int>(Errc::kSystem); ++code) {
    const auto reason = static_cast<Errc>(code);
    const auto end = std::get<PullEndMessage>(round_trip(PullEndMessage{10, 11, reason}));
    EXPECT_EQ(end.slot, 10U);
    EXPECT_EQ(end.edge, 11U);
    EXPECT_EQ(end.reason, reason);
  }
  EXPECT_EQ(std::get<PingMessage>(round_trip(PingMessage{-12})).time, -12);
  EXPECT_EQ(std::get<PongMessage>(round_trip(PongMessage{13})).time, 13);
}

TEST(PeerCodec, AnyPartOfAMessageIsRefusedOrWellFormed) {
  for (const PeerMessage& message : one_of_each()) {
    const auto bytes = encode(message);
    for (std::size_t length = 0; length < bytes.size(); ++length) {
      const auto decoded = decode_peer_message(std::span(bytes).first(length));
      if (!decoded) {
        EXPECT_EQ(decoded.error().code(), Errc::kProtocol);
      }
    }
  }
}

TEST(PeerCodec, FlippedBitsAreRefusedOrWellFormed) {
  std::mt19937 random(5);
  for (const PeerMessage& message : one_of_each()) {
    const auto original = encode(message);
    for (int round = 0; round < 2000; ++round) {
      auto bytes = original;
      for (int flips = 0; flips < 3; ++flips)
        bytes[random() % bytes.size()] ^= static_cast<std::byte>(1U << (random() % 8));
      const auto decoded = decode_peer_message(bytes);
      if (!decoded) {
        EXPECT_EQ(decoded.error().code(), Errc::kProtocol);
      } else if (const auto* end = std::get_if<PullEndMessage>(&*decoded)) {
        EXPECT_LE(end->reason, Errc::kSystem);
      }
    }
  }
}

TEST(PeerCodec, TooLongIsRefusedWithoutBeingRead) {
  const std::vector<std::byte> bytes(kMaxPeerMessageBytes + 1);
  const auto decoded = decode_peer_message(bytes);
  ASSERT_FALSE(decoded);
  EXPECT_EQ(decoded.error().code(), Errc::kProtocol);
  EXPECT_FALSE(decode_peer_message({}));
}

// A message lies anywhere in a receive buffer.
TEST(PeerCodec, AlignmentDoesNotMatter) {
  const auto bytes = encode(one_of_each()[0]);
  std::vector<std::byte> buffer(bytes.size() + 16);
  for (std::size_t offset = 0; offset < 16; ++offset) {
    std::copy(bytes.begin(), bytes.end(), buffer.begin() + static_cast<std::ptrdiff_t>(offset));
    EXPECT_TRUE(decode_peer_message(std::span(buffer).subspan(offset, bytes.size())));
  }
}

}  // namespace
}  // namespace lochos
