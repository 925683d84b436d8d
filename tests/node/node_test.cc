// Whole nodes in one process, over TCP on loopback: what a user of the Store sees.
#include "node/node.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "tests/node/cluster.h"

namespace lochos {
namespace {

using namespace std::chrono_literals;

class SizesTest : public testing::TestWithParam<std::uint64_t> {};

TEST_P(SizesTest, ArriveBitExact) {
  Cluster cluster(2);
  const auto bytes = pattern(GetParam(), 1);
  ASSERT_OK(cluster.store(0).put("x", bytes));
  auto local = cluster.store(0).get("x");
  ASSERT_OK(local);
  EXPECT_TRUE(same_bytes(local->bytes(), bytes));
  auto remote = cluster.store(1).get("x", 10s);
  ASSERT_OK(remote);
  EXPECT_TRUE(same_bytes(remote->bytes(), bytes));
}

INSTANTIATE_TEST_SUITE_P(Node, SizesTest,
                         testing::Values(0, 1, 100, 65535, 65536, 65537, 131071, 131072, 131073,
                                         1000003, (4 << 20) - 1, 4 << 20, (4 << 20) + 1,
                                         20'000'003));

TEST(Node, GetBeforePutWaits) {
  Cluster cluster(2);
  for (const std::uint64_t size : {1000ULL, 1000000ULL}) {
    const std::string name = "later" + std::to_string(size);
    auto pending = cluster.store(1).get_async(name, 10s);
    EXPECT_FALSE(pending.ready());
    const auto bytes = pattern(size, size);
    ASSERT_OK(cluster.store(0).put(name, bytes));
    auto view = pending.take();
    ASSERT_OK(view);
    EXPECT_TRUE(same_bytes(view->bytes(), bytes));
  }
}

TEST(Node, GetBeforePutOnTheSameNode) {
  Cluster cluster(1);
  for (const std::uint64_t size : {1000ULL, 1000000ULL}) {
    const std::string name = "own" + std::to_string(size);
    auto pending = cluster.store(0).get_async(name, 10s);
    const auto bytes = pattern(size, size);
    ASSERT_OK(cluster.store(0).put(name, bytes));
    auto view = pending.take();
    ASSERT_OK(view);
    EXPECT_TRUE(same_bytes(view->bytes(), bytes));
  }
}

TEST(Node, GetTimesOut) {
  Cluster cluster(1);
  const auto started = std::chrono::steady_clock::now();
  auto view = cluster.store(0).get("nothing", 100ms);
  EXPECT_ERROR(view, Errc::kTimedOut);
  EXPECT_EQ(view.error().object(), "nothing");
  EXPECT_EQ(view.error().operation(), "get");
  EXPECT_LT(std::chrono::steady_clock::now() - started, 1100ms);
}

TEST(Node, ReadersFollowAWriterThatIsStillFilling) {
  Cluster cluster(2);
  const auto bytes = pattern(4 << 20, 3);
  auto writer = cluster.store(0).create("stream", bytes.size());
  ASSERT_OK(writer);
  auto pending = cluster.store(1).get_async("stream", 20s);
  const std::uint64_t half = bytes.size() / 2;
  std::copy_n(bytes.begin(), half, writer->bytes().begin());
  writer->publish(half);
  // The first half moves while the second is not there yet.
  while (cluster.store(1).stats()->bytes_received < half)
    std::this_thread::yield();
  EXPECT_FALSE(pending.ready());
  std::copy(bytes.begin() + static_cast<std::ptrdiff_t>(half), bytes.end(),
            writer->bytes().begin() + static_cast<std::ptrdiff_t>(half));
  ASSERT_OK(writer->seal());
  auto view = pending.take();
  ASSERT_OK(view);
  EXPECT_TRUE(same_bytes(view->bytes(), bytes));
}

TEST(Node, BroadcastReachesAllAndTheSourceSendsOnce) {
  constexpr std::size_t kReceivers = 4;
  Cluster cluster(kReceivers + 1);
  const auto bytes = pattern(8 << 20, 5);
  auto writer = cluster.store(0).create("b", bytes.size());
  ASSERT_OK(writer);
  std::vector<Pending<ObjectView>> pending;
  for (std::size_t i = 1; i <= kReceivers; ++i) {
    pending.push_back(cluster.store(i).get_async("b", 20s));
    // All receivers are in the tree before the first byte is there: nobody can find a complete
    // copy.
    while (cluster.store(0).stat("b")->holder_count < i + 1)
      std::this_thread::yield();
  }
  std::copy(bytes.begin(), bytes.end(), writer->bytes().begin());
  ASSERT_OK(writer->seal());
  for (auto& get : pending) {
    auto view = get.take();
    ASSERT_OK(view);
    EXPECT_TRUE(same_bytes(view->bytes(), bytes));
  }
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  for (std::size_t i = 0; i <= kReceivers; ++i) {
    received += cluster.store(i).stats()->bytes_received;
    sent = std::max(sent, cluster.store(i).stats()->bytes_sent);
  }
  EXPECT_EQ(received, kReceivers * bytes.size());
  EXPECT_EQ(sent, bytes.size());
}

TEST(Node, PutTwiceHasOneWinner) {
  Cluster cluster(2);
  for (const std::uint64_t size : {100ULL, 200000ULL}) {
    const std::string name = "once" + std::to_string(size);
    const auto first = pattern(size, 1);
    const auto second = pattern(size, 2);
    ASSERT_OK(cluster.store(0).put(name, first));
    EXPECT_ERROR(cluster.store(0).put(name, second), Errc::kAlreadyExists);
    EXPECT_ERROR(cluster.store(1).put(name, second), Errc::kAlreadyExists);
    auto view = cluster.store(1).get(name, 10s);
    ASSERT_OK(view);
    EXPECT_TRUE(same_bytes(view->bytes(), first));
  }
}

TEST(Node, SimultaneousPutsHaveOneWinnerAndAllReadItsBytes) {
  Cluster cluster(4);
  for (int round = 0; round < 10; ++round) {
    const std::string name = "race" + std::to_string(round);
    const std::uint64_t size = round % 2 == 0 ? 500 : 300000;
    std::vector<int> won(4, 0);
    {
      std::vector<std::jthread> threads;
      for (std::size_t i = 0; i < 4; ++i) {
        threads.emplace_back([&, i] {
          const Status status = cluster.store(i).put(name, pattern(size, i));
          won[i] = status.has_value() ? 1 : 0;
          if (!status) {
            EXPECT_EQ(status.error().code(), Errc::kAlreadyExists) << status.error().to_string();
          }
        });
      }
    }
    ASSERT_EQ(std::count(won.begin(), won.end(), 1), 1);
    const auto winner =
        static_cast<std::uint64_t>(std::find(won.begin(), won.end(), 1) - won.begin());
    for (std::size_t i = 0; i < 4; ++i) {
      auto view = cluster.store(i).get(name, 10s);
      ASSERT_OK(view);
      EXPECT_TRUE(same_bytes(view->bytes(), pattern(size, winner)));
    }
  }
}

TEST(Node, EraseReachesEveryCopyAndTheIdIsFree) {
  Cluster cluster(3);
  for (const std::uint64_t size : {100ULL, 300000ULL}) {
    const std::string name = "gone" + std::to_string(size);
    ASSERT_OK(cluster.store(0).put(name, pattern(size, 1)));
    for (std::size_t i = 0; i < 3; ++i)
      ASSERT_OK(cluster.store(i).get(name, 10s));
    auto kept = cluster.store(1).get(name, 10s);
    ASSERT_OK(kept);
    ASSERT_OK(cluster.store(2).erase(name));
    EXPECT_ERROR(cluster.store(2).erase(name), Errc::kNotFound);
    EXPECT_ERROR(cluster.store(0).stat(name), Errc::kNotFound);
    // A view outlives the object.
    EXPECT_TRUE(same_bytes(kept->bytes(), pattern(size, 1)));
    ASSERT_OK(cluster.store(1).put(name, pattern(size, 2)));
    for (std::size_t i = 0; i < 3; ++i) {
      auto view = cluster.store(i).get(name, 10s);
      ASSERT_OK(view);
      EXPECT_TRUE(same_bytes(view->bytes(), pattern(size, 2)));
      EXPECT_GT(view->generation(), kept->generation());
    }
  }
}

TEST(Node, EraseDuringAGetEndsItDeleted) {
  Cluster cluster(2);
  auto writer = cluster.store(0).create("slow", 4 << 20);
  ASSERT_OK(writer);
  auto pending = cluster.store(1).get_async("slow", 20s);
  writer->publish(1 << 20);
  while (cluster.store(1).stats()->bytes_received == 0)
    std::this_thread::yield();
  ASSERT_OK(cluster.store(1).erase("slow"));
  EXPECT_ERROR(pending.take(), Errc::kDeleted);
  // The producer's node hears of it from the directory, a moment later.
  while (cluster.store(0).stats()->objects > 0)
    std::this_thread::yield();
  EXPECT_ERROR(writer->seal(), Errc::kDeleted);
}

TEST(Node, AbandonedObjectFailsItsReadersAndFreesTheId) {
  Cluster cluster(2);
  for (const std::uint64_t size : {1ULL << 20, 100ULL}) {
    std::optional<ObjectWriter> writer;
    auto created = cluster.store(0).create("draft", size);
    ASSERT_OK(created);
    writer.emplace(std::move(*created));
    auto pending = cluster.store(1).get_async("draft", size > 65536 ? 20s : 100ms);
    if (size > 65536) {
      while (cluster.store(0).stat("draft")->holder_count < 2)
        std::this_thread::yield();
    }
    writer.reset();
    EXPECT_ERROR(pending.take(), size > 65536 ? Errc::kAborted : Errc::kTimedOut);
    ASSERT_OK(cluster.store(1).put("draft", pattern(10, 1)));
    ASSERT_OK(cluster.store(0).erase("draft"));
    while (cluster.store(1).stats()->objects > 0)
      std::this_thread::yield();
  }
}

TEST(Node, TwoGetsAtOnceShareOneTransfer) {
  Cluster cluster(2);
  const auto bytes = pattern(8 << 20, 4);
  ASSERT_OK(cluster.store(0).put("shared", bytes));
  auto first = cluster.store(1).get_async("shared", 20s);
  auto second = cluster.store(1).get_async("shared", 20s);
  auto a = first.take();
  auto b = second.take();
  ASSERT_OK(a);
  ASSERT_OK(b);
  EXPECT_EQ(a->bytes().data(), b->bytes().data());
  EXPECT_TRUE(same_bytes(a->bytes(), bytes));
  EXPECT_EQ(cluster.store(1).stats()->edges_started, 1U);
}

TEST(Node, FourNodesFourObjectsAllAtOnce) {
  Cluster cluster(4);
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      ASSERT_OK(cluster.store(i).put("o" + std::to_string(i), pattern(3 << 20, i)));
      std::vector<Pending<ObjectView>> pending;
      for (std::size_t j = 0; j < 4; ++j)
        pending.push_back(cluster.store(i).get_async("o" + std::to_string(j), 30s));
      for (std::size_t j = 0; j < 4; ++j) {
        auto view = pending[j].take();
        ASSERT_OK(view);
        EXPECT_TRUE(same_bytes(view->bytes(), pattern(3 << 20, j)));
      }
    });
  }
}

