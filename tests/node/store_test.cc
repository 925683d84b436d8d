// The public API over both kinds of node: behind a socket, and in this process.
#include "node/store.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "node/local_messages.h"
#include "tests/node/test_node.h"

namespace lochos {
namespace {

using namespace std::chrono_literals;

class StoreTest : public testing::TestWithParam<bool> {
 protected:
  bool embedded() const { return GetParam(); }
  Store store() { return embedded() ? node_.embedded() : node_.connect(); }
  NodeStats stats(Store& store) { return store.stats().value(); }

  SocketPath path_;
  TestNode node_{path_.str()};
};

INSTANTIATE_TEST_SUITE_P(Backends, StoreTest, testing::Values(false, true),
                         [](const auto& kind) { return kind.param ? "Embedded" : "Socket"; });

bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

bool readable(int fd, int timeout_ms) {
  pollfd entry{fd, POLLIN, 0};
  return ::poll(&entry, 1, timeout_ms) == 1;
}

TEST_P(StoreTest, PutsAndGetsEverySize) {
  Store s = store();
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, std::size_t{1024}, std::size_t{kLocalInlineBytes},
        std::size_t{kLocalInlineBytes + 1}, std::size_t{3'000'017}}) {
    const std::string name = "object" + std::to_string(size);
    const auto bytes = pattern(size);
    auto put = s.put(name, bytes);
    ASSERT_TRUE(put) << put.error().to_string();
    auto view = s.get(name);
    ASSERT_TRUE(view) << view.error().to_string();
    EXPECT_TRUE(same(view->bytes(), bytes)) << size;
    EXPECT_GT(view->generation(), 0U);
    std::vector<std::byte> buffer(size + 10, std::byte{0x55});
    auto count = s.get_into(name, buffer);
    ASSERT_TRUE(count) << count.error().to_string();
    EXPECT_EQ(*count, size);
    EXPECT_TRUE(same(std::span(buffer).first(size), bytes));
    EXPECT_EQ(buffer[size], std::byte{0x55});
  }
}

TEST_P(StoreTest, KeysById) {
  Store s = store();
  ObjectId id;
  id.bytes.fill(0xA7);
  ASSERT_TRUE(s.put(id, pattern(10)));
  EXPECT_TRUE(same(s.get(id)->bytes(), pattern(10)));
  const auto again = s.put(id, pattern(10));
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().object(), id.to_hex());
}

TEST_P(StoreTest, BadNamesAreRefusedWithTheLimits) {
  Store s = store();
  for (const std::string& name : {std::string(), std::string(4096, 'x'), std::string("a\0b", 3)}) {
    const auto put = s.put(name, {});
    ASSERT_FALSE(put);
    EXPECT_EQ(put.error().code(), Errc::kInvalidArgument);
    EXPECT_NE(put.error().message().find("1024"), std::string::npos);
    EXPECT_EQ(s.get(name).error().code(), Errc::kInvalidArgument);
    EXPECT_EQ(s.get_async(name).take().error().code(), Errc::kInvalidArgument);
    EXPECT_EQ(s.erase(name).error().code(), Errc::kInvalidArgument);
  }
}

