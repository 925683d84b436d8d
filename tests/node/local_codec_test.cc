#include "node/local_codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "tests/node/test_node.h"

namespace lochos {
namespace {

using namespace std::chrono_literals;

ObjectId some_id(std::uint8_t first) {
  ObjectId id;
  for (std::size_t i = 0; i < id.bytes.size(); ++i)
    id.bytes[i] = static_cast<std::uint8_t>(first + i);
  return id;
}

std::span<const std::byte> only_frame(FrameReader& reader, std::span<const std::byte> stream) {
  const auto room = reader.prepare(stream.size());
  std::memcpy(room.data(), stream.data(), stream.size());
  reader.commit(stream.size());
  return reader.next().value();
}

template <class T>
T round_trip(const T& message) {
  std::vector<std::byte> stream;
  EXPECT_TRUE(append_frame(LocalMessage(message), stream));
  FrameReader reader;
  auto decoded = decode_local_message(only_frame(reader, stream));
  EXPECT_TRUE(decoded) << decoded.error().to_string();
  return std::get<T>(*decoded);
}

template <class T>
T reply_round_trip(const T& payload) {
  std::vector<std::byte> stream;
  EXPECT_TRUE(append_frame(LocalReply{77, payload}, stream));
  FrameReader reader;
  auto decoded = decode_local_reply(only_frame(reader, stream));
  EXPECT_TRUE(decoded) << decoded.error().to_string();
  EXPECT_EQ(decoded->request, 77U);
  return std::get<T>(*decoded->result);
}

TEST(LocalCodecTest, RequestsKeepEveryField) {
  const auto create = round_trip(LocalCreate{1, some_id(3), "name", 1ULL << 40, 5s});
  EXPECT_EQ(create.request, 1U);
  EXPECT_EQ(create.id, some_id(3));
  EXPECT_EQ(create.name, "name");
  EXPECT_EQ(create.size, 1ULL << 40);
  EXPECT_EQ(create.timeout, 5s);
  const auto put = round_trip(LocalPutInline{2, some_id(4), "", pattern(1000), kNoTimeout});
  EXPECT_EQ(put.bytes, pattern(1000));
  EXPECT_EQ(put.timeout, kNoTimeout);
  EXPECT_TRUE(round_trip(LocalPutInline{2, some_id(4), "", {}, 1s}).bytes.empty());
  const auto publish = round_trip(LocalPublish{9, 1ULL << 35});
  EXPECT_EQ(publish.writer, 9U);
  EXPECT_EQ(publish.count, 1ULL << 35);
  EXPECT_EQ(round_trip(LocalSeal{3, 10, 1ms}).writer, 10U);
  EXPECT_EQ(round_trip(LocalAbandon{11}).writer, 11U);
  const auto get = round_trip(LocalGet{4, some_id(5), "get", 2s, true});
  EXPECT_TRUE(get.progress);
  EXPECT_EQ(get.name, "get");
  EXPECT_EQ(round_trip(LocalRelease{12}).pin, 12U);
  EXPECT_EQ(round_trip(LocalCancel{13}).request, 13U);
  const auto wait = round_trip(LocalWait{5, {some_id(1), some_id(2)}, 2, 3s});
  EXPECT_EQ(wait.ids, (std::vector{some_id(1), some_id(2)}));
  EXPECT_EQ(wait.count, 2U);
  EXPECT_EQ(round_trip(LocalStat{6, some_id(6), "s", 1s}).id, some_id(6));
  const auto list = round_trip(LocalList{7, some_id(7), 44, 1s});
  EXPECT_EQ(list.after, some_id(7));
  EXPECT_EQ(list.limit, 44U);
  EXPECT_EQ(round_trip(LocalErase{8, some_id(8), "e", 1s}).name, "e");
  const auto barrier = round_trip(LocalBarrier{9, "b", 3, 1s});
  EXPECT_EQ(barrier.name, "b");
  EXPECT_EQ(barrier.members, 3U);
  EXPECT_EQ(round_trip(LocalStats{10}).request, 10U);
}

LocalReduce some_reduce(std::size_t sources, std::size_t name_bytes = 3) {
  LocalReduce reduce;
  reduce.request = 11;
  reduce.target = some_id(9);
  reduce.name = std::string(name_bytes, 't');
  reduce.sources.resize(sources, {some_id(1), std::string(name_bytes, 's')});
  reduce.count = 2;
  reduce.op = ReduceOp::kMax;
  reduce.dtype = DataType::kBf16;
  reduce.deterministic = true;
  reduce.timeout = 4s;
  return reduce;
}

TEST(LocalCodecTest, ReducesKeepEveryField) {
  LocalReduce reduce = some_reduce(3);
  reduce.sources[1] = {some_id(2), ""};
  const auto back = round_trip(reduce);
  EXPECT_EQ(back.request, 11U);
  EXPECT_EQ(back.target, reduce.target);
  EXPECT_EQ(back.name, "ttt");
  EXPECT_EQ(back.sources, reduce.sources);
  EXPECT_EQ(back.count, 2U);
  EXPECT_EQ(back.op, ReduceOp::kMax);
  EXPECT_EQ(back.dtype, DataType::kBf16);
  EXPECT_TRUE(back.deterministic);
  EXPECT_EQ(back.timeout, 4s);
  EXPECT_EQ(round_trip(LocalReduce{1, {}, "", {}, 0, {}, {}, false, kNoTimeout}).timeout,
            kNoTimeout);
  const auto reduced = reply_round_trip(LocalReduced{1ULL << 40, 7, {0, 2, 4095}});
  EXPECT_EQ(reduced.size, 1ULL << 40);
  EXPECT_EQ(reduced.generation, 7U);
  EXPECT_EQ(reduced.included, (std::vector<std::uint32_t>{0, 2, 4095}));
}

// What the codec makes of a message that the encoder writes as it is.
Errc refusal(const LocalMessage& message) {
  std::vector<std::byte> stream;
  EXPECT_TRUE(append_frame(message, stream));
  FrameReader reader;
  const auto decoded = decode_local_message(only_frame(reader, stream));
  EXPECT_FALSE(decoded);
  return decoded ? Errc::kSystem : decoded.error().code();
}

TEST(LocalCodecTest, ReducesBeyondTheLimitsAreRefused) {
  EXPECT_EQ(round_trip(some_reduce(kMaxReduceSources)).sources.size(), kMaxReduceSources);
  EXPECT_EQ(refusal(some_reduce(kMaxReduceSources + 1)), Errc::kProtocol);
  EXPECT_EQ(round_trip(some_reduce(2, kMaxNameBytes)).name.size(), kMaxNameBytes);
  LocalReduce reduce = some_reduce(2);
  reduce.name.resize(kMaxNameBytes + 1, 'x');
  EXPECT_EQ(refusal(reduce), Errc::kProtocol);
  reduce = some_reduce(2);
  reduce.sources[1].name.resize(kMaxNameBytes + 1, 'x');
  EXPECT_EQ(refusal(reduce), Errc::kProtocol);
  reduce = some_reduce(2);
  reduce.op = static_cast<ReduceOp>(kReduceOps.size());
  EXPECT_EQ(refusal(reduce), Errc::kProtocol);
  reduce = some_reduce(2);
  reduce.dtype = static_cast<DataType>(kDataTypes.size());
  EXPECT_EQ(refusal(reduce), Errc::kProtocol);
  reduce = some_reduce(2);
  reduce.request = 0;
  EXPECT_EQ(refusal(reduce), Errc::kProtocol);

  LocalReduced reduced;
  reduced.included.resize(kMaxReduceSources + 1);
  std::vector<std::byte> stream;
  ASSERT_TRUE(append_frame(LocalReply{1, reduced}, stream));
  FrameReader reader;
  EXPECT_EQ(decode_local_reply(only_frame(reader, stream)).error().code(), Errc::kProtocol);
}

LocalCollective some_collective(std::size_t name_bytes = 5) {
  return {.request = 12,
          .writer = std::uint64_t{1} << 33,
          .name = std::string(name_bytes, 'g'),
          .spec = {.kind = CollectiveKind::kAllToAll,
                   .members = 9,
                   .rank = 8,
                   .root = 7,
                   .size = std::uint64_t{1} << 40,
                   .op = ReduceOp::kMin,
                   .dtype = DataType::kI16},
          .timeout = 6s};
}

TEST(LocalCodecTest, CollectivesKeepEveryField) {
  const auto scratch = round_trip(LocalScratch{13, std::uint64_t{1} << 41, 7s});
  EXPECT_EQ(scratch.request, 13U);
  EXPECT_EQ(scratch.size, std::uint64_t{1} << 41);
  EXPECT_EQ(scratch.timeout, 7s);
  const LocalCollective collective = some_collective();
  const auto back = round_trip(collective);
  EXPECT_EQ(back.request, 12U);
  EXPECT_EQ(back.writer, collective.writer);
  EXPECT_EQ(back.name, "ggggg");
  EXPECT_EQ(back.spec, collective.spec);
  EXPECT_EQ(back.timeout, 6s);
  EXPECT_EQ(round_trip(LocalCollective{1, 0, "", {}, kNoTimeout}).timeout, kNoTimeout);
}

TEST(LocalCodecTest, CollectivesBeyondTheLimitsAreRefused) {
  EXPECT_EQ(round_trip(some_collective(kMaxNameBytes)).name.size(), kMaxNameBytes);
  EXPECT_EQ(refusal(some_collective(kMaxNameBytes + 1)), Errc::kProtocol);
  LocalCollective collective = some_collective();
  collective.spec.kind =
      static_cast<CollectiveKind>(static_cast<int>(CollectiveKind::kAllToAll) + 1);
  EXPECT_EQ(refusal(collective), Errc::kProtocol);
  collective = some_collective();
  collective.spec.op = static_cast<ReduceOp>(kReduceOps.size());
  EXPECT_EQ(refusal(collective), Errc::kProtocol);
  collective = some_collective();
  collective.spec.dtype = static_cast<DataType>(kDataTypes.size());
  EXPECT_EQ(refusal(collective), Errc::kProtocol);
  collective = some_collective();
  collective.request = 0;
  EXPECT_EQ(refusal(collective), Errc::kProtocol);
  EXPECT_EQ(refusal(LocalScratch{0, 1, 1s}), Errc::kProtocol);
}

TEST(LocalCodecTest, RepliesKeepEveryField) {
  reply_round_trip(LocalDone{});
  EXPECT_EQ(reply_round_trip(LocalCreated{1, 2, 3}).offset, 2U);
  const auto view = reply_round_trip(LocalView{1, 2, 3, 4, nullptr});
  EXPECT_EQ(view.size, 3U);
  EXPECT_EQ(view.generation, 4U);
  EXPECT_EQ(reply_round_trip(LocalProgress{1, 2, 3, 4, 5}).valid, 4U);
  EXPECT_EQ(reply_round_trip(LocalReady{{1, 5, 7}}).positions,
            (std::vector<std::uint32_t>{1, 5, 7}));
  ObjectStat stat{some_id(1), "n", 10, 2, true, true, {{{3, 4}, "holder", true, {5, 6}}}, 9};
  const auto back = reply_round_trip(stat);
  EXPECT_EQ(back.id, stat.id);
  EXPECT_TRUE(back.is_inline);
  ASSERT_EQ(back.holders.size(), 1U);
  EXPECT_EQ(back.holders[0].parent, (NodeId{5, 6}));
  EXPECT_EQ(back.holders[0].node_name, "holder");
  EXPECT_EQ(back.holder_count, 9U);
  const auto page = reply_round_trip(LocalListPage{{stat, stat}, true});
  EXPECT_EQ(page.objects.size(), 2U);
  EXPECT_TRUE(page.more);
  NodeStats stats;
  stats.pool_bytes = 1;
  stats.huge_page_bytes = 11;
  stats.node = {2, 3};
  stats.directory = "d:1";
  stats.rails = {"r1", "r2"};
  const auto figures = reply_round_trip(stats);
  EXPECT_EQ(figures.huge_page_bytes, 11U);
  EXPECT_EQ(figures.rails, stats.rails);
  EXPECT_EQ(figures.directory, "d:1");
}

TEST(LocalCodecTest, ErrorsKeepTheirContext) {
  const Error error = Error(Errc::kObjectLost, "gone")
                          .with_operation("get")
                          .with_object("model")
                          .with_peer("n3.1")
                          .with_transport("tcp")
                          .with_nic("eth0")
                          .with_cause("dead")
                          .with_fix("put it again")
                          .with_bytes(12, 64);
  std::vector<std::byte> stream;
  ASSERT_TRUE(append_frame(LocalReply{1, fail(error)}, stream));
  FrameReader reader;
  const auto reply = decode_local_reply(only_frame(reader, stream)).value();
  ASSERT_FALSE(reply.result);
  EXPECT_EQ(reply.result.error().to_string(), error.to_string());
  EXPECT_EQ(reply.result.error().code(), Errc::kObjectLost);
}

TEST(LocalCodecTest, WhatCannotTravelIsRefused) {
  std::vector<std::byte> out;
  EXPECT_EQ(append_frame(LocalMessage(LocalPutUserMemory{}), out).error().code(),
            Errc::kUnsupported);
  EXPECT_EQ(append_frame(LocalMessage(LocalGetInto{}), out).error().code(), Errc::kUnsupported);
  EXPECT_EQ(append_frame(LocalMessage(LocalRegisterMemory{}), out).error().code(),
            Errc::kUnsupported);
  EXPECT_EQ(append_frame(LocalReply{1, LocalReceived{}}, out).error().code(), Errc::kUnsupported);
  LocalPutInline large;
  large.request = 1;
  large.bytes.resize(kMaxFrameBytes);
  EXPECT_EQ(append_frame(LocalMessage(large), out).error().code(), Errc::kInvalidArgument);
  EXPECT_TRUE(out.empty());
  const std::byte byte{1};
  EXPECT_EQ(append_frame(LocalReply{1, LocalView{1, 0, 1, 1, &byte}}, out).error().code(),
            Errc::kUnsupported);
}

TEST(LocalCodecTest, LimitsAreChecked) {
  LocalPutInline put;
  put.request = 1;
  put.bytes.resize(kLocalInlineBytes + 1);
  std::vector<std::byte> stream;
  ASSERT_TRUE(append_frame(LocalMessage(put), stream));
  FrameReader reader;
  EXPECT_EQ(decode_local_message(only_frame(reader, stream)).error().code(), Errc::kProtocol);
  stream.clear();
  ASSERT_TRUE(append_frame(LocalMessage(LocalGet{0, some_id(1), "", 1s, false}), stream));
  FrameReader other;
  EXPECT_EQ(decode_local_message(only_frame(other, stream)).error().code(), Errc::kProtocol);
}

TEST(LocalCodecTest, DamagedBuffersEndInAValueOrAnError) {
  std::vector<std::byte> stream;
  ASSERT_TRUE(append_frame(LocalMessage(LocalWait{5, {some_id(1), some_id(2)}, 2, 3s}), stream));
  ASSERT_TRUE(append_frame(LocalReply{1, fail(Error(Errc::kClosed, "x").with_fix("y"))}, stream));
  std::vector<std::byte> reduces;
  ASSERT_TRUE(append_frame(LocalMessage(some_reduce(3)), reduces));
  ASSERT_TRUE(append_frame(LocalReply{1, LocalReduced{1, 2, {3, 4}}}, reduces));
  std::vector<std::byte> collective;
  ASSERT_TRUE(append_frame(LocalMessage(some_collective()), collective));
  std::mt19937 random(5);
  for (int i = 0; i < 40'000; ++i) {
    std::vector<std::byte> damaged = i % 3 == 0 ? stream : i % 3 == 1 ? reduces : collective;
    damaged[random() % damaged.size()] = static_cast<std::byte>(random());
    damaged.resize(random() % damaged.size() + 1);
    const auto header = static_cast<std::ptrdiff_t>(std::min(kFrameHeaderBytes, damaged.size()));
    const std::vector<std::byte> body(damaged.begin() + header, damaged.end());  // aligned
    (void)decode_local_message(body);
    (void)decode_local_reply(body);
  }
}

TEST(FrameReaderTest, FramesComeWholeHoweverTheStreamIsCut) {
  std::vector<std::byte> stream;
  for (std::uint64_t i = 1; i <= 50; ++i) {
    LocalPutInline put{i, some_id(1), std::string(i, 'n'), pattern(i * 37), 1s};
    ASSERT_TRUE(append_frame(LocalMessage(put), stream));
  }
  std::mt19937 random(3);
  FrameReader reader;
  std::uint64_t seen = 0;
  for (std::size_t at = 0; at < stream.size();) {
    const std::size_t piece = std::min<std::size_t>(random() % 3000 + 1, stream.size() - at);
    const auto room = reader.prepare(piece);
    std::memcpy(room.data(), stream.data() + at, piece);
    reader.commit(piece);
    at += piece;
    for (auto frame = reader.next(); !frame->empty(); frame = reader.next()) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(frame->data()) % 8, 0U);
      const auto put = std::get<LocalPutInline>(decode_local_message(*frame).value());
      EXPECT_EQ(put.request, ++seen);
      EXPECT_EQ(put.bytes, pattern(put.request * 37));
    }
  }
  EXPECT_EQ(seen, 50U);
}

TEST(FrameReaderTest, LengthsOutOfRangeAreRefusedBeforeAnythingIsAllocated) {
  for (const std::uint32_t length : {0U, kMaxFrameBytes + 1, 0xFFFFFFFFU}) {
    FrameReader reader;
    const auto room = reader.prepare(4);
    std::memcpy(room.data(), &length, 4);
    reader.commit(4);
    EXPECT_EQ(reader.next().error().code(), Errc::kProtocol);
  }
}

}  // namespace
}  // namespace lochos
