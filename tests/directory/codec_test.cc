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

template <class Message>
Errc refusal(const Message& message) {
  FrameEncoder encoder;
  Bytes frame;
  encoder.append(message, frame);
  const auto back = decode(message, payload_of(frame));
  EXPECT_FALSE(back.has_value());
  return back ? Errc::kSystem : back.error().code();
}

// The first number that an enumeration does not have.
template <class Enum>
int raw_after(Enum last) {
  return static_cast<int>(last) + 1;
}

template <class Message>
bool accepted(const Message& message) {
  FrameEncoder encoder;
  Bytes frame;
  encoder.append(message, frame);
  const auto back = decode(message, payload_of(frame));
  return back && *back == message;
}

Reduce reduce_of(std::size_t sources, std::size_t name_bytes) {
  Reduce reduce{.request = 1, .target = {}, .name = std::string(name_bytes, 't'), .sources = {}};
  reduce.sources.resize(sources, {.id = {}, .name = std::string(name_bytes, 's')});
  reduce.count = static_cast<std::uint32_t>(sources);
  return reduce;
}

ReduceTask task_of(std::size_t inputs) {
  ReduceTask task;
  task.reduce = 1;
  task.generation = 4;
  task.name = "target";
  task.expected_inputs = static_cast<std::uint32_t>(inputs);
  task.inputs.resize(inputs, {.id = {}, .generation = 5, .node = {6, 7}, .rails = {}});
  return task;
}

// Others index tables by these: a value that does not exist must not get past the codec.
TEST(Codec, ReducesOfUnknownOperationsAndTypesAreRefused) {
  const auto op = static_cast<ReduceOp>(kReduceOps.size());
  const auto dtype = static_cast<DataType>(kDataTypes.size());
  EXPECT_TRUE(accepted(NodeMessage(reduce_of(3, 5))));
  Reduce reduce = reduce_of(3, 5);
  reduce.op = op;
  EXPECT_EQ(refusal(NodeMessage(reduce)), Errc::kProtocol);
  reduce = reduce_of(3, 5);
  reduce.dtype = dtype;
  EXPECT_EQ(refusal(NodeMessage(reduce)), Errc::kProtocol);
  EXPECT_TRUE(accepted(DirectoryMessage(task_of(2))));
  ReduceTask task = task_of(2);
  task.op = op;
  EXPECT_EQ(refusal(DirectoryMessage(task)), Errc::kProtocol);
  task = task_of(2);
  task.dtype = dtype;
  EXPECT_EQ(refusal(DirectoryMessage(task)), Errc::kProtocol);
  ReduceFailed failed;
  failed.reason = static_cast<Errc>(200);
  EXPECT_EQ(refusal(NodeMessage(failed)), Errc::kProtocol);
}

TEST(Codec, ReducesBeyondTheLimitsAreRefused) {
  EXPECT_TRUE(accepted(NodeMessage(reduce_of(kMaxReduceSources, 100))));
  EXPECT_EQ(refusal(NodeMessage(reduce_of(kMaxReduceSources + 1, 0))), Errc::kProtocol);
  EXPECT_TRUE(accepted(NodeMessage(reduce_of(1, kMaxNameBytes))));
  EXPECT_EQ(refusal(NodeMessage(reduce_of(1, kMaxNameBytes + 1))), Errc::kProtocol);
  ReduceReply reply;
  reply.included.resize(kMaxReduceSources);
  EXPECT_TRUE(accepted(DirectoryMessage(reply)));
  reply.included.resize(kMaxReduceSources + 1);
  EXPECT_EQ(refusal(DirectoryMessage(reply)), Errc::kProtocol);
}

TEST(Codec, TasksBeyondTheLimitsAreRefused) {
  EXPECT_TRUE(accepted(DirectoryMessage(task_of(kMaxReduceSources))));
  EXPECT_EQ(refusal(DirectoryMessage(task_of(kMaxReduceSources + 1))), Errc::kProtocol);
  EXPECT_EQ(refusal(DirectoryMessage(task_of(0))), Errc::kProtocol);
  ReduceTask task = task_of(2);
  task.divisor = 0;
  EXPECT_EQ(refusal(DirectoryMessage(task)), Errc::kProtocol);
  task = task_of(2);
  task.expected_inputs = kMaxReduceSources + 1;
  EXPECT_EQ(refusal(DirectoryMessage(task)), Errc::kProtocol);
  task = task_of(2);
  task.name.resize(kMaxNameBytes + 1, 'x');
  EXPECT_EQ(refusal(DirectoryMessage(task)), Errc::kProtocol);
  const RailAddress rail{TransportKind::kTcp, std::string(kMaxRailAddressBytes, 'a')};
  task = task_of(2);
  task.inputs[1].rails.assign(kMaxRails, rail);
  EXPECT_TRUE(accepted(DirectoryMessage(task)));
  task.inputs[1].rails.push_back(rail);
  EXPECT_EQ(refusal(DirectoryMessage(task)), Errc::kProtocol);
  task.inputs[1].rails = {{TransportKind::kTcp, rail.address + "a"}};
  EXPECT_EQ(refusal(DirectoryMessage(task)), Errc::kProtocol);
  task.inputs[1].rails = {{static_cast<TransportKind>(9), "a"}};
  EXPECT_EQ(refusal(DirectoryMessage(task)), Errc::kProtocol);
}

