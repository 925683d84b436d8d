// The engine in virtual time: what is registered and for how long, and gets that go straight into a
// reader's buffer.
#include "node/engine.h"

#include <gtest/gtest.h>

#include "tests/node/cluster.h"
#include "tests/node/sim_cluster.h"

namespace lochos {
namespace {

using namespace std::chrono_literals;

constexpr std::byte kUntouched{0x5A};

// ---- the pool ----

class PoolWithoutMemory final : public Pool {
 public:
  explicit PoolWithoutMemory(std::unique_ptr<Pool> real) : real_(std::move(real)) {}
  Result<Block> allocate(std::uint64_t bytes) override { return real_->allocate(bytes); }
  void free(const Block& block) override { real_->free(block); }
  Status reserve() override {
    return fail(Error(Errc::kNoSpace, "the pool needs 4 GiB more, this machine leaves 1 GiB")
                    .with_fix("start the node with a smaller --pool"));
  }
  std::span<std::byte> memory() const override { return real_->memory(); }
  std::shared_ptr<const PoolMapping> mapping() const override { return real_->mapping(); }
  int memfd() const override { return real_->memfd(); }
  PoolStats stats() const override { return real_->stats(); }

 private:
  const std::unique_ptr<Pool> real_;
};

class NoDirectory final : public DirectoryChannel {
 public:
  void send(const NodeMessage&) override {}
  void poll(Instant, std::vector<ChannelEvent>&) override {}
  int event_fd() const override { return -1; }
  Instant next_deadline() const override { return kNever; }
  bool joined() const override { return false; }
  std::string describe() const override { return "none"; }
};

class EnginePoolTest : public testing::Test {
 protected:
  Result<std::unique_ptr<Engine>> create(TransportKind kind, std::unique_ptr<Pool> pool) {
    const SocketAddress address = *SocketAddress::parse("10.0.0.1:0");
    std::vector<Rail> rails;
    rails.push_back(
        {std::make_unique<CountingTransport>(network_.open_transport(address, {}), counts_, kind),
         address});
    return Engine::create({}, std::move(pool), std::move(rails), std::make_unique<NoDirectory>());
  }
  static std::unique_ptr<Pool> pool() {
    PoolOptions options;
    options.bytes = 8 << 20;
    options.huge_pages = false;
    return Pool::open(options).value();
  }