TEST(Node, WaitReturnsThePositionsThatExist) {
  Cluster cluster(2);
  ASSERT_OK(cluster.store(0).put("w1", pattern(10, 1)));
  const std::vector<Store::Key> keys = {"w0", "w1", "w2"};
  auto one = cluster.store(1).wait(keys, 1, 10s);
  ASSERT_OK(one);
  EXPECT_EQ(*one, std::vector<std::size_t>{1});
  auto pending = cluster.store(1).wait_async(keys, 2, 10s);
  EXPECT_FALSE(pending.ready());
  ASSERT_OK(cluster.store(0).put("w2", pattern(100000, 1)));
  auto two = pending.take();
  ASSERT_OK(two);
  EXPECT_EQ(*two, (std::vector<std::size_t>{1, 2}));
  EXPECT_ERROR(cluster.store(1).wait(keys, 3, 50ms), Errc::kTimedOut);
  EXPECT_ERROR(cluster.store(1).wait(keys, 4, 50ms), Errc::kInvalidArgument);
  EXPECT_ERROR(cluster.store(1).wait(keys, 0, 50ms), Errc::kInvalidArgument);
}

TEST(Node, PoolFullIsTypedAndFetchedCopiesMakeRoom) {
  Cluster cluster(2, 16ULL << 20);
  EXPECT_ERROR(cluster.store(0).put("huge", pattern(17 << 20, 1)), Errc::kNoSpace);
  for (int i = 0; i < 3; ++i)
    ASSERT_OK(cluster.store(0).put("k" + std::to_string(i), pattern(5 << 20, 1)));
  // Puts are kept: there is no room for a fourth.
  EXPECT_ERROR(cluster.store(0).put("k3", pattern(5 << 20, 1)), Errc::kNoSpace);
  // Fetched copies go when room is needed, pinned ones do not.
  {
    auto pinned = cluster.store(1).get("k0", 10s);
    ASSERT_OK(pinned);
    ASSERT_OK(cluster.store(1).get("k1", 10s));
    ASSERT_OK(cluster.store(1).get("k2", 10s));
    ASSERT_OK(cluster.store(1).put("mine", pattern(6 << 20, 7)));
    EXPECT_TRUE(same_bytes(pinned->bytes(), pattern(5 << 20, 1)));
    EXPECT_GE(cluster.store(1).stats()->evictions, 1U);
    EXPECT_ERROR(cluster.store(1).put("more", pattern(6 << 20, 7)), Errc::kNoSpace);
  }
  auto again = cluster.store(1).get("k1", 10s);
  ASSERT_OK(again);
  EXPECT_TRUE(same_bytes(again->bytes(), pattern(5 << 20, 1)));
}

