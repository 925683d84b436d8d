#include "directory/codec.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/directory/arbitrary_messages.h"

namespace lochos::test {
namespace {

std::span<const std::byte> payload_of(const Bytes& frame) {
  const auto length = frame_length(frame);
  EXPECT_TRUE(length.has_value());
  EXPECT_EQ(**length + kFrameHeaderBytes, frame.size());
  return std::span(frame).subspan(kFrameHeaderBytes);
}

Result<NodeMessage> decode(const NodeMessage&, std::span<const std::byte> payload) {
  return decode_node_message(payload);
}
Result<DirectoryMessage> decode(const DirectoryMessage&, std::span<const std::byte> payload) {
  return decode_directory_message(payload);
}

template <class Variant>
void check_round_trip() {
  FrameEncoder encoder;
  for (const Variant& message : one_of_each<Variant>()) {
    Bytes frame;
    encoder.append(message, frame);
    const auto back = decode(message, payload_of(frame));
    RC_ASSERT(back.has_value());
    RC_ASSERT(*back == message);
  }
}

// Whatever bytes come, decoding ends, and reads nothing outside them (the sanitizers watch).
template <class Variant>
void check_damage() {
  FrameEncoder encoder;
  for (const Variant& message : one_of_each<Variant>()) {
    Bytes frame;
    encoder.append(message, frame);
    frame.erase(frame.begin(), frame.begin() + kFrameHeaderBytes);
    if (frame.empty()) continue;
    for (int changes = 0; changes < 3; ++changes) {
      const auto at = *rc::gen::inRange<std::size_t>(0, frame.size());
      frame[at] = static_cast<std::byte>(any<std::uint8_t>());
      (void)decode(message, frame);
    }
    const auto cut = *rc::gen::inRange<std::size_t>(0, frame.size());
    (void)decode(message, std::span(frame).first(cut));
  }
}

RC_GTEST_PROP(Codec, EveryNodeMessageSurvivesTheWire, ()) {
  check_round_trip<NodeMessage>();
}
RC_GTEST_PROP(Codec, EveryDirectoryMessageSurvivesTheWire, ()) {
  check_round_trip<DirectoryMessage>();
}
RC_GTEST_PROP(Codec, DamagedNodeMessagesAreHarmless, ()) {
  check_damage<NodeMessage>();
}
RC_GTEST_PROP(Codec, DamagedDirectoryMessagesAreHarmless, ()) {
  check_damage<DirectoryMessage>();
}

TEST(Codec, OneDirectionIsNotTheOther) {
  FrameEncoder encoder;
  Bytes frame;
  encoder.append(DirectoryMessage(Joined{.node = {1, 2}}), frame);
  const auto wrong = decode_node_message(payload_of(frame));
  // Both schemas number their messages from one, so a misdirected frame may be some message; it
  // must not be one that carries the other's content.
  if (wrong) {
    EXPECT_TRUE(std::holds_alternative<Join>(*wrong));
  }
}

TEST(Codec, MisalignedFramesAreRead) {
  FrameEncoder encoder;
  for (std::size_t shift = 0; shift < 8; ++shift) {
    Bytes buffer(shift);
    encoder.append(NodeMessage(Seal{.id = {}, .generation = 0x1122334455667788}), buffer);
    const auto message = decode_node_message(std::span(buffer).subspan(shift + kFrameHeaderBytes));
    ASSERT_TRUE(message.has_value()) << shift;
    EXPECT_EQ(std::get<Seal>(*message).generation, 0x1122334455667788U);
  }
}

TEST(Codec, ImpossibleEnumerationsAreRefused) {
  FrameEncoder encoder;
  Bytes good, bad;
  encoder.append(DirectoryMessage(Failed{.request = 0, .code = Errc::kSystem, .message = {}}),
                 good);
  encoder.append(
      DirectoryMessage(Failed{.request = 0, .code = static_cast<Errc>(200), .message = {}}), bad);
  EXPECT_TRUE(decode_directory_message(payload_of(good)));
  EXPECT_EQ(decode_directory_message(payload_of(bad)).error().code(), Errc::kProtocol);
  Bytes rail;
  encoder.append(NodeMessage(Join{
                     .name = {}, .rails = {{static_cast<TransportKind>(9), "x"}}, .previous = {}}),
                 rail);
  EXPECT_EQ(decode_node_message(payload_of(rail)).error().code(), Errc::kProtocol);
}

TEST(Codec, LengthBeyondTheLimitIsRefusedBeforeAnythingIsAllocated) {
  const Bytes huge(4, std::byte{0xff});
  EXPECT_EQ(frame_length(huge).error().code(), Errc::kProtocol);
  EXPECT_FALSE(frame_length(std::span(huge).first(3))->has_value());
}

TEST(Codec, LargestMessagesFitIntoAFrame) {
  FrameEncoder encoder;
  Bytes frame;
  encoder.append(
      NodeMessage(Wait{.request = 1, .ids = std::vector<ObjectId>(kMaxWaitIds), .count = 1}),
      frame);
  EXPECT_LE(frame.size(), kMaxFrameBytes);
  frame.clear();
  encoder.append(NodeMessage(Put{.request = 1,
                                 .id = {},
                                 .name = std::string(kMaxNameBytes, 'n'),
                                 .size = kInlineObjectBytes,
                                 .complete = true,
                                 .inline_bytes = Bytes(kInlineObjectBytes)}),
                 frame);
  EXPECT_LE(frame.size(), kMaxFrameBytes);
}

}  // namespace
}  // namespace lochos::test