CollectiveJoin join_of(std::size_t name_bytes) {
  return {.request = 1,
          .name = std::string(name_bytes, 'g'),
          .spec = {.kind = CollectiveKind::kAllToAll,
                   .members = 8,
                   .rank = 7,
                   .root = 6,
                   .size = std::uint64_t{1} << 40,
                   .op = ReduceOp::kMax,
                   .dtype = DataType::kBf16},
          .timeout = std::chrono::seconds(9)};
}

CollectivePeers peers_of(std::size_t peers) {
  CollectivePeers message{.request = 1, .collective = 2, .chunk_bytes = 3, .peers = {}};
  message.peers.resize(peers, {.rank = 4, .node = {5, 6}, .rails = {}});
  return message;
}

TEST(Codec, CollectivesOfUnknownKindsAreRefused) {
  EXPECT_TRUE(accepted(NodeMessage(join_of(5))));
  CollectiveJoin join = join_of(5);
  join.spec.kind = static_cast<CollectiveKind>(raw_after(CollectiveKind::kAllToAll));
  EXPECT_EQ(refusal(NodeMessage(join)), Errc::kProtocol);
  join = join_of(5);
  join.spec.op = static_cast<ReduceOp>(kReduceOps.size());
  EXPECT_EQ(refusal(NodeMessage(join)), Errc::kProtocol);
  join = join_of(5);
  join.spec.dtype = static_cast<DataType>(kDataTypes.size());
  EXPECT_EQ(refusal(NodeMessage(join)), Errc::kProtocol);
  CollectiveFailed failed{.collective = 1, .rank = 2, .reason = Errc::kNoSpace, .message = "x"};
  EXPECT_TRUE(accepted(NodeMessage(failed)));
  failed.reason = static_cast<Errc>(raw_after(Errc::kSystem));
  EXPECT_EQ(refusal(NodeMessage(failed)), Errc::kProtocol);
  CollectivePeers peers = peers_of(2);
  peers.peers[1].policy = static_cast<TransportPolicy>(raw_after(TransportPolicy::kTcp));
  EXPECT_EQ(refusal(DirectoryMessage(peers)), Errc::kProtocol);
  peers = peers_of(2);
  peers.schedule = CollectiveSchedule::kFullExchange;
  EXPECT_TRUE(accepted(DirectoryMessage(peers)));
  peers.schedule = static_cast<CollectiveSchedule>(raw_after(CollectiveSchedule::kFullExchange));
  EXPECT_EQ(refusal(DirectoryMessage(peers)), Errc::kProtocol);
}

// A specification that makes no sense is answered, with what is wrong about it: the codec passes
// it.
TEST(Codec, ImpossibleCollectivesPass) {
  CollectiveJoin join = join_of(0);
  join.spec.members = 0;
  EXPECT_TRUE(accepted(NodeMessage(join)));
}

TEST(Codec, CollectivesBeyondTheLimitsAreRefused) {
  EXPECT_TRUE(accepted(NodeMessage(join_of(kMaxNameBytes))));
  EXPECT_EQ(refusal(NodeMessage(join_of(kMaxNameBytes + 1))), Errc::kProtocol);
  EXPECT_TRUE(accepted(DirectoryMessage(peers_of(0))));
  EXPECT_TRUE(accepted(DirectoryMessage(peers_of(kMaxCollectiveMembers))));
  EXPECT_EQ(refusal(DirectoryMessage(peers_of(kMaxCollectiveMembers + 1))), Errc::kProtocol);
  const RailAddress rail{TransportKind::kTcp, std::string(kMaxRailAddressBytes, 'a')};
  CollectivePeers peers = peers_of(2);
  peers.peers[1].rails.assign(kMaxRails, rail);
  EXPECT_TRUE(accepted(DirectoryMessage(peers)));
  peers.peers[1].rails.push_back(rail);
  EXPECT_EQ(refusal(DirectoryMessage(peers)), Errc::kProtocol);
  peers.peers[1].rails = {{TransportKind::kTcp, rail.address + "a"}};
  EXPECT_EQ(refusal(DirectoryMessage(peers)), Errc::kProtocol);
  peers.peers[1].rails = {{static_cast<TransportKind>(9), "a"}};
  EXPECT_EQ(refusal(DirectoryMessage(peers)), Errc::kProtocol);
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
  frame.clear();
  encoder.append(NodeMessage(reduce_of(kMaxReduceSources, 100)), frame);
  EXPECT_LE(frame.size(), kMaxFrameBytes);
  // A task of all sources there can be, each on a node of its own.
  ReduceTask task = task_of(kMaxReduceSources);
  for (ReduceInput& input : task.inputs)
    input.rails = {{TransportKind::kTcp, std::string(47, 'a')}};  // IPv6, zone and port
  frame.clear();
  encoder.append(DirectoryMessage(task), frame);
  EXPECT_LE(frame.size(), kMaxFrameBytes);
}

}  // namespace
}  // namespace lochos::test