TEST_P(StoreTest, ErrorsNameOperationAndObject) {
  Store s = store();
  ASSERT_TRUE(s.put("taken", pattern(5)));
  for (const std::size_t size : {std::size_t{5}, std::size_t{200'000}}) {
    const auto put = s.put("taken", pattern(size));
    ASSERT_FALSE(put);
    EXPECT_EQ(put.error().code(), Errc::kAlreadyExists);
    EXPECT_EQ(put.error().operation(), "put");
    EXPECT_EQ(put.error().object(), "taken");
  }
  const auto erase = s.erase("absent");
  EXPECT_EQ(erase.error().code(), Errc::kNotFound);
  EXPECT_EQ(erase.error().operation(), "erase");
  const auto get = s.get("absent", 20ms);
  EXPECT_EQ(get.error().code(), Errc::kTimedOut);
  EXPECT_EQ(get.error().object(), "absent");
  EXPECT_EQ(s.stat("absent").error().code(), Errc::kNotFound);
  EXPECT_EQ(s.create("huge", 1ULL << 40).error().code(), Errc::kNoSpace);
}

TEST_P(StoreTest, GetWaitsForThePut) {
  Store s = store();
  std::thread producer([&] {
    EXPECT_TRUE(eventually([&] {
      std::size_t waiting = 0;
      node_.run([&](FakeEngine& engine) { waiting = engine.waiting(); });
      return waiting == 1;
    }));
    EXPECT_TRUE(s.put("late", pattern(100)));
  });
  const auto view = s.get("late", 10s);
  producer.join();
  ASSERT_TRUE(view) << view.error().to_string();
  EXPECT_TRUE(same(view->bytes(), pattern(100)));
}

TEST_P(StoreTest, ViewsPinUntilTheLastCopyGoes) {
  Store s = store();
  ASSERT_TRUE(s.put("pinned", pattern(100'000)));
  const std::uint64_t used = stats(s).pool_used_bytes;
  {
    const ObjectView first = s.get("pinned").value();
    ObjectView copy = first;
    EXPECT_EQ(stats(s).pinned, 1U);
    ASSERT_TRUE(s.erase("pinned"));
    EXPECT_TRUE(same(copy.bytes(), pattern(100'000)));
    EXPECT_EQ(stats(s).pool_used_bytes, used);
    copy = ObjectView();
    EXPECT_EQ(stats(s).pinned, 1U);
  }
  EXPECT_EQ(stats(s).pinned, 0U);
  EXPECT_EQ(stats(s).pool_used_bytes, 0U);
}

TEST_P(StoreTest, CreateFillsInPlace) {
  Store s = store();
  const auto bytes = pattern(1'000'000);
  auto writer = s.create("made", bytes.size());
  ASSERT_TRUE(writer) << writer.error().to_string();
  std::copy(bytes.begin(), bytes.end(), writer->bytes().begin());
  writer->publish(500'000);
  writer->publish(400'000);  // never decreases
  EXPECT_EQ(s.get("made", 10ms).error().code(), Errc::kTimedOut);
  ASSERT_TRUE(writer->seal());
  EXPECT_EQ(writer->seal().error().code(), Errc::kClosed);
  EXPECT_TRUE(same(s.get("made")->bytes(), bytes));
}

TEST_P(StoreTest, AnAbandonedWriterFreesIdAndReaders) {
  Store s = store();
  auto reader = s.get_async("given up", 10s);
  { auto writer = s.create("given up", 100'000).value(); }
  const auto got = reader.take();
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code(), Errc::kAborted);
  EXPECT_EQ(stats(s).pool_used_bytes, 0U);
  EXPECT_TRUE(s.put("given up", pattern(3)));
}

TEST_P(StoreTest, PublishIsCheapInSmallSteps) {
  Store s = store();
  constexpr std::uint64_t kSize = 8 << 20;
  auto writer = s.create("steps", kSize).value();
  const Instant start = std::chrono::steady_clock::now();
  for (std::uint64_t done = 0; done <= kSize; done += 1024)
    writer.publish(done);
  const auto elapsed = std::chrono::steady_clock::now() - start;
  ASSERT_TRUE(writer.seal());
  std::uint64_t publishes = 0;
  node_.run([&](FakeEngine& engine) { publishes = engine.publishes(); });
  EXPECT_GE(publishes, 1U);
  EXPECT_LE(publishes, kSize / (64 * 1024) + static_cast<std::uint64_t>(elapsed / 1ms) + 1);
}

TEST_P(StoreTest, GetIntoFollowsTheProducer) {
  Store s = store();
  const auto bytes = pattern(2 << 20);
  auto writer = s.create("streamed", bytes.size()).value();
  std::vector<std::byte> buffer(bytes.size());
  std::thread reader([&] {
    const auto count = s.get_into("streamed", buffer, 10s);
    EXPECT_TRUE(count) << count.error().to_string();
  });
  std::copy(bytes.begin(), bytes.end(), writer.bytes().begin());
  writer.publish(1 << 20);
  // The reader has heard of the first half once it holds a pin.
  EXPECT_TRUE(eventually([&] { return stats(s).pinned == 1; }));
  ASSERT_TRUE(writer.seal());
  reader.join();
  EXPECT_TRUE(same(buffer, bytes));
  EXPECT_EQ(stats(s).pinned, 0U);
}

TEST_P(StoreTest, AFailedGetIntoReleasesItsPin) {
  Store s = store();
  std::vector<std::byte> buffer(1 << 20);
  auto writer = std::make_unique<ObjectWriter>(s.create("aborted", buffer.size()).value());
  std::thread reader(
      [&] { EXPECT_EQ(s.get_into("aborted", buffer, 10s).error().code(), Errc::kAborted); });
  writer->publish(512 * 1024);
  EXPECT_TRUE(eventually([&] { return stats(s).pinned == 1; }));
  writer.reset();
  reader.join();
  EXPECT_EQ(stats(s).pinned, 0U);
  EXPECT_EQ(stats(s).pool_used_bytes, 0U);
}

TEST_P(StoreTest, ABufferThatIsTooSmallStaysUntouched) {
  Store s = store();
  ASSERT_TRUE(s.put("large", pattern(1000)));
  std::vector<std::byte> buffer(999, std::byte{0x33});
  const auto count = s.get_into("large", buffer);
  ASSERT_FALSE(count);
  EXPECT_EQ(count.error().code(), Errc::kInvalidArgument);
  EXPECT_NE(count.error().message().find("1000"), std::string::npos);
  EXPECT_TRUE(
      std::all_of(buffer.begin(), buffer.end(), [](std::byte b) { return b == std::byte{0x33}; }));
  auto writer = s.create("growing", 200'000).value();
  std::thread reader([&] {
    EXPECT_EQ(s.get_into("growing", buffer, 10s).error().code(), Errc::kInvalidArgument);
  });
  writer.publish(100'000);
  reader.join();
  EXPECT_EQ(buffer[0], std::byte{0x33});
  EXPECT_EQ(stats(s).pinned, 0U);
}

TEST_P(StoreTest, PendingGetsAreReadyThroughTheirDescriptor) {
  Store s = store();
  auto pending = s.get_async("soon", 10s);
  EXPECT_FALSE(pending.ready());
  const int fd = pending.event_fd().value();
  EXPECT_EQ(pending.event_fd().value(), fd);
  EXPECT_FALSE(readable(fd, 0));
  ASSERT_TRUE(s.put("soon", pattern(77)));
  ASSERT_TRUE(readable(fd, 5000));
  EXPECT_TRUE(pending.ready());
  EXPECT_TRUE(same(pending.take()->bytes(), pattern(77)));
}

TEST_P(StoreTest, DescriptorsWorkWithNobodyElseCalling) {
  Store s = store();
  Store other = store();
  std::vector<Pending<ObjectView>> pending;
  std::vector<int> fds;
  for (int i = 0; i < 20; ++i) {
    pending.push_back(s.get_async("object" + std::to_string(i), 10s));
    fds.push_back(pending.back().event_fd().value());
  }
  for (int i = 0; i < 20; ++i)
    ASSERT_TRUE(other.put("object" + std::to_string(i), pattern(10)));
  for (const int fd : fds)
    EXPECT_TRUE(readable(fd, 5000));
  auto failed = s.get_async("", 10s);
  EXPECT_TRUE(readable(failed.event_fd().value(), 0));
  auto late = s.get_async("never", 50ms);
  EXPECT_TRUE(readable(late.event_fd().value(), 5000));
  EXPECT_EQ(late.take().error().code(), Errc::kTimedOut);
}

TEST_P(StoreTest, ReadyPollsByItself) {
  Store s = store();
  Store other = store();
  auto pending = s.get_async("polled", 10s);
  ASSERT_TRUE(other.put("polled", pattern(5)));
  EXPECT_TRUE(eventually([&] { return pending.ready(); }));
}

TEST_P(StoreTest, CancelEndsAnOperation) {
  Store s = store();
  auto pending = s.get_async("cancelled", 60s);
  const int fd = pending.event_fd().value();
  pending.cancel();
  EXPECT_TRUE(pending.ready());
  EXPECT_TRUE(readable(fd, 0));
  EXPECT_EQ(pending.take().error().code(), Errc::kCancelled);
  stats(s);  // behind the cancellation
  node_.run([](FakeEngine& engine) { EXPECT_EQ(engine.waiting(), 0U); });
}

TEST_P(StoreTest, DroppedOperationsLeaveNothingBehind) {
  Store s = store();
  ASSERT_TRUE(s.put("there", pattern(10)));
  { auto unwanted = s.get_async("not there", 60s); }
  { auto unread = s.get_async("there", 60s); }
  {
    auto read = s.get_async("there", 60s);
    EXPECT_TRUE(eventually([&] { return read.ready(); }));
  }
  EXPECT_TRUE(eventually([&] { return stats(s).pinned == 0; }));
  node_.run([](FakeEngine& engine) { EXPECT_EQ(engine.waiting(), 0U); });
}

TEST_P(StoreTest, CancelWakesTheThreadThatTakes) {
  Store s = store();
  auto pending = s.get_async("stuck", 60s);
  std::thread other([&] { pending.cancel(); });
  EXPECT_EQ(pending.take().error().code(), Errc::kCancelled);
  other.join();
}

TEST_P(StoreTest, WaitReturnsThePositionsThatExist) {
  Store s = store();
  const std::vector<Store::Key> keys = {"w0", "w1", "w2", "w3"};
  EXPECT_EQ(s.wait(keys, 0).error().code(), Errc::kInvalidArgument);
  EXPECT_EQ(s.wait(keys, 5).error().code(), Errc::kInvalidArgument);
  EXPECT_EQ(s.wait(keys, 1, 10ms).error().code(), Errc::kTimedOut);
  auto pending = s.wait_async(keys, 2, 10s);
  ASSERT_TRUE(s.put("w3", {}));
  ASSERT_TRUE(s.put("w1", {}));
  EXPECT_EQ(pending.take().value(), (std::vector<std::size_t>{1, 3}));
}

TEST_P(StoreTest, ReduceSaysWhichSourcesWentIn) {
  Store s = store();
  const std::vector<Store::Key> sources = {"r0", "r1", "r2"};
  const ReduceOptions xor_of_two{.op = ReduceOp::kBitXor, .dtype = DataType::kU8, .count = 2};
  auto pending = s.reduce_async("both", sources, xor_of_two, 20s);
  EXPECT_FALSE(pending.ready());
  const auto first = pattern(1000, 1);
  const auto second = pattern(1000, 2);
  ASSERT_TRUE(s.put("r2", first));
  ASSERT_TRUE(s.put("r0", second));
  const auto result = pending.take();
  ASSERT_TRUE(result) << result.error().to_string();
  EXPECT_EQ(result->size, 1000U);
  EXPECT_EQ(result->included, (std::vector<std::size_t>{0, 2}));
  EXPECT_EQ(result->left_out, (std::vector<std::size_t>{1}));
  const auto view = s.get("both");
  ASSERT_TRUE(view);
  EXPECT_EQ(view->generation(), result->generation);
  for (std::size_t i = 0; i < 1000; ++i)
    ASSERT_EQ(view->bytes()[i], first[i] ^ second[i]) << i;
}

TEST_P(StoreTest, ReduceErrorsNameTheTarget) {
  Store s = store();
  const std::vector<Store::Key> sources = {"e0", "e1"};
  std::uint64_t messages = 0;
  node_.run([&](FakeEngine& engine) { messages = engine.messages(); });
  const std::vector<Store::Key> twice = {"e0", "e0"};
  for (const auto& refused :
       {s.reduce("t", {}), s.reduce("t", twice), s.reduce("e1", sources),
        s.reduce("t", sources, {.count = 3}), s.reduce("t", sources, {.op = ReduceOp::kBitOr})}) {
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), Errc::kInvalidArgument);
    EXPECT_EQ(refused.error().operation(), "reduce");
    EXPECT_FALSE(refused.error().object().empty());
  }
  node_.run([&](FakeEngine& engine) { EXPECT_EQ(engine.messages(), messages); });
  const auto late = s.reduce("t", sources, {}, 20ms);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code(), Errc::kTimedOut);
  EXPECT_EQ(late.error().object(), "t");
}

TEST_P(StoreTest, ACancelledReduceMakesNothing) {
  Store s = store();
  const std::vector<Store::Key> sources = {"c0", "c1"};
  auto pending = s.reduce_async("cancelled", sources, {}, 60s);
  pending.cancel();
  EXPECT_EQ(pending.take().error().code(), Errc::kCancelled);
  { const auto dropped = s.reduce_async("dropped", sources, {}, 60s); }
  EXPECT_TRUE(eventually([&] {
    std::size_t waiting = 1;
    node_.run([&](FakeEngine& engine) { waiting = engine.waiting(); });
    return waiting == 0;
  }));
  ASSERT_TRUE(s.put("c0", pattern(8)));
  ASSERT_TRUE(s.put("c1", pattern(8)));
  EXPECT_EQ(s.stat("cancelled").error().code(), Errc::kNotFound);
  EXPECT_EQ(s.stat("dropped").error().code(), Errc::kNotFound);
}

TEST_P(StoreTest, StatAndListInPages) {
  Store s = store();
  for (int i = 0; i < 1203; ++i)
    ASSERT_TRUE(s.put("listed" + std::to_string(i), pattern(3)));
  const auto all = s.list();
  ASSERT_TRUE(all) << all.error().to_string();
  EXPECT_EQ(all->size(), 1203U);
  EXPECT_TRUE(std::is_sorted(all->begin(), all->end(),
                             [](const auto& a, const auto& b) { return a.id < b.id; }));
  const auto one = s.stat("listed7");
  ASSERT_TRUE(one);
  EXPECT_EQ(one->name, "listed7");
  EXPECT_EQ(one->size, 3U);
  ASSERT_EQ(one->holders.size(), 1U);
  EXPECT_EQ(one->holders[0].node_name, "fake");
}

TEST_P(StoreTest, BarriersMeet) {
  Store s = store();
  std::thread other([&] { EXPECT_TRUE(s.barrier("meet", 2, 10s)); });
  EXPECT_TRUE(s.barrier("meet", 2, 10s));
  other.join();
  EXPECT_EQ(s.barrier("alone", 2, 20ms).error().code(), Errc::kTimedOut);
  EXPECT_EQ(s.barrier("", 2).error().code(), Errc::kInvalidArgument);
  EXPECT_EQ(s.barrier("none", 0).error().code(), Errc::kInvalidArgument);
}

TEST_P(StoreTest, ManyThreadsShareOneStore) {
  Store s = store();
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&s, t] {
      for (unsigned i = 0; i < 200; ++i) {
        const std::string mine = std::to_string(t) + "/" + std::to_string(i);
        const std::string theirs = std::to_string((t + 1) % 4) + "/" + std::to_string(i);
        const std::size_t size = i % 7 == 0 ? 70'000 + i : 10 + i;
        EXPECT_TRUE(s.put(mine, pattern(size, i)));
        const auto view = s.get(theirs, 20s);
        ASSERT_TRUE(view) << view.error().to_string();
        EXPECT_TRUE(same(view->bytes(), pattern(size, i)));
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(stats(s).pinned, 0U);
}

TEST_P(StoreTest, CallersAndDescriptorsMix) {
  Store s = store();
  std::vector<Pending<ObjectView>> watched;
  for (int i = 0; i < 50; ++i) {
    watched.push_back(s.get_async("watched" + std::to_string(i), 20s));
    ASSERT_TRUE(watched.back().event_fd());
  }
  std::thread caller([&] {
    for (int i = 0; i < 500; ++i)
      EXPECT_TRUE(s.put("called" + std::to_string(i), pattern(20)));
  });
  for (int i = 0; i < 50; ++i)
    EXPECT_TRUE(s.put("watched" + std::to_string(i), pattern(30)));
  for (auto& pending : watched) {
    EXPECT_TRUE(readable(pending.event_fd().value(), 10'000));
    EXPECT_TRUE(pending.take());
  }
  caller.join();
}

TEST_P(StoreTest, ManySmallObjectsComeAndGo) {
  Store s = store();
  constexpr int kCount = 5000;  // 100 000 in pool_test.cc, without a round trip each
  const auto bytes = pattern(100);
  for (int i = 0; i < kCount; ++i)
    ASSERT_TRUE(s.put("small" + std::to_string(i), bytes));
  EXPECT_EQ(stats(s).objects, static_cast<std::uint64_t>(kCount));
  for (int i = 0; i < kCount; ++i)
    ASSERT_TRUE(s.erase("small" + std::to_string(i)));
  EXPECT_EQ(stats(s).pool_used_bytes, 0U);
}

TEST_P(StoreTest, ManyPendingGets) {
  Store s = store();
  std::vector<Pending<ObjectView>> pending;
  for (int i = 0; i < 500; ++i)
    pending.push_back(s.get_async("p" + std::to_string(i), 110s));
  for (int i = 0; i < 500; ++i)
    ASSERT_TRUE(s.put("p" + std::to_string(i), pattern(10)));
  for (auto& p : pending)
    EXPECT_TRUE(p.take());
  EXPECT_EQ(stats(s).pinned, 0U);
}

TEST_P(StoreTest, UserMemoryIsForEmbeddedNodes) {
  Store s = store();
  const auto bytes = pattern(1000);
  const auto put = s.put_user_memory("mine", bytes);
  if (!embedded()) {
    ASSERT_FALSE(put);
    EXPECT_EQ(put.error().code(), Errc::kUnsupported);
    EXPECT_FALSE(put.error().fix().empty());
    return;
  }
  ASSERT_TRUE(put) << put.error().to_string();
  EXPECT_EQ(s.get("mine")->bytes().data(), bytes.data());
}

TEST_P(StoreTest, RegistrationsOfMemoryEndWithTheirHandle) {
  Store s = store();
  std::vector<std::byte> memory(1000);
  auto made = s.register_memory(memory);
  if (!embedded()) {
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().code(), Errc::kUnsupported);
    EXPECT_FALSE(made.error().fix().empty());
    return;
  }
  const auto count = [&] {
    std::size_t registrations = 0;
    node_.run([&](FakeEngine& engine) { registrations = engine.registrations().size(); });
    return registrations;
  };
  ASSERT_TRUE(made) << made.error().to_string();
  EXPECT_EQ(made->bytes().data(), memory.data());
  EXPECT_EQ(made->bytes().size(), memory.size());
  EXPECT_EQ(count(), 1U);
  std::optional<MemoryRegistration> moved(std::move(*made));
  EXPECT_EQ(count(), 1U);
  moved.reset();
  EXPECT_EQ(count(), 0U);
  EXPECT_EQ(s.register_memory({}).error().code(), Errc::kInvalidArgument);
}

}  // namespace
}  // namespace lochos