TEST(Node, UserMemoryIsServedFromWhereItIs) {
  Cluster cluster(2);
  for (const std::uint64_t size : {1000ULL, 5ULL << 20}) {
    const std::string name = "mine" + std::to_string(size);
    auto bytes = pattern(size, 9);
    ASSERT_OK(cluster.store(0).put_user_memory(name, bytes));
    auto local = cluster.store(0).get(name);
    ASSERT_OK(local);
    EXPECT_EQ(local->bytes().data(), bytes.data());
    auto remote = cluster.store(1).get(name, 10s);
    ASSERT_OK(remote);
    EXPECT_TRUE(same_bytes(remote->bytes(), bytes));
    *local = ObjectView();
    ASSERT_OK(cluster.store(0).erase(name));
    std::fill(bytes.begin(), bytes.end(), std::byte{0});
    EXPECT_TRUE(same_bytes(remote->bytes(), pattern(size, 9)));
  }
}

TEST(Node, SourceGoneBeforeAnyCopyIsCompleteLosesTheObject) {
  Cluster cluster(3);
  auto writer = cluster.store(0).create("half", 8 << 20);
  ASSERT_OK(writer);
  auto a = cluster.store(1).get_async("half", 20s);
  auto b = cluster.store(2).get_async("half", 20s);
  writer->publish(4 << 20);
  while (cluster.store(2).stats()->bytes_received + cluster.store(1).stats()->bytes_received <
         (4 << 20)) {
    std::this_thread::yield();
  }
  cluster.stop_node(0);
  EXPECT_ERROR(a.take(), Errc::kObjectLost);
  EXPECT_ERROR(b.take(), Errc::kObjectLost);
  // A new put works, and is read.
  ASSERT_OK(cluster.store(1).put("half", pattern(8 << 20, 2)));
  auto view = cluster.store(2).get("half", 10s);
  ASSERT_OK(view);
  EXPECT_TRUE(same_bytes(view->bytes(), pattern(8 << 20, 2)));
}

