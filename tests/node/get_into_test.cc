// get_into and registered memory on embedded nodes, over TCP on loopback: what a user of the Store
// sees. What happens in between is tested in virtual time (engine_test.cc).
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <thread>

#include "tests/node/cluster.h"

namespace lochos {
namespace {

using namespace std::chrono_literals;

constexpr std::byte kUntouched{0x5A};

class GetIntoSizesTest : public testing::TestWithParam<std::uint64_t> {};

TEST_P(GetIntoSizesTest, ArriveBitExactWithoutThePool) {
  Cluster cluster(2);
  const auto bytes = pattern(GetParam(), 1);
  ASSERT_OK(cluster.store(0).put("x", bytes));
  std::vector<std::byte> buffer(bytes.size() + 100, kUntouched);
  auto count = cluster.store(1).get_into("x", buffer, 10s);
  ASSERT_OK(count);
  EXPECT_EQ(*count, bytes.size());
  EXPECT_TRUE(same_bytes(std::span(buffer).first(bytes.size()), bytes));
  EXPECT_EQ(std::count(buffer.end() - 100, buffer.end(), kUntouched), 100);
  EXPECT_EQ(cluster.store(1).stats()->pool_used_bytes, 0U);
  EXPECT_EQ(cluster.store(1).stats()->objects, 0U);
  // Where it is already, it is copied.
  std::vector<std::byte> local(bytes.size());
  ASSERT_OK(cluster.store(0).get_into("x", local, 10s));
  EXPECT_TRUE(same_bytes(local, bytes));
}

INSTANTIATE_TEST_SUITE_P(Node, GetIntoSizesTest,
                         testing::Values(0, 1, 65536, 65537, 131071, 1000003, (4 << 20) + 1,
                                         20'000'003));

TEST(GetInto, NodeIsNoHolderAndTheNextGetFetches) {
  Cluster cluster(2);
  const auto bytes = pattern(1 << 20, 2);
  ASSERT_OK(cluster.store(0).put("x", bytes));
  std::vector<std::byte> buffer(bytes.size());
  ASSERT_OK(cluster.store(1).get_into("x", buffer, 10s));
  while (cluster.store(0).stat("x")->holder_count != 1)
    std::this_thread::yield();
  auto view = cluster.store(1).get("x", 10s);
  ASSERT_OK(view);
  EXPECT_TRUE(same_bytes(view->bytes(), bytes));
  while (cluster.store(0).stat("x")->holder_count != 2)
    std::this_thread::yield();
}

TEST(GetInto, TwoGetsAtOnce) {
  Cluster cluster(2);
  const auto bytes = pattern(8 << 20, 3);
  auto writer = cluster.store(0).create("x", bytes.size());
  ASSERT_OK(writer);
  std::vector<std::byte> buffer(bytes.size());
  auto into =
      std::async(std::launch::async, [&] { return cluster.store(1).get_into("x", buffer, 20s); });
  const std::ptrdiff_t half = 4 << 20;
  std::copy_n(bytes.begin(), half, writer->bytes().begin());
  writer->publish(half);
  while (cluster.store(1).stats()->bytes_received < half)
    std::this_thread::yield();
  EXPECT_EQ(cluster.store(1).stats()->pool_used_bytes, 0U);
  auto pending = cluster.store(1).get_async("x", 20s);
  std::copy(bytes.begin() + half, bytes.end(), writer->bytes().begin() + half);
  ASSERT_OK(writer->seal());
  auto count = into.get();
  ASSERT_OK(count);
  EXPECT_TRUE(same_bytes(buffer, bytes));
  auto view = pending.take();
  ASSERT_OK(view);
  EXPECT_TRUE(same_bytes(view->bytes(), bytes));
}

TEST(GetInto, AfterTheDeadlineTheBufferIsTheCallers) {
  Cluster cluster(2);
  const auto bytes = pattern(8 << 20, 4);
  auto writer = cluster.store(0).create("x", bytes.size());
  ASSERT_OK(writer);
  std::copy(bytes.begin(), bytes.end(), writer->bytes().begin());
  std::atomic<bool> stop = false;
  // The parent has more to send all the time.
  std::jthread producer([&] {
    for (std::uint64_t count = 1 << 20; count < bytes.size() && !stop; count += 64 << 10) {
      writer->publish(count);
      while (!stop && cluster.store(0).stats()->bytes_sent + (256 << 10) < count)
        std::this_thread::yield();
    }
  });
  std::vector<std::byte> buffer(bytes.size(), kUntouched);
  EXPECT_ERROR(cluster.store(1).get_into("x", buffer, 20ms), Errc::kTimedOut);
  const auto before = buffer;
  stop = true;
  producer.join();
  ASSERT_OK(writer->seal());
  ASSERT_OK(cluster.store(1).get("x", 20s));
  EXPECT_TRUE(same_bytes(buffer, before));
}

TEST(GetInto, GoesOnAtAnotherHolderWhenItsParentDies) {
  Cluster cluster(3);
  const auto bytes = pattern(8 << 20, 5);
  auto writer = cluster.store(0).create("x", bytes.size());
  ASSERT_OK(writer);
  const std::uint64_t half = bytes.size() / 2;
  std::copy(bytes.begin(), bytes.end(), writer->bytes().begin());
  writer->publish(half);
  auto relay = cluster.store(1).get_async("x", 20s);
  while (cluster.store(1).stats()->bytes_received < half)
    std::this_thread::yield();
  std::vector<std::byte> buffer(bytes.size());
  auto into =
      std::async(std::launch::async, [&] { return cluster.store(2).get_into("x", buffer, 20s); });
  while (cluster.store(2).stats()->bytes_received < half)
    std::this_thread::yield();
  EXPECT_EQ(cluster.store(1).stats()->bytes_sent, half);
  cluster.stop_node(1);
  ASSERT_OK(writer->seal());
  auto count = into.get();
  ASSERT_OK(count);
  EXPECT_TRUE(same_bytes(buffer, bytes));
  EXPECT_EQ(cluster.store(2).stats()->bytes_received, bytes.size());
}

TEST(GetInto, ErrorsReachTheCaller) {
  Cluster cluster(2);
  ASSERT_OK(cluster.store(0).put("x", pattern(1 << 20, 6)));
  std::vector<std::byte> buffer((1 << 20) - 1, kUntouched);
  EXPECT_ERROR(cluster.store(1).get_into("x", buffer, 10s), Errc::kInvalidArgument);
  EXPECT_EQ(static_cast<std::size_t>(std::count(buffer.begin(), buffer.end(), kUntouched)),
            buffer.size());
  const auto late = cluster.store(1).get_into("nothing", buffer, 50ms);
  EXPECT_ERROR(late, Errc::kTimedOut);
  EXPECT_EQ(late.error().operation(), "get");
  EXPECT_EQ(late.error().object(), "nothing");
}

TEST(GetInto, ANodeThatEndsFailsIt) {
  Cluster cluster(2);
  auto writer = cluster.store(0).create("x", 4 << 20);
  ASSERT_OK(writer);
  writer->publish(1 << 20);
  std::vector<std::byte> buffer(4 << 20);
  auto into =
      std::async(std::launch::async, [&] { return cluster.store(1).get_into("x", buffer, 20s); });
  while (cluster.store(1).stats()->bytes_received == 0)
    std::this_thread::yield();
  cluster.stop_node(1);
  EXPECT_ERROR(into.get(), Errc::kClosed);
}

TEST(RegisteredMemory, ServesPutsAndTakesGets) {
  Cluster cluster(2);
  std::vector<std::byte> source = pattern(3 << 20, 7);
  std::vector<std::byte> target(3 << 20);
  auto from = cluster.store(0).register_memory(source);
  ASSERT_OK(from);
  auto into = cluster.store(1).register_memory(target);
  ASSERT_OK(into);
  const auto part = std::span(source).subspan(1000, 2 << 20);
  ASSERT_OK(cluster.store(0).put_user_memory("x", part));
  const auto room = std::span(target).subspan(500, 2 << 20);
  ASSERT_OK(cluster.store(1).get_into("x", room, 10s));
  EXPECT_TRUE(same_bytes(room, part));
  // The object keeps what it is served from registered.
  { const auto gone = std::move(*from); }
  auto view = cluster.store(1).get("x", 10s);
  ASSERT_OK(view);
  EXPECT_TRUE(same_bytes(view->bytes(), part));
  ASSERT_OK(cluster.store(0).erase("x"));
  EXPECT_ERROR(cluster.store(0).register_memory({}), Errc::kInvalidArgument);
}

TEST(RegisteredMemory, AHandleOutlivesItsNode) {
  Cluster cluster(1);
  std::vector<std::byte> memory(1000);
  auto registered = cluster.store(0).register_memory(memory);
  ASSERT_OK(registered);
  const auto bytes = pattern(100'000, 1);
  // What is served from user memory, is erased, and is still read when the node ends.
  ASSERT_OK(cluster.store(0).put_user_memory("x", bytes));
  auto view = cluster.store(0).get("x", 10s);
  ASSERT_OK(view);
  cluster.stop_node(0);
  EXPECT_EQ(registered->bytes().data(), memory.data());
}

}  // namespace
}  // namespace lochos
