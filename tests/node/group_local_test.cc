// What a Group asks of its node, over both kinds of link: buffers, names, and what is refused
// before anything is sent.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "node/group.h"
#include "tests/node/test_node.h"

namespace lochos {
namespace {

using namespace std::chrono_literals;

class GroupLocalTest : public testing::TestWithParam<bool> {
 protected:
  Store store() { return GetParam() ? node_.embedded() : node_.connect(); }
  Group group(const Store& store, std::uint32_t rank = 0, std::uint32_t members = 1) {
    return Group::open(store, "g", rank, members).value();
  }
  std::uint64_t used(Store& store) { return store.stats()->pool_used_bytes; }
  bool comes_back_to(Store& store, std::uint64_t before) {
    return eventually([&] { return used(store) == before; });
  }

  SocketPath path_;
  TestNode node_{path_.str()};
};

INSTANTIATE_TEST_SUITE_P(Backends, GroupLocalTest, testing::Values(false, true),
                         [](const auto& kind) { return kind.param ? "Embedded" : "Socket"; });

template <class T>
Errc code_of(const Result<T>& result) {
  EXPECT_FALSE(result);
  return result ? Errc::kSystem : result.error().code();
}

TEST_P(GroupLocalTest, GroupsThatCannotBeAreRefused) {
  Store s = store();
  EXPECT_TRUE(Group::open(s, std::string(kMaxGroupNameBytes, 'g'), 0, 1));
  EXPECT_EQ(code_of(Group::open(s, std::string(kMaxGroupNameBytes + 1, 'g'), 0, 1)),
            Errc::kInvalidArgument);
  EXPECT_EQ(code_of(Group::open(s, "", 0, 1)), Errc::kInvalidArgument);
  EXPECT_EQ(code_of(Group::open(s, "g", 3, 3)), Errc::kInvalidArgument);
  EXPECT_EQ(code_of(Group::open(s, "g", 0, 0)), Errc::kInvalidArgument);
  EXPECT_EQ(code_of(Group::open(s, "g", 0, kMaxCollectiveMembers + 1)), Errc::kInvalidArgument);
}

TEST_P(GroupLocalTest, BuffersGoBackUnlessTheyAreUsed) {
  Store s = store();
  Group one = group(s);
  const std::uint64_t before = used(s);
  {
    auto buffer = one.buffer(1 << 20);
    ASSERT_TRUE(buffer) << buffer.error().to_string();
    EXPECT_EQ(buffer->size(), std::uint64_t{1} << 20);
    std::fill(buffer->bytes().begin(), buffer->bytes().end(), std::byte{7});
    EXPECT_GT(used(s), before);
    GroupBuffer moved = std::move(*buffer);
    EXPECT_EQ(moved.size(), std::uint64_t{1} << 20);
    EXPECT_EQ(buffer->size(), 0U);  // NOLINT(bugprone-use-after-move): promised
    EXPECT_GT(used(s), before);
    moved = one.buffer(1 << 10).value();
    EXPECT_EQ(moved.size(), 1U << 10);
  }
  EXPECT_TRUE(comes_back_to(s, before));
  EXPECT_EQ(one.buffer(0)->size(), 0U);
  EXPECT_EQ(code_of(one.buffer(std::uint64_t{1} << 40)), Errc::kNoSpace);
}

TEST_P(GroupLocalTest, ResultsAreHeldByTheirViews) {
  Store s = store();
  Group one = group(s);
  const std::uint64_t before = used(s);
  {
    auto buffer = one.buffer(1000);
    ASSERT_TRUE(buffer);
    std::fill(buffer->bytes().begin(), buffer->bytes().end(), std::byte{7});
    auto view = one.allreduce(std::move(*buffer), ReduceOp::kSum, DataType::kU8);
    ASSERT_TRUE(view) << view.error().to_string();
    EXPECT_EQ(view->size(), 1000U);
    EXPECT_TRUE(std::all_of(view->bytes().begin(), view->bytes().end(),
                            [](std::byte byte) { return byte == std::byte{7}; }));
    EXPECT_GT(used(s), before);
  }
  EXPECT_TRUE(comes_back_to(s, before));
}

// Every member calls once; a handle counts its calls.
TEST_P(GroupLocalTest, CallsOfOneNumberMeet) {
  Store s = store();
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      Group member = group(s, rank, 3);
      for (unsigned call = 0; call < 5; ++call) {
        const std::vector<std::byte> mine(10, std::byte{static_cast<unsigned char>(rank + call)});
        std::vector<std::byte> all(30);
        const Status done = member.allgather(mine, all);
        ASSERT_TRUE(done) << done.error().to_string();
        for (unsigned i = 0; i < 30; ++i)
          EXPECT_EQ(all[i], std::byte{static_cast<unsigned char>(i / 10 + call)});
        EXPECT_TRUE(member.barrier());
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
}

TEST_P(GroupLocalTest, WhatCannotBeIsRefusedAndDoesNotCount) {
  Store s = store();
  Group one = group(s, 0, 2);
  std::uint64_t messages = 0;
  node_.run([&](FakeEngine& engine) { messages = engine.messages(); });
  std::vector<std::byte> twelve(12);
  std::vector<std::byte> eight(8);
  const auto refused = [](const Status& status) {
    EXPECT_EQ(code_of(status), Errc::kInvalidArgument);
  };
  using enum ReduceOp;
  refused(one.allreduce(twelve, eight, kSum, DataType::kF32));
  refused(one.allreduce(twelve, twelve, kSum, DataType::kF64));
  refused(one.allreduce(twelve, twelve, kBitXor, DataType::kF32));
  refused(one.allreduce(twelve, twelve, static_cast<ReduceOp>(99), DataType::kF32));
  refused(one.reduce_scatter(twelve, eight, kSum, DataType::kF32));  // 4 and 8 bytes
  refused(one.allgather(twelve, twelve));
  refused(one.gather(0, twelve, twelve));
  refused(one.gather(2, twelve, twelve));
  refused(one.scatter(0, twelve, twelve));
  refused(one.scatter(7, twelve, eight));
  refused(one.all_to_all(twelve, eight));
  std::vector<std::byte> odd(3);
  refused(one.all_to_all(odd, odd));
  refused(one.broadcast(2, twelve));
  EXPECT_EQ(code_of(one.broadcast(0, 12)), Errc::kInvalidArgument);  // the root gives nothing
  EXPECT_EQ(code_of(one.scatter(0, 3)), Errc::kInvalidArgument);
  std::uint64_t now = 0;
  node_.run([&](FakeEngine& engine) { now = engine.messages(); });
  EXPECT_EQ(now, messages);

  auto buffer = one.buffer(12);
  ASSERT_TRUE(buffer);
  const auto wrong = one.broadcast(1, 12, std::move(*buffer));  // it is not the root
  EXPECT_EQ(code_of(wrong), Errc::kInvalidArgument);
  EXPECT_EQ(wrong.error().operation(), "broadcast");
  EXPECT_EQ(wrong.error().object(), "g/0");
  EXPECT_TRUE(eventually([&] {
    std::size_t writers = 0;
    node_.run([&](FakeEngine& engine) { writers = engine.writers(); });
    return writers == 0;
  }));
}

TEST_P(GroupLocalTest, BuffersOfAnotherStoreAreRefused) {
  Store s = store();
  Store other = store();
  Group one = group(s);
  auto buffer = group(other).buffer(8);
  ASSERT_TRUE(buffer);
  EXPECT_EQ(code_of(one.allgather(std::move(*buffer))), Errc::kInvalidArgument);
}

TEST_P(GroupLocalTest, ACallThatIsLateEndsAndGivesItsInputBack) {
  Store s = store();
  Group one = group(s, 0, 2);
  const std::uint64_t before = used(s);
  const std::vector<std::byte> in(1 << 20);
  std::vector<std::byte> out(2 << 20);
  const Status late = one.allgather(in, out, 20ms);
  EXPECT_EQ(code_of(late), Errc::kTimedOut);
  EXPECT_EQ(late.error().object(), "g/0");
  EXPECT_EQ(one.barrier(20ms).error().object(), "g/1");  // the call counted
  EXPECT_TRUE(comes_back_to(s, before));
}

TEST_P(GroupLocalTest, TheNodeMayEnd) {
  Store s = store();
  Group one = group(s, 0, 2);
  auto buffer = one.buffer(100);
  ASSERT_TRUE(buffer);
  node_.stop();
  const auto result = one.allgather(std::move(*buffer), 1s);
  EXPECT_EQ(code_of(result), GetParam() ? Errc::kClosed : Errc::kConnectionLost);
  EXPECT_FALSE(one.buffer(100, 1s));
}

}  // namespace
}  // namespace lochos