TEST(Node, ReceiverGoneInTheMiddleLeavesTheOthersWhole) {
  Cluster cluster(5);
  const auto bytes = pattern(8 << 20, 6);
  auto writer = cluster.store(0).create("b", bytes.size());
  ASSERT_OK(writer);
  std::vector<Pending<ObjectView>> pending;
  for (std::size_t i = 1; i < 5; ++i) {
    pending.push_back(cluster.store(i).get_async("b", 30s));
    while (cluster.store(0).stat("b")->holder_count < i + 1)
      std::this_thread::yield();
  }
  const std::uint64_t half = bytes.size() / 2;
  std::copy_n(bytes.begin(), half, writer->bytes().begin());
  writer->publish(half);
  while (cluster.store(4).stats()->bytes_received < half)
    std::this_thread::yield();
  cluster.stop_node(2);  // an inner node of the chain
  std::copy(bytes.begin() + static_cast<std::ptrdiff_t>(half), bytes.end(),
            writer->bytes().begin() + static_cast<std::ptrdiff_t>(half));
  ASSERT_OK(writer->seal());
  for (const std::size_t i : {0U, 2U, 3U}) {
    auto view = pending[i].take();
    ASSERT_OK(view);
    EXPECT_TRUE(same_bytes(view->bytes(), bytes));
  }
  // Its child went on from its first missing chunk.
  EXPECT_EQ(cluster.store(3).stats()->bytes_received, bytes.size());
}

