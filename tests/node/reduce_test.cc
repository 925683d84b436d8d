// Reduces over whole nodes in one process, over TCP on loopback: what a user of the Store sees.
// What happens in the middle of one is tested by holding back a source: its writer publishes a part
// and waits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <thread>

#include "compute/element.h"
#include "tests/compute/exact_numbers.h"
#include "tests/compute/reduce_reference.h"
#include "tests/node/cluster.h"

namespace lochos {
namespace {

using namespace std::chrono_literals;
using test::Buffer;
using test::numbers;
using test::reduced;

// More than the directory answers inline.
constexpr std::uint64_t kLarge = (64 << 10) + 8;

// Floats of very different sizes: their sum depends on the order.
Buffer rough_floats(std::uint64_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  Buffer buffer(bytes);
  for (std::uint64_t at = 0; at + 4 <= bytes; at += 4) {
    const float value = std::ldexp(static_cast<float>(random() % 1000) - 500.F,
                                   static_cast<int>(random() % 40) - 20);
    std::memcpy(&buffer[at], &value, 4);
  }
  return buffer;
}

Buffer sum_of(const std::vector<Buffer>& inputs) {
  return reduced(ReduceOp::kSum, DataType::kF32, inputs);
}

// Bounded, so that a state that never comes is a failure and not a hang.
bool eventually(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

bool is(const Result<ObjectView>& view, const Buffer& bytes) {
  return view && same_bytes(view->bytes(), bytes);
}

// A source that is filled in two steps.
class SlowSource {
 public:
  SlowSource(Store& store, const std::string& name, Buffer bytes)
      : bytes_(std::move(bytes)), writer_(store.create(name, bytes_.size())) {
    EXPECT_TRUE(writer_) << writer_.error().to_string();
  }
  std::uint64_t half() const { return bytes_.size() / 2; }
  void publish_half() {
    fill(half());
    writer_->publish(half());
  }
  void finish() {
    fill(bytes_.size());
    EXPECT_TRUE(writer_->seal());
  }
  const Buffer& bytes() const { return bytes_; }

 private:
  // What is published is read by others and is not written again.
  void fill(std::uint64_t end) {
    std::copy(bytes_.begin() + static_cast<std::ptrdiff_t>(filled_),
              bytes_.begin() + static_cast<std::ptrdiff_t>(end),
              writer_->bytes().begin() + static_cast<std::ptrdiff_t>(filled_));
    filled_ = end;
  }

  Buffer bytes_;
  std::uint64_t filled_ = 0;
  Result<ObjectWriter> writer_;
};

// A cluster, what its nodes used at the start, and the sources s0, s1, …
class Scene {
 public:
  explicit Scene(std::size_t nodes, unsigned sources, std::uint64_t bytes = 2 << 20)
      : cluster(nodes) {
    for (std::size_t i = 0; i < nodes; ++i)
      used_.push_back(cluster.store(i).stats()->pool_used_bytes);
    for (unsigned i = 0; i < sources; ++i) {
      names.push_back("s" + std::to_string(i));
      contents.push_back(numbers(DataType::kF32, bytes, i + 1));
      keys.emplace_back(names.back());
    }
  }

  Store& store(std::size_t node) { return cluster.store(node); }
  void put(std::size_t node, std::size_t source) {
    const Status put = store(node).put(names.at(source), contents.at(source));
    EXPECT_TRUE(put) << put.error().to_string();
  }
  SlowSource slow(std::size_t node, std::size_t source) {
    return SlowSource(store(node), names.at(source), contents.at(source));
  }
  Pending<ReduceResult> reduce(std::size_t node, const ReduceOptions& options = {},
                               Duration timeout = 30s) {
    return store(node).reduce_async("t", keys, options, timeout);
  }
  Buffer sum(std::initializer_list<std::size_t> sources) const {
    std::vector<Buffer> inputs;
    for (const std::size_t source : sources)
      inputs.push_back(contents.at(source));
    return sum_of(inputs);
  }
  void expect_everywhere(const Buffer& bytes, std::initializer_list<std::size_t> nodes) {
    for (const std::size_t node : nodes) {
      auto view = store(node).get("t", 20s);
      EXPECT_TRUE(view) << view.error().to_string();
      EXPECT_TRUE(is(view, bytes)) << "node " << node;
    }
  }
  // Nothing is left of the target.
  void expect_free(std::size_t node) { EXPECT_ERROR(store(node).stat("t"), Errc::kNotFound); }
  // Erases what there is and expects every byte back.
  void expect_nothing_left(std::initializer_list<std::size_t> nodes) {
    const auto objects = store(*nodes.begin()).list();
    ASSERT_OK(objects);
    for (const ObjectStat& object : *objects)
      (void)store(*nodes.begin()).erase(object.id);
    EXPECT_TRUE(store(*nodes.begin()).list()->empty());
    for (const std::size_t node : nodes) {
      EXPECT_TRUE(eventually([&] {
        const NodeStats now = *store(node).stats();
        return now.pool_used_bytes == used_[node] && now.objects == 0 && now.pinned == 0;
      })) << "node "
          << node << " uses " << store(node).stats()->pool_used_bytes << " bytes for "
          << store(node).stats()->objects << " objects";
    }
  }

  Cluster cluster;
  std::vector<std::string> names;
  std::vector<Buffer> contents;
  std::vector<Store::Key> keys;

 private:
  std::vector<std::uint64_t> used_;
};

// ---- results ----

class ReduceSizes : public testing::TestWithParam<std::uint64_t> {};

// Four sources on three nodes; the caller is each node in turn, and each node reads the target.
TEST_P(ReduceSizes, EveryTypeAndOperationIsBitExact) {
  const std::uint64_t bytes = GetParam();
  Cluster cluster(3);
  const std::vector<std::size_t> places{0, 1, 2, 1};
  std::size_t round = 0;
  for (const DataType type : kDataTypes) {
    if (bytes % element_size(type) != 0) continue;
    std::vector<Buffer> inputs;
    std::vector<Store::Key> keys;
    for (unsigned i = 0; i < places.size(); ++i) {
      inputs.push_back(numbers(type, bytes, 10 + i));
      keys.emplace_back(std::string(to_string(type)) + std::to_string(i));
      ASSERT_OK(cluster.store(places[i]).put(keys.back(), inputs.back()));
    }
    for (const ReduceOp op : kReduceOps) {
      if (!supported(op, type)) continue;
      const std::string what = std::string(to_string(op)) + " " + std::string(to_string(type));
      auto result = cluster.store(round++ % 3).reduce(what, keys, {.op = op, .dtype = type});
      ASSERT_OK(result);
      EXPECT_EQ(result->size, bytes);
      EXPECT_EQ(result->included, (std::vector<std::size_t>{0, 1, 2, 3}));
      EXPECT_TRUE(result->left_out.empty());
      const Buffer expected = reduced(op, type, inputs);
      for (std::size_t node = 0; node < 3; ++node) {
        auto view = cluster.store(node).get(what, 20s);
        ASSERT_OK(view);
        EXPECT_EQ(view->generation(), result->generation);
        ASSERT_EQ(view->size(), bytes);
        const Buffer got(view->bytes().begin(), view->bytes().end());
        EXPECT_EQ(test::first_difference(type, expected, got), -1) << what << ", node " << node;
      }
      ASSERT_OK(cluster.store(0).erase(what));
    }
    for (const Store::Key& key : keys)
      ASSERT_OK(cluster.store(0).erase(key));
  }
}

INSTANTIATE_TEST_SUITE_P(Reduce, ReduceSizes,
                         testing::Values(64, 65536, kLarge, 65536 + 7, 3 * 65536 + 2, 400'024));

TEST(Reduce, NothingIsAValidObject) {
  Scene scene(2, 2, 0);
  scene.put(0, 0);
  scene.put(1, 1);
  auto result = scene.reduce(0).take();
  ASSERT_OK(result);
  EXPECT_EQ(result->size, 0U);
  scene.expect_everywhere({}, {0, 1});
  scene.expect_nothing_left({0, 1});
}

TEST(Reduce, OneSourceGivesACopy) {
  for (const std::uint64_t bytes : {64ULL, 1ULL << 20}) {
    for (const std::size_t caller : {0U, 1U}) {
      Scene scene(2, 1, bytes);
      scene.put(0, 0);
      ASSERT_OK(scene.reduce(caller).take());
      ASSERT_OK(scene.store(0).erase("s0"));
      scene.expect_everywhere(scene.contents[0], {0, 1});
      scene.expect_nothing_left({0, 1});
    }
  }
}

TEST(Reduce, ManyChunks) {
  Scene scene(3, 3, 8'000'004);
  for (std::size_t i = 0; i < 3; ++i)
    scene.put(i, i);
  ASSERT_OK(scene.reduce(0).take());
  scene.expect_everywhere(scene.sum({0, 1, 2}), {0, 1, 2});
  scene.expect_nothing_left({0, 1, 2});
}

TEST(Reduce, ManySourcesOnOneNode) {
  for (const std::uint64_t bytes : {512ULL, 1ULL << 20}) {
    Scene scene(2, 12, bytes);
    for (std::size_t i = 0; i < 12; ++i)
      scene.put(i == 5 ? 1 : 0, i);
    ASSERT_OK(scene.reduce(1).take());
    const Buffer expected = sum_of(scene.contents);
    scene.expect_everywhere(expected, {0, 1});
    // They are combined before they leave the node, and both read the target.
    EXPECT_LE(scene.store(0).stats()->bytes_sent, 2 * bytes);
    scene.expect_nothing_left({0, 1});
  }
}

TEST(Reduce, SourcesMayBePutLaterInAnyOrder) {
  for (const std::uint64_t bytes : {512ULL, 1ULL << 20}) {
    for (unsigned order = 0; order < 4; ++order) {
      Scene scene(4, 4, bytes);
      auto pending = scene.reduce(order % 4);
      std::vector<std::size_t> sources{0, 1, 2, 3};
      std::shuffle(sources.begin(), sources.end(), std::mt19937(order));
      for (const std::size_t source : sources) {
        EXPECT_FALSE(pending.ready());
        scene.put(source, source);
      }
      ASSERT_OK(pending.take());
      scene.expect_everywhere(scene.sum({0, 1, 2, 3}), {0, 1, 2, 3});
      scene.expect_nothing_left({0, 1, 2, 3});
    }
  }
}

// Whoever combines may ask for a source before its node has heard that the put is accepted.
TEST(Reduce, SourcesPutAtTheSameMoment) {
  constexpr std::size_t kNodes = 4;
  Scene scene(kNodes, kNodes, 128 << 10);
  for (int round = 0; round < 30; ++round) {
    auto pending = scene.reduce(0, {}, 20s);
    {
      std::vector<std::jthread> threads;
      for (std::size_t i = 0; i < kNodes; ++i)
        threads.emplace_back([&scene, i] { scene.put(i, i); });
    }
    ASSERT_OK(pending.take());
    ASSERT_OK(scene.store(0).erase("t"));
    for (std::size_t i = 0; i < kNodes; ++i)
      ASSERT_OK(scene.store(i).erase(scene.keys[i]));
  }
  scene.expect_nothing_left({0, 1, 2, 3});
}

TEST(Reduce, OnlyTheCallerHasNoSource) {
  Scene scene(4, 3);
  for (std::size_t i = 0; i < 3; ++i)
    scene.put(i, i);
  ASSERT_OK(scene.reduce(3).take());
  scene.expect_everywhere(scene.sum({0, 1, 2}), {3, 0, 1, 2});
  scene.expect_nothing_left({0, 1, 2, 3});
}

// ---- in the middle ----

TEST(Reduce, SumsMoveWhileSourcesAreBeingFilled) {
  Scene scene(4, 3);
  std::vector<SlowSource> sources;
  for (std::size_t i = 0; i < 3; ++i)
    sources.push_back(scene.slow(i, i));
  auto pending = scene.reduce(0);
  auto reader = scene.store(3).get_async("t", 20s);
  for (SlowSource& source : sources)
    source.publish_half();
  // A reader that contributes nothing has the first half of the sum before there is a second.
  EXPECT_TRUE(eventually([&] { return scene.store(3).stats()->bytes_received >= 1 << 19; }));
  EXPECT_FALSE(pending.ready());
  EXPECT_FALSE(reader.ready());
  for (SlowSource& source : sources)
    source.finish();
  ASSERT_OK(pending.take());
  EXPECT_TRUE(is(reader.take(), scene.sum({0, 1, 2})));
  scene.expect_everywhere(scene.sum({0, 1, 2}), {0, 1, 2, 3});
  scene.expect_nothing_left({0, 1, 2, 3});
}

TEST(Reduce, ReadersThatCameFirstGetTheTarget) {
  for (const std::uint64_t bytes : {512ULL, 1ULL << 20}) {
    Scene scene(4, 3, bytes);
    std::vector<Pending<ObjectView>> readers;
    for (std::size_t node = 0; node < 4; ++node)
      readers.push_back(scene.store(node).get_async("t", 20s));
    auto pending = scene.reduce(3);
    for (std::size_t i = 0; i < 3; ++i)
      scene.put(i, i);
    ASSERT_OK(pending.take());
    for (auto& reader : readers)
      EXPECT_TRUE(is(reader.take(), scene.sum({0, 1, 2})));
    readers.clear();
    scene.expect_nothing_left({0, 1, 2, 3});
  }
}

TEST(Reduce, ATargetIsReducedAgainWhileItIsMade) {
  Scene scene(3, 2);
  const Buffer third = numbers(DataType::kF32, 2 << 20, 99);
  SlowSource slow = scene.slow(0, 0);
  scene.put(1, 1);
  ASSERT_OK(scene.store(2).put("third", third));
  auto first = scene.reduce(0);
  const std::vector<Store::Key> again{"t", "third"};
  auto second = scene.store(2).reduce_async("u", again, {}, 20s);
  slow.publish_half();
  EXPECT_TRUE(eventually([&] { return scene.store(2).stats()->bytes_received >= 1 << 19; }));
  EXPECT_FALSE(first.ready());
  EXPECT_FALSE(second.ready());
  slow.finish();
  ASSERT_OK(first.take());
  ASSERT_OK(second.take());
  const Buffer all = sum_of({scene.contents[0], scene.contents[1], third});
  for (std::size_t node = 0; node < 3; ++node)
    EXPECT_TRUE(is(scene.store(node).get("u", 20s), all));
  scene.expect_everywhere(scene.sum({0, 1}), {0, 1, 2});
  scene.expect_nothing_left({0, 1, 2});
}

// ---- the first so many ----

TEST(Reduce, TheFirstToTurnUpGoInAndTheOthersAreNamed) {
  for (const std::uint64_t bytes : {512ULL, 1ULL << 20}) {
    Scene scene(4, 6, bytes);
    auto pending = scene.reduce(0, {.count = 3});
    scene.put(1, 4);
    scene.put(2, 1);
    scene.put(3, 3);
    auto result = pending.take();
    ASSERT_OK(result);
    EXPECT_EQ(result->included, (std::vector<std::size_t>{1, 3, 4}));
    EXPECT_EQ(result->left_out, (std::vector<std::size_t>{0, 2, 5}));
    scene.put(0, 0);
    scene.expect_everywhere(scene.sum({1, 3, 4}), {0, 1, 2, 3});
    scene.expect_nothing_left({0, 1, 2, 3});
  }
}

TEST(Reduce, AnAverageIsOfThoseThatWentIn) {
  Scene scene(2, 5);
  for (std::size_t i = 0; i < 4; ++i)
    scene.put(i % 2, i);
  auto result = scene.reduce(0, {.op = ReduceOp::kAverage, .count = 4}).take();
  ASSERT_OK(result);
  const std::vector<Buffer> four(scene.contents.begin(), scene.contents.begin() + 4);
  scene.expect_everywhere(reduced(ReduceOp::kAverage, DataType::kF32, four), {0, 1});
}

// ---- the same bits ----

TEST(Reduce, DeterministicGivesTheSameBitsWhateverTheOrderOfArrival) {
  for (const std::uint64_t bytes : {512ULL, 1ULL << 20}) {
    std::vector<Buffer> inputs;
    for (unsigned i = 0; i < 5; ++i)
      inputs.push_back(rough_floats(bytes, i + 1));
    const Buffer expected = sum_of(inputs);
    const std::vector<Buffer> backwards(inputs.rbegin(), inputs.rend());
    ASSERT_NE(expected, sum_of(backwards)) << "the order does not matter with these values";
    for (unsigned order = 0; order < 4; ++order) {
      Scene scene(3, 5, bytes);
      scene.contents = inputs;
      auto pending = scene.reduce(order % 3, {.deterministic = true});
      std::vector<std::size_t> sources{0, 1, 2, 3, 4};
      std::shuffle(sources.begin(), sources.end(), std::mt19937(order));
      for (const std::size_t source : sources)
        scene.put((source + order) % 3, source);
      ASSERT_OK(pending.take());
      scene.expect_everywhere(expected, {0, 1, 2});
      scene.expect_nothing_left({0, 1, 2});
    }
  }
}

TEST(Reduce, DeterministicOfTheFirstFewIsTheirSumInTheOrderGiven) {
  Scene scene(3, 6);
  for (unsigned i = 0; i < 6; ++i)
    scene.contents[i] = rough_floats(2 << 20, i + 1);
  auto pending = scene.reduce(0, {.count = 3, .deterministic = true});
  scene.put(2, 5);
  scene.put(1, 3);
  scene.put(0, 0);
  auto result = pending.take();
  ASSERT_OK(result);
  EXPECT_EQ(result->included, (std::vector<std::size_t>{0, 3, 5}));
  scene.expect_everywhere(scene.sum({0, 3, 5}), {0, 1, 2});
  scene.expect_nothing_left({0, 1, 2});
}

// ---- bad input ----

TEST(Reduce, WhatCannotBeIsRefusedAtOnce) {
  Scene scene(2, 3);
  Store& store = scene.store(0);
  const std::span<const Store::Key> none;
  const std::vector<Store::Key> twice{"s0", "s1", "s0"}, itself{"s0", "t"};
  EXPECT_ERROR(store.reduce("t", none), Errc::kInvalidArgument);
  EXPECT_ERROR(store.reduce("t", twice), Errc::kInvalidArgument);
  EXPECT_ERROR(store.reduce("t", itself), Errc::kInvalidArgument);
  EXPECT_ERROR(store.reduce("t", scene.keys, {.count = 4}), Errc::kInvalidArgument);
  EXPECT_ERROR(store.reduce("t", scene.keys, {.op = static_cast<ReduceOp>(77)}),
               Errc::kInvalidArgument);
  EXPECT_ERROR(store.reduce("t", scene.keys, {.dtype = static_cast<DataType>(77)}),
               Errc::kInvalidArgument);
  EXPECT_ERROR(store.reduce("t", scene.keys, {.op = ReduceOp::kBitXor}), Errc::kInvalidArgument);
  EXPECT_ERROR(store.reduce("t", scene.keys, {.op = ReduceOp::kAverage, .dtype = DataType::kI32}),
               Errc::kInvalidArgument);
  scene.expect_free(0);
  scene.expect_nothing_left({0, 1});
}

TEST(Reduce, ATargetThatExistsStaysAsItIs) {
  for (const std::uint64_t bytes : {512ULL, 1ULL << 20}) {
    Scene scene(2, 2, bytes);
    const auto other = pattern(bytes, 5);
    ASSERT_OK(scene.store(1).put("t", other));
    scene.put(0, 0);
    scene.put(1, 1);
    EXPECT_ERROR(scene.reduce(0).take(), Errc::kAlreadyExists);
    scene.expect_everywhere(other, {0, 1});
    scene.expect_nothing_left({0, 1});
  }
}

TEST(Reduce, ATargetThatIsBeingMadeIsNotMadeTwice) {
  Scene scene(2, 2);
  auto first = scene.reduce(0);
  scene.put(0, 0);
  SlowSource slow = scene.slow(1, 1);
  ASSERT_TRUE(eventually([&] { return scene.store(1).stat("t").has_value(); }));
  EXPECT_ERROR(scene.reduce(1).take(), Errc::kAlreadyExists);
  EXPECT_ERROR(scene.store(1).put("t", pattern(2 << 20, 1)), Errc::kAlreadyExists);
  slow.finish();
  ASSERT_OK(first.take());
  scene.expect_everywhere(scene.sum({0, 1}), {0, 1});
  scene.expect_nothing_left({0, 1});
}

TEST(Reduce, SizesThatDifferNameBothSources) {
  for (const std::uint64_t bytes : {512ULL, 1ULL << 20}) {
    Scene scene(2, 2, bytes);
    scene.put(0, 0);
    scene.contents[1].resize(bytes + 4);
    scene.put(1, 1);
    auto result = scene.reduce(0).take();
    EXPECT_ERROR(result, Errc::kInvalidArgument);
    EXPECT_NE(result.error().to_string().find("s0"), std::string::npos);
    EXPECT_NE(result.error().to_string().find("s1"), std::string::npos);
    scene.expect_free(0);
    scene.expect_nothing_left({0, 1});
  }
}

TEST(Reduce, SizesThatAreNoMultipleOfTheElementNameTheSource) {
  for (const std::uint64_t bytes : {511ULL, (1ULL << 20) + 1}) {
    Scene scene(2, 2, bytes);
    scene.put(0, 0);
    scene.put(1, 1);
    auto result = scene.reduce(0).take();
    EXPECT_ERROR(result, Errc::kInvalidArgument);
    EXPECT_NE(result.error().to_string().find("'t'"), std::string::npos);
    EXPECT_NE(result.error().to_string().find("'s"), std::string::npos);
    scene.expect_free(0);
    scene.expect_nothing_left({0, 1});
  }
}

TEST(Reduce, ASourceOfAnotherSizeInTheMiddleEndsIt) {
  Scene scene(3, 3);
  SlowSource slow = scene.slow(0, 0);
  scene.put(1, 1);
  auto reader = scene.store(2).get_async("t", 500ms);
  auto pending = scene.reduce(0);
  slow.publish_half();
  scene.contents[2].resize(scene.contents[2].size() + 4);
  scene.put(2, 2);
  EXPECT_ERROR(pending.take(), Errc::kInvalidArgument);
  EXPECT_FALSE(reader.take());
  scene.expect_free(0);
  slow.finish();
  EXPECT_TRUE(is(scene.store(2).get("s0", 20s), scene.contents[0]));
  scene.expect_nothing_left({0, 1, 2});
}

TEST(Reduce, ErasingASourceInTheMiddleEndsIt) {
  Scene scene(3, 3);
  SlowSource slow = scene.slow(0, 0);
  scene.put(1, 1);
  scene.put(2, 2);
  auto pending = scene.reduce(0);
  auto reader = scene.store(2).get_async("t", 20s);
  slow.publish_half();
  ASSERT_TRUE(eventually([&] { return scene.store(2).stats()->bytes_received >= 1 << 19; }));
  ASSERT_OK(scene.store(2).erase("s1"));
  EXPECT_ERROR(pending.take(), Errc::kDeleted);
  EXPECT_ERROR(reader.take(), Errc::kDeleted);
  scene.expect_free(0);
  slow.finish();
  scene.expect_nothing_left({0, 1, 2});
}

TEST(Reduce, ErasingTheTargetInTheMiddleEndsIt) {
  Scene scene(3, 2);
  SlowSource slow = scene.slow(0, 0);
  scene.put(1, 1);
  auto pending = scene.reduce(0);
  auto reader = scene.store(2).get_async("t", 20s);
  slow.publish_half();
  ASSERT_TRUE(eventually([&] { return scene.store(2).stats()->bytes_received >= 1 << 19; }));
  ASSERT_OK(scene.store(2).erase("t"));
  EXPECT_ERROR(pending.take(), Errc::kDeleted);
  EXPECT_ERROR(reader.take(), Errc::kDeleted);
  scene.expect_free(0);
  slow.finish();
  scene.expect_nothing_left({0, 1, 2});
}

TEST(Reduce, AProducerThatGivesUpEndsIt) {
  Scene scene(2, 2);
  {
    SlowSource slow = scene.slow(0, 0);
    scene.put(1, 1);
    auto pending = scene.reduce(1, {}, 2s);
    slow.publish_half();
    ASSERT_TRUE(eventually([&] { return scene.store(1).stats()->bytes_received >= 1 << 19; }));
    { const SlowSource gone = std::move(slow); }
    auto result = pending.take();
    ASSERT_FALSE(result);
    EXPECT_TRUE(result.error().code() == Errc::kAborted || result.error().code() == Errc::kTimedOut)
        << result.error().to_string();
  }
  scene.expect_free(0);
  scene.expect_nothing_left({0, 1});
}

TEST(Reduce, TheDeadlineNamesWhatIsMissing) {
  for (const std::uint64_t bytes : {512ULL, 1ULL << 20}) {
    Scene scene(3, 4, bytes);
    scene.put(0, 0);
    scene.put(1, 2);
    const auto started = std::chrono::steady_clock::now();
    auto result = scene.reduce(2, {.count = 3}, 300ms).take();
    EXPECT_ERROR(result, Errc::kTimedOut);
    EXPECT_LT(std::chrono::steady_clock::now() - started, 1300ms);
    EXPECT_NE(result.error().to_string().find("'s1', 's3'"), std::string::npos)
        << result.error().to_string();
    scene.expect_free(0);
    scene.expect_nothing_left({0, 1, 2});
  }
}

TEST(Reduce, TheDeadlineInTheMiddleLeavesNothing) {
  Scene scene(3, 3);
  SlowSource slow = scene.slow(0, 0);
  scene.put(1, 1);
  scene.put(2, 2);
  auto reader = scene.store(1).get_async("t", 20s);
  auto result = scene.reduce(2, {}, 300ms).take();
  EXPECT_ERROR(result, Errc::kTimedOut);
  EXPECT_ERROR(reader.take(), Errc::kAborted);
  scene.expect_free(0);
  slow.finish();
  scene.expect_nothing_left({0, 1, 2});
}

TEST(Reduce, CancelledItLeavesNothingAndTheNameIsFree) {
  Scene scene(3, 3);
  SlowSource slow = scene.slow(0, 0);
  scene.put(1, 1);
  scene.put(2, 2);
  auto pending = scene.reduce(2);
  auto reader = scene.store(1).get_async("t", 20s);
  slow.publish_half();
  ASSERT_TRUE(eventually([&] { return scene.store(1).stats()->bytes_received >= 1 << 19; }));
  pending.cancel();
  EXPECT_ERROR(pending.take(), Errc::kCancelled);
  EXPECT_ERROR(reader.take(), Errc::kAborted);
  slow.finish();
  ASSERT_TRUE(eventually([&] { return !scene.store(0).stat("t").has_value(); }));
  ASSERT_OK(scene.reduce(1).take());
  scene.expect_everywhere(scene.sum({0, 1, 2}), {0, 1, 2});
  scene.expect_nothing_left({0, 1, 2});
}

TEST(Reduce, DroppedBeforeAnySourceItLeavesNothing) {
  Scene scene(2, 2);
  { auto pending = scene.reduce(0); }
  auto again = scene.reduce(1);
  scene.put(0, 0);
  scene.put(1, 1);
  auto result = again.take();
  // The name is free once the directory has heard of it.
  if (!result) {
    EXPECT_EQ(result.error().code(), Errc::kAlreadyExists);
    ASSERT_TRUE(eventually([&] { return scene.reduce(1).take().has_value(); }));
  }
  scene.expect_everywhere(scene.sum({0, 1}), {0, 1});
  scene.expect_nothing_left({0, 1});
}

TEST(Reduce, NoRoomForTheTargetIsSaid) {
  Cluster cluster(2, 8 << 20);
  const Buffer bytes = numbers(DataType::kF32, 5 << 20, 1);
  ASSERT_OK(cluster.store(0).put("s0", bytes));
  ASSERT_OK(cluster.store(1).put("s1", bytes));
  const std::vector<Store::Key> keys{"s0", "s1"};
  EXPECT_ERROR(cluster.store(0).reduce("t", keys), Errc::kNoSpace);
  EXPECT_ERROR(cluster.store(0).stat("t"), Errc::kNotFound);
  for (std::size_t node = 0; node < 2; ++node)
    EXPECT_TRUE(eventually([&] { return cluster.store(node).stats()->objects == 1; }));
}

// ---- nodes that go away ----

TEST(Reduce, ASpareTakesThePlaceOfANodeThatIsGone) {
  Scene scene(6, 4);
  SlowSource slow = scene.slow(0, 0);
  auto pending = scene.reduce(5, {.count = 3});
  scene.put(1, 1);
  scene.put(2, 2);
  ASSERT_TRUE(eventually([&] { return scene.store(5).stat("t").has_value(); }));
  auto reader = scene.store(4).get_async("t", 20s);
  scene.put(3, 3);
  slow.publish_half();
  ASSERT_TRUE(eventually([&] { return scene.store(4).stats()->bytes_received >= 1 << 19; }));
  scene.cluster.stop_node(1);
  slow.finish();
  auto result = pending.take();
  ASSERT_OK(result);
  EXPECT_EQ(result->included, (std::vector<std::size_t>{0, 2, 3}));
  EXPECT_TRUE(is(reader.take(), scene.sum({0, 2, 3})));
  scene.expect_everywhere(scene.sum({0, 2, 3}), {0, 2, 3, 4, 5});
  scene.expect_nothing_left({0, 2, 3, 4, 5});
}

// The victim is the first of the chain, one in the middle, and the root in turn; its source is put
// again elsewhere, with other contents, which is what must come out for every reader.
class ReduceVictim : public testing::TestWithParam<std::size_t> {};

TEST_P(ReduceVictim, PutAgainItGoesInAgain) {
  const std::size_t victim = GetParam();
  Scene scene(6, 4);
  std::vector<SlowSource> sources;
  auto pending = scene.reduce(5);
  for (std::size_t i = 0; i < 4; ++i)
    sources.push_back(scene.slow(i, i));
  auto reader = scene.store(4).get_async("t", 20s);
  for (SlowSource& source : sources)
    source.publish_half();
  ASSERT_TRUE(eventually([&] { return scene.store(4).stats()->bytes_received >= 1 << 19; }));
  scene.cluster.stop_node(victim);
  scene.contents[victim] = numbers(DataType::kF32, 2 << 20, 1234);
  scene.put(4, victim);
  for (std::size_t i = 0; i < 4; ++i) {
    if (i != victim) sources[i].finish();
  }
  auto result = pending.take();
  ASSERT_OK(result);
  EXPECT_TRUE(is(reader.take(), scene.sum({0, 1, 2, 3})));
  for (std::size_t node = 0; node < 6; ++node) {
    if (node != victim) scene.expect_everywhere(scene.sum({0, 1, 2, 3}), {node});
  }
  sources.clear();
  for (const std::string& name : scene.names)
    ASSERT_OK(scene.store(5).erase(name));
  ASSERT_OK(scene.store(5).erase("t"));
  EXPECT_TRUE(scene.store(5).list()->empty());
}

INSTANTIATE_TEST_SUITE_P(Reduce, ReduceVictim, testing::Values(0, 1, 2, 3));

TEST(Reduce, ANodeThatIsGoneForGoodLeavesItToTheDeadline) {
  Scene scene(3, 2);
  SlowSource slow = scene.slow(0, 0);
  scene.put(1, 1);
  auto pending = scene.reduce(2, {}, 1s);
  slow.publish_half();
  ASSERT_TRUE(eventually([&] { return scene.store(2).stat("t").has_value(); }));
  scene.cluster.stop_node(1);
  slow.finish();
  auto result = pending.take();
  ASSERT_FALSE(result);
  EXPECT_TRUE(result.error().code() == Errc::kTimedOut ||
              result.error().code() == Errc::kObjectLost)
      << result.error().to_string();
  scene.expect_free(0);
  scene.expect_nothing_left({0, 2});
}

TEST(Reduce, ItEndsWithItsCaller) {
  Scene scene(4, 3);
  SlowSource slow = scene.slow(0, 0);
  scene.put(1, 1);
  scene.put(2, 2);
  auto pending = scene.reduce(3);
  auto reader = scene.store(1).get_async("t", 20s);
  slow.publish_half();
  ASSERT_TRUE(eventually([&] { return scene.store(1).stats()->bytes_received >= 1 << 19; }));
  scene.cluster.stop_node(3);
  EXPECT_ERROR(pending.take(), Errc::kClosed);
  EXPECT_ERROR(reader.take(), Errc::kAborted);
  scene.expect_free(0);
  slow.finish();
  ASSERT_OK(scene.reduce(1).take());
  scene.expect_everywhere(scene.sum({0, 1, 2}), {0, 1, 2});
  scene.expect_nothing_left({0, 1, 2});
}

TEST(Reduce, AReaderThatIsGoneIsNotMissed) {
  Scene scene(4, 2);
  SlowSource slow = scene.slow(0, 0);
  scene.put(1, 1);
  auto pending = scene.reduce(0);
  auto first = scene.store(2).get_async("t", 20s);
  slow.publish_half();
  ASSERT_TRUE(eventually([&] { return scene.store(2).stats()->bytes_received >= 1 << 19; }));
  auto second = scene.store(3).get_async("t", 20s);
  ASSERT_TRUE(eventually([&] { return scene.store(3).stats()->bytes_received >= 1 << 19; }));
  scene.cluster.stop_node(2);
  slow.finish();
  ASSERT_OK(pending.take());
  EXPECT_TRUE(is(second.take(), scene.sum({0, 1})));
  scene.expect_nothing_left({0, 1, 3});
}

}  // namespace
}  // namespace lochos