  RegistrationCounts counts_;
  SimNetwork network_{1};
};

TEST_F(EnginePoolTest, ARailThatPinsMemoryFindsItReserved) {
  const auto engine = create(TransportKind::kVerbs, pool());
  ASSERT_OK(engine);
  EXPECT_EQ((*engine)->pool().stats().reserved, 8U << 20);
  EXPECT_EQ(counts_.live, 1U);
}

TEST_F(EnginePoolTest, OtherRailsLeaveAnIdlePoolSmall) {
  const auto engine = create(TransportKind::kTcp, pool());
  ASSERT_OK(engine);
  EXPECT_EQ((*engine)->pool().stats().reserved, 0U);
}

TEST_F(EnginePoolTest, TooLittleMemoryIsFoundBeforeTheDeviceFindsIt) {
  const auto failed = create(TransportKind::kVerbs, std::make_unique<PoolWithoutMemory>(pool()));
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code(), Errc::kNoSpace);
  EXPECT_NE(failed.error().message().find("needs 4 GiB"), std::string::npos);
  EXPECT_FALSE(failed.error().fix().empty());
  EXPECT_EQ(counts_.made, 0U);
  EXPECT_TRUE(create(TransportKind::kTcp, std::make_unique<PoolWithoutMemory>(pool())));
}

// ---- registered memory ----

TEST(EngineUserMemory, IsRegisteredFromPutToErase) {
  SimCluster cluster(2);
  auto bytes = pattern(300'000, 1);
  const LocalPutUserMemory put{0, id_of("mine"), "mine", bytes.data(), bytes.size(), kNoTimeout};
  const auto done = cluster.ask(0, put);
  ASSERT_TRUE(cluster.run([&] { return cluster.client(0).answer(done) != nullptr; }));
  EXPECT_EQ(cluster.counts(0).live, 2U) << "the pool's and the object's";
  const auto got = cluster.get(1, "mine");
  ASSERT_TRUE(cluster.run([&] { return cluster.client(1).as<LocalView>(got) != nullptr; }));
  EXPECT_TRUE(same_bytes(cluster.bytes(1, *cluster.client(1).as<LocalView>(got)), bytes));
  const auto erased = cluster.ask(0, LocalErase{0, id_of("mine"), "mine", kNoTimeout});
  ASSERT_TRUE(cluster.run([&] { return cluster.client(0).answer(erased) != nullptr; }));
  EXPECT_EQ(cluster.counts(0).live, 1U);
}

TEST(EngineUserMemory, InARegisteredRangeNeedsNoRegistration) {
  SimCluster cluster(2);
  std::vector<std::byte> memory(1 << 20);
  const auto bytes = pattern(300'000, 1);
  std::copy(bytes.begin(), bytes.end(), memory.begin() + 1000);
  const auto registered = cluster.ask(0, LocalRegisterMemory{0, memory.data(), memory.size()});
  const auto* answer = cluster.client(0).as<LocalRegistered>(registered);
  ASSERT_NE(answer, nullptr);
  const RegistrationNumber number = answer->registration;
  const std::size_t made = cluster.counts(0).made;
  const auto done = cluster.ask(
      0, LocalPutUserMemory{0, id_of("mine"), "mine", memory.data() + 1000, 300'000, kNoTimeout});
  ASSERT_TRUE(cluster.run([&] { return cluster.client(0).as<LocalDone>(done) != nullptr; }));
  EXPECT_EQ(cluster.counts(0).made, made);
  // The range stays registered for the object that is still served from it.
  cluster.ask(0, LocalUnregisterMemory{0, number});
  EXPECT_EQ(cluster.counts(0).live, 2U);
  const auto got = cluster.get(1, "mine");
  ASSERT_TRUE(cluster.run([&] { return cluster.client(1).as<LocalView>(got) != nullptr; }));
  EXPECT_TRUE(same_bytes(cluster.bytes(1, *cluster.client(1).as<LocalView>(got)), bytes));
  const auto erased = cluster.ask(0, LocalErase{0, id_of("mine"), "mine", kNoTimeout});
  ASSERT_TRUE(cluster.run([&] { return cluster.client(0).answer(erased) != nullptr; }));
  EXPECT_EQ(cluster.counts(0).live, 1U);
}

TEST(EngineUserMemory, GoesWithItsClient) {
  SimCluster cluster(1);
  std::vector<std::byte> memory(1000);
  cluster.ask(0, LocalRegisterMemory{0, memory.data(), memory.size()});
  EXPECT_EQ(cluster.counts(0).live, 2U);
  cluster.engine(0).forget(cluster.client(0), cluster.now());
  EXPECT_EQ(cluster.counts(0).live, 1U);
}

// ---- gets into a buffer ----

class EngineGetInto : public testing::Test {
 protected:
  static constexpr std::uint64_t kSize = 4'000'001;
  static constexpr std::uint64_t kHalf = 2'000'000;

  // Node 0 has the first half, the buffer of node `reader` has got some of it.
  LocalRequestNumber start_half(std::size_t reader = 1, Duration timeout = kNoTimeout) {
    writer_ = cluster_.begin(0, "x", bytes_, kHalf);
    const auto request = cluster_.get_into(reader, "x", buffer_, timeout);
    EXPECT_TRUE(cluster_.run([&] { return cluster_.stats(reader).bytes_received > kHalf / 2; }));
    EXPECT_EQ(client(reader).answer(request), nullptr);
    return request;
  }
  LocalRequestNumber seal() { return cluster_.ask(0, LocalSeal{0, writer_, kNoTimeout}); }
  SimClient& client(std::size_t node) { return cluster_.client(node); }
  bool run_to_answer(std::size_t node, LocalRequestNumber request) {
    return cluster_.run([&] { return client(node).answer(request) != nullptr; });
  }
  // From now on nobody writes to the buffer, whatever else happens.
  void expect_buffer_is_left_alone() {
    const auto before = buffer_;
    EXPECT_EQ(cluster_.counts(1).live, 1U) << "only the pool is registered";
    seal();
    const auto other = cluster_.get(2, "x");
    cluster_.run([&] { return client(2).answer(other) != nullptr; });
    cluster_.pass(1s);
    EXPECT_TRUE(same_bytes(buffer_, before));
    EXPECT_EQ(cluster_.stats(1).objects, 0U);
    EXPECT_EQ(cluster_.stats(1).pool_used_bytes, 0U);
  }
  bool view_is_right(std::size_t node, LocalRequestNumber request) {
    const auto* view = client(node).as<LocalView>(request);
    return view != nullptr && same_bytes(cluster_.bytes(node, *view), bytes_);
  }

  SimCluster cluster_{3};
  const std::vector<std::byte> bytes_ = pattern(kSize, 7);
  std::vector<std::byte> buffer_ = std::vector<std::byte>(kSize + 10, kUntouched);
  WriterNumber writer_ = 0;
};

TEST_F(EngineGetInto, GoesStraightIntoTheBuffer) {
  const auto request = start_half();
  EXPECT_EQ(cluster_.stats(1).pool_used_bytes, 0U);
  EXPECT_EQ(cluster_.counts(1).live, 2U) << "the buffer is registered";
  seal();
  ASSERT_TRUE(run_to_answer(1, request));
  const auto* received = client(1).as<LocalReceived>(request);
  ASSERT_NE(received, nullptr);
  EXPECT_EQ(received->size, kSize);
  EXPECT_TRUE(same_bytes(std::span(buffer_).first(kSize), bytes_));
  EXPECT_EQ(buffer_[kSize], kUntouched);
  EXPECT_EQ(cluster_.counts(1).live, 1U);
  EXPECT_EQ(cluster_.stats(1).pool_used_bytes, 0U);
  EXPECT_EQ(cluster_.stats(1).objects, 0U);
  cluster_.pass(100ms);
  EXPECT_EQ(cluster_.table().stats().copies, 1U) << "a buffer is no copy that others could have";
  // It was never kept, so it is fetched again, now into the pool.
  const auto again = cluster_.get(1, "x");
  ASSERT_TRUE(run_to_answer(1, again));
  EXPECT_TRUE(view_is_right(1, again));
}

TEST_F(EngineGetInto, UsesARegisteredRange) {
  cluster_.ask(1, LocalRegisterMemory{0, buffer_.data(), buffer_.size()});
  EXPECT_EQ(cluster_.counts(1).made, 2U);
  const auto request = start_half();
  seal();
  ASSERT_TRUE(run_to_answer(1, request));
  EXPECT_NE(client(1).as<LocalReceived>(request), nullptr);
  EXPECT_TRUE(same_bytes(std::span(buffer_).first(kSize), bytes_));
  EXPECT_EQ(cluster_.counts(1).made, 2U);
  EXPECT_EQ(cluster_.counts(1).live, 2U);
}

TEST_F(EngineGetInto, CancelledInTheMiddleAnswersWhenNobodyWritesAnyMore) {
  const auto request = start_half();
  cluster_.ask(1, LocalCancel{request});
  EXPECT_EQ(client(1).answer(request), nullptr) << "the parent may be writing";
  cluster_.ask(1, LocalCancel{request});  // changes nothing
  ASSERT_TRUE(run_to_answer(1, request));
  EXPECT_EQ(client(1).error(request), Errc::kCancelled);
  expect_buffer_is_left_alone();
}

TEST_F(EngineGetInto, DeadlineInTheMiddle) {
  const auto request = start_half(1, 1s);
  ASSERT_TRUE(run_to_answer(1, request));
  EXPECT_EQ(client(1).error(request), Errc::kTimedOut);
  EXPECT_GT(client(1).answer(request)->error().bytes_done(), 0U);
  expect_buffer_is_left_alone();
}

TEST_F(EngineGetInto, ErasedInTheMiddle) {
  const auto request = start_half();
  cluster_.ask(2, LocalErase{0, id_of("x"), "x", kNoTimeout});
  ASSERT_TRUE(run_to_answer(1, request));
  EXPECT_EQ(client(1).error(request), Errc::kDeleted);
  expect_buffer_is_left_alone();
}

TEST_F(EngineGetInto, AbandonedInTheMiddle) {
  const auto request = start_half();
  cluster_.ask(0, LocalAbandon{writer_});
  ASSERT_TRUE(run_to_answer(1, request));
  EXPECT_EQ(client(1).error(request), Errc::kAborted);
  EXPECT_EQ(cluster_.counts(1).live, 1U);
}

TEST_F(EngineGetInto, ForgottenInTheMiddle) {
  start_half();
  cluster_.engine(1).forget(client(1), cluster_.now());
  EXPECT_TRUE(cluster_.run([&] { return cluster_.counts(1).live == 1; }));
  EXPECT_TRUE(client(1).replies.empty());
  expect_buffer_is_left_alone();
}

TEST_F(EngineGetInto, GoesOnAtAnotherHolderWhenItsParentDies) {
  writer_ = cluster_.begin(0, "x", bytes_, kHalf);
  const auto relay = cluster_.get(2, "x");
  ASSERT_TRUE(cluster_.run([&] { return cluster_.stats(2).bytes_received > kHalf / 2; }));
  const auto request = cluster_.get_into(1, "x", buffer_);
  ASSERT_TRUE(cluster_.run([&] { return cluster_.stats(1).bytes_received > kHalf / 2; }));
  ASSERT_GT(cluster_.stats(2).bytes_sent, 0U) << "the relay is its parent";
  EXPECT_EQ(client(2).answer(relay), nullptr);
  cluster_.kill(2);
  seal();
  ASSERT_TRUE(run_to_answer(1, request));
  ASSERT_NE(client(1).as<LocalReceived>(request), nullptr);
  EXPECT_TRUE(same_bytes(std::span(buffer_).first(kSize), bytes_));
  EXPECT_EQ(cluster_.stats(1).bytes_received, kSize) << "from its first missing chunk";
  EXPECT_EQ(cluster_.stats(1).edges_failed, 1U);
}

TEST_F(EngineGetInto, AnotherGetMeanwhileIsFetchedAfterwards) {
  const auto request = start_half();
  const auto second = cluster_.get(1, "x");
  std::vector<std::byte> other(kSize);
  const auto third = cluster_.get_into(1, "x", other);
  seal();
  ASSERT_TRUE(run_to_answer(1, request));
  EXPECT_NE(client(1).as<LocalReceived>(request), nullptr);
  EXPECT_TRUE(same_bytes(std::span(buffer_).first(kSize), bytes_));
  ASSERT_TRUE(run_to_answer(1, second));
  EXPECT_TRUE(view_is_right(1, second));
  ASSERT_TRUE(run_to_answer(1, third));
  EXPECT_TRUE(view_is_right(1, third)) << "it copies from the pool";
  cluster_.pass(100ms);
  EXPECT_EQ(cluster_.table().stats().copies, 2U);
}

TEST_F(EngineGetInto, AnotherGetSurvivesItsCancellation) {
  const auto request = start_half();
  const auto second = cluster_.get(1, "x");
  cluster_.ask(1, LocalCancel{request});
  ASSERT_TRUE(run_to_answer(1, request));
  EXPECT_EQ(client(1).error(request), Errc::kCancelled);
  const auto before = buffer_;
  seal();
  ASSERT_TRUE(run_to_answer(1, second));
  EXPECT_TRUE(view_is_right(1, second));
  EXPECT_TRUE(same_bytes(buffer_, before));
}

TEST_F(EngineGetInto, WithAnotherGetBeforeThePutBothAreServedByOneFetch) {
  const auto request = cluster_.get_into(1, "x", buffer_);
  cluster_.pass(10ms);
  const auto second = cluster_.get(1, "x");
  cluster_.put(0, "x", bytes_);
  ASSERT_TRUE(run_to_answer(1, request));
  ASSERT_TRUE(run_to_answer(1, second));
  EXPECT_TRUE(view_is_right(1, request));
  EXPECT_TRUE(view_is_right(1, second));
  EXPECT_EQ(cluster_.stats(1).edges_started, 1U);
}

TEST_F(EngineGetInto, APutOnTheSameNodeServesIt) {
  const auto request = cluster_.get_into(1, "x", buffer_);
  cluster_.pass(10ms);
  cluster_.put(1, "x", bytes_);
  ASSERT_TRUE(run_to_answer(1, request));
  EXPECT_TRUE(view_is_right(1, request));
}

TEST_F(EngineGetInto, ATooSmallBufferStaysUntouched) {
  cluster_.put(0, "x", bytes_);
  cluster_.ask(0, LocalPutInline{0, id_of("s"), "s", pattern(1000, 1), kNoTimeout});
  for (const auto& [name, size] : {std::pair{"x", kSize - 1}, {"s", std::uint64_t{999}}}) {
    std::fill(buffer_.begin(), buffer_.end(), kUntouched);
    const auto request = cluster_.get_into(1, name, std::span(buffer_).first(size));
    ASSERT_TRUE(run_to_answer(1, request));
    EXPECT_EQ(client(1).error(request), Errc::kInvalidArgument);
    cluster_.pass(100ms);
    EXPECT_EQ(std::count(buffer_.begin(), buffer_.end(), kUntouched),
              static_cast<std::ptrdiff_t>(buffer_.size()));
    EXPECT_EQ(cluster_.stats(1).objects, 0U);
  }
  EXPECT_EQ(cluster_.stats(1).bytes_received, 0U);
}

TEST_F(EngineGetInto, SmallObjectsComeWithTheAnswer) {
  const auto small = pattern(1000, 1);
  cluster_.ask(0, LocalPutInline{0, id_of("s"), "s", small, kNoTimeout});
  cluster_.ask(0, LocalPutInline{0, id_of("empty"), "empty", {}, kNoTimeout});
  const auto request = cluster_.get_into(1, "s", buffer_);
  ASSERT_TRUE(run_to_answer(1, request));
  ASSERT_NE(client(1).as<LocalReceived>(request), nullptr);
  EXPECT_EQ(client(1).as<LocalReceived>(request)->size, 1000U);
  EXPECT_TRUE(same_bytes(std::span(buffer_).first(1000), small));
  const auto empty = cluster_.get_into(1, "empty", {});
  ASSERT_TRUE(run_to_answer(1, empty));
  ASSERT_NE(client(1).as<LocalReceived>(empty), nullptr);
  EXPECT_EQ(client(1).as<LocalReceived>(empty)->size, 0U);
}

TEST_F(EngineGetInto, ABufferThatCannotBeRegisteredIsFilledFromThePool) {
  cluster_.put(0, "x", bytes_);
  cluster_.counts(1).fail_after = 0;
  const auto request = cluster_.get_into(1, "x", buffer_);
  ASSERT_TRUE(run_to_answer(1, request));
  EXPECT_TRUE(view_is_right(1, request));
}

// ---- reduces ----

class EngineReduce : public testing::TestWithParam<Duration> {};

// The parent hears of a source before the source's own node knows that its put is accepted.
TEST_P(EngineReduce, ASourceIsAskedForBeforeItsPutIsAnswered) {
  SimCluster cluster(2);
  const auto bytes = pattern(300'000, 1);
  cluster.put(0, "mine", bytes);
  LocalReduce reduce;
  reduce.target = id_of("target");
  reduce.name = "target";
  reduce.sources = {{id_of("mine"), "mine"}, {id_of("other"), "other"}};
  reduce.count = 2;
  reduce.op = ReduceOp::kBitXor;
  reduce.dtype = DataType::kU32;
  reduce.timeout = kNoTimeout;
  const auto asked = cluster.ask(0, reduce);
  cluster.hold_directory(1, true);
  cluster.ask(
      1, LocalPutUserMemory{0, id_of("other"), "other", bytes.data(), bytes.size(), kNoTimeout});
  cluster.pass(GetParam());
  cluster.hold_directory(1, false);
  const Instant released = cluster.now();
  ASSERT_TRUE(cluster.run([&] { return cluster.client(0).answer(asked) != nullptr; }));
  EXPECT_NE(cluster.client(0).as<LocalReduced>(asked), nullptr);
  EXPECT_LT(cluster.now() - released, 1s);
}

// The root learns from its child that the sum is void, and only later that it is made anew.
TEST(EngineReduceRestart, ReadersOfTheRootWaitForTheNextAttempt) {
  constexpr std::uint64_t kBytes = 256 * 1024;
  const std::vector<std::byte> ones(kBytes, std::byte{1});
  SimCluster cluster(4);
  cluster.begin(0, "a", ones, kBytes / 2);
  cluster.put(1, "b", ones);
  cluster.put(2, "c", ones);
  LocalReduce reduce;
  reduce.target = id_of("target");
  reduce.name = "target";
  for (const char* name : {"a", "b", "c"})
    reduce.sources.push_back({id_of(name), name});
  reduce.count = 3;
  reduce.op = ReduceOp::kSum;
  reduce.dtype = DataType::kU8;
  reduce.deterministic = true;  // a chain in this order
  reduce.timeout = kNoTimeout;
  const auto asked = cluster.ask(3, reduce);
  const auto got = cluster.get(2, "target");
  ASSERT_TRUE(cluster.run([&] { return cluster.stats(2).bytes_received > 0; }));
  cluster.hold_directory(2, true);
  cluster.kill(0);
  cluster.pass(200ms);
  cluster.hold_directory(2, false);
  cluster.put(3, "a", ones);
  ASSERT_TRUE(cluster.run([&] { return cluster.client(3).answer(asked) != nullptr; }));
  EXPECT_NE(cluster.client(3).as<LocalReduced>(asked), nullptr);
  ASSERT_TRUE(cluster.run([&] { return cluster.client(2).answer(got) != nullptr; }));
  const auto* view = cluster.client(2).as<LocalView>(got);
  ASSERT_NE(view, nullptr) << cluster.client(2).answer(got)->error().to_string();
  EXPECT_TRUE(same_bytes(cluster.bytes(2, *view), std::vector<std::byte>(kBytes, std::byte{3})));
}

// A reader of a target is told of its parent before the parent is told what to fetch: its pull must
// not be refused, or the directory takes the parent for one that has nothing.
TEST(EngineReduceRestart, AReaderMayAskAReaderThatHasNotBegun) {
  constexpr std::uint64_t kBytes = 256 * 1024;
  const std::vector<std::byte> ones(kBytes, std::byte{1});
  SimCluster cluster(4);
  const WriterNumber writer = cluster.begin(0, "a", ones, kBytes / 2);
  cluster.put(1, "b", ones);
  const auto first = cluster.get(2, "target");
  cluster.pass(10ms);
  cluster.hold_directory(2, true);
  LocalReduce reduce;
  reduce.target = id_of("target");
  reduce.name = "target";
  reduce.sources = {{id_of("a"), "a"}, {id_of("b"), "b"}};
  reduce.count = 2;
  reduce.dtype = DataType::kU8;
  reduce.timeout = kNoTimeout;
  const auto asked = cluster.ask(1, reduce);
  cluster.pass(10ms);
  const auto second = cluster.get(3, "target");
  cluster.pass(10ms);
  ASSERT_EQ(cluster.stats(3).bytes_received, 0U) << "it is to pull from the one that is held";
  cluster.hold_directory(2, false);
  const Instant released = cluster.now();
  cluster.ask(0, LocalSeal{0, writer, kNoTimeout});
  const auto expect_success = [&](std::size_t node, LocalRequestNumber request) {
    ASSERT_TRUE(cluster.run([&] { return cluster.client(node).answer(request) != nullptr; }));
    EXPECT_TRUE(*cluster.client(node).answer(request)) << node;
  };
  expect_success(1, asked);
  expect_success(2, first);
  expect_success(3, second);
  EXPECT_LT(cluster.now() - released, 1s);
}

INSTANTIATE_TEST_SUITE_P(Late, EngineReduce, testing::Values(100ms, 5s));

// One node erases, and another, which holds a copy and has not heard of it, puts anew.
TEST(EnginePut, AfterAnEraseThatTheNodeHasNotHeardOf) {
  for (const std::size_t size : {std::size_t{100}, std::size_t{300'000}}) {
    const std::vector<std::byte> old(size, std::byte{1});
    const std::vector<std::byte> young(size, std::byte{2});
    SimCluster cluster(2);
    cluster.put(0, "x", old);
    const auto got = cluster.get(1, "x");
    ASSERT_TRUE(cluster.run([&] { return cluster.client(1).answer(got) != nullptr; }));
    // What exists is refused.
    const auto refused = cluster.ask(
        1, LocalPutUserMemory{0, id_of("x"), "x", young.data(), young.size(), kNoTimeout});
    ASSERT_TRUE(cluster.run([&] { return cluster.client(1).answer(refused) != nullptr; }));
    EXPECT_EQ(cluster.client(1).error(refused), Errc::kAlreadyExists);

    cluster.hold_directory(1, true);
    const auto erased = cluster.ask(0, LocalErase{0, id_of("x"), "x", kNoTimeout});
    ASSERT_TRUE(cluster.run([&] { return cluster.client(0).answer(erased) != nullptr; }));
    const auto put = cluster.ask(
        1, LocalPutUserMemory{0, id_of("x"), "x", young.data(), young.size(), kNoTimeout});
    const auto impatient =
        cluster.ask(1, LocalPutUserMemory{0, id_of("x"), "x", young.data(), young.size(), 5ms});
    ASSERT_TRUE(cluster.run([&] { return cluster.client(1).answer(impatient) != nullptr; }));
    EXPECT_EQ(cluster.client(1).answer(put), nullptr);
    EXPECT_EQ(cluster.client(1).error(impatient), Errc::kTimedOut);
    const std::string text = cluster.client(1).answer(impatient)->error().to_string();
    EXPECT_NE(text.find("put of 'x'"), std::string::npos) << text;
    cluster.hold_directory(1, false);
    ASSERT_TRUE(cluster.run([&] { return cluster.client(1).answer(put) != nullptr; }));
    EXPECT_NE(cluster.client(1).as<LocalDone>(put), nullptr);
    const auto read = cluster.get(0, "x");
    ASSERT_TRUE(cluster.run([&] { return cluster.client(0).answer(read) != nullptr; }));
    EXPECT_TRUE(same_bytes(cluster.bytes(0, *cluster.client(0).as<LocalView>(read)), young));
  }
}

}  // namespace
}  // namespace lochos