TEST(Node, DirectoryRestartLosesNothingThatAHolderHas) {
  Cluster cluster(2);
  const auto large = pattern(1 << 20, 1);
  const auto small = pattern(100, 2);
  ASSERT_OK(cluster.store(0).put("large", large));
  ASSERT_OK(cluster.store(0).put("small", small));
  const std::uint16_t port = cluster.directory_port();
  cluster.stop_directory();
  auto pending = cluster.store(1).get_async("large", 20s);
  cluster.restart_directory(port);
  auto view = pending.take();
  ASSERT_OK(view);
  EXPECT_TRUE(same_bytes(view->bytes(), large));
  auto other = cluster.store(1).get("small", 20s);
  ASSERT_OK(other);
  EXPECT_TRUE(same_bytes(other->bytes(), small));
}

TEST(Node, StoreOfAnEndedNodeIsClosed) {
  Cluster cluster(1);
  auto pending = cluster.store(0).get_async("never", 20s);
  cluster.stop_node(0);
  EXPECT_ERROR(pending.take(), Errc::kClosed);
  EXPECT_ERROR(cluster.store(0).get("never", 1s), Errc::kClosed);
}

TEST(Node, MemoryIsBackAfterManySmallObjects) {
  Cluster cluster(2);
  const NodeStats before = *cluster.store(0).stats();
  constexpr int kObjects = 2000;
  for (int i = 0; i < kObjects; ++i)
    ASSERT_OK(cluster.store(0).put("s" + std::to_string(i), pattern(100, 1)));
  for (int i = 0; i < kObjects; ++i)
    ASSERT_OK(cluster.store(1).get("s" + std::to_string(i), 10s));
  for (int i = 0; i < kObjects; ++i)
    ASSERT_OK(cluster.store(0).erase("s" + std::to_string(i)));
  while (cluster.store(1).stats()->objects > 0)
    std::this_thread::yield();
  EXPECT_EQ(cluster.store(0).stats()->pool_used_bytes, before.pool_used_bytes);
  EXPECT_EQ(cluster.store(1).stats()->pool_used_bytes, before.pool_used_bytes);
  EXPECT_TRUE(cluster.store(0).list()->empty());
}

TEST(Node, BarrierReleasesAllAtOnce) {
  Cluster cluster(3);
  for (int round = 0; round < 5; ++round) {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < 3; ++i) {
      threads.emplace_back([&, i] { ASSERT_OK(cluster.store(i).barrier("b", 3, 10s)); });
    }
  }
  EXPECT_ERROR(cluster.store(0).barrier("alone", 2, 50ms), Errc::kTimedOut);
}

}  // namespace
}  // namespace lochos
