// Runs the plans of all members of a group on real bytes, each stream whenever what it is made from
// is there, in random order, and compares with what the operations are defined to give.
#include "scheduler/collective_plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <tuple>

#include "scheduler/link_model.h"

namespace lochos {
namespace {

using Bytes = std::vector<std::byte>;
using Name = CollectiveStreamName;
using What = CollectiveStreamName::What;

constexpr std::array kKinds = {CollectiveKind::kBroadcast,     CollectiveKind::kAllreduce,
                               CollectiveKind::kReduceScatter, CollectiveKind::kAllgather,
                               CollectiveKind::kGather,        CollectiveKind::kScatter,
                               CollectiveKind::kAllToAll};
constexpr std::array<std::uint32_t, 10> kGroups = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16};

struct NameOrder {
  bool operator()(const Name& a, const Name& b) const {
    return std::tuple(a.rank, a.what, a.block) < std::tuple(b.rank, b.what, b.block);
  }
};

bool cuts_evenly(CollectiveKind kind) {
  return kind == CollectiveKind::kScatter || kind == CollectiveKind::kAllToAll;
}
bool sums(CollectiveKind kind) {
  return kind == CollectiveKind::kAllreduce || kind == CollectiveKind::kReduceScatter;
}
CollectiveSpec at_rank(CollectiveSpec spec, std::uint32_t rank) {
  spec.rank = rank;
  return spec;
}

// Elements as unsigned integers of their size: that the sum holds every input once shows as well
// so.
void add(const Bytes& from, Bytes& to, std::size_t element) {
  for (std::size_t at = 0; at < to.size(); at += element) {
    std::uint64_t a = 0;
    std::uint64_t b = 0;
    std::memcpy(&a, from.data() + at, element);
    std::memcpy(&b, to.data() + at, element);
    b += a;
    std::memcpy(to.data() + at, &b, element);
  }
}

Bytes part(const Bytes& bytes, std::uint64_t offset, std::uint64_t count) {
  const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(offset);
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

struct Traffic {
  std::uint64_t pulled = 0;
  std::uint64_t served = 0;
};

// All members of one operation.
class Group {
 public:
  Group(const CollectiveSpec& spec, unsigned seed) : spec_(spec), random_(seed) {
    for (std::uint32_t rank = 0; rank < spec.members; ++rank) {
      plans_.push_back(plan_collective(at_rank(spec, rank)));
      Bytes input(gives_input(rank) ? spec.size : 0);
      std::generate(input.begin(), input.end(), [&] { return static_cast<std::byte>(random_()); });
      inputs_.push_back(std::move(input));
      results_.emplace_back(plans_.back().result_bytes);
      written_.emplace_back(plans_.back().result_bytes, 0);
      traffic_.emplace_back();
    }
  }

  const std::vector<Traffic>& traffic() const { return traffic_; }

  // Fails if some stream never gets what it is made from: nobody makes it, or they wait in a
  // circle.
  void run() {
    for (std::uint32_t rank = 0; rank < spec_.members; ++rank)
      begin(rank);
    std::vector<std::pair<std::uint32_t, const CollectiveStream*>> left;
    for (std::uint32_t rank = 0; rank < spec_.members; ++rank) {
      for (const CollectiveStream& stream : plans_[rank].streams)
        left.emplace_back(rank, &stream);
    }
    std::shuffle(left.begin(), left.end(), random_);
    while (!left.empty()) {
      const auto ready = std::stable_partition(left.begin(), left.end(), [&](const auto& entry) {
        return !std::all_of(entry.second->inputs.begin(), entry.second->inputs.end(),
                            [&](const Name& name) { return streams_.contains(name); });
      });
      ASSERT_NE(ready, left.end()) << left.size() << " streams wait for ever";
      const std::vector now(ready, left.end());
      left.erase(ready, left.end());
      for (const auto& [rank, stream] : now)
        make(rank, *stream);
    }
  }

  void check_results() {
    for (std::uint32_t rank = 0; rank < spec_.members; ++rank) {
      const CollectivePlan& plan = plans_[rank];
      const Bytes& result = plan.result_is_input ? inputs_[rank] : results_[rank];
      EXPECT_EQ(plan.result_bytes, result.size()) << "rank " << rank;
      EXPECT_TRUE(result == expected(rank)) << "rank " << rank << " has another result";
      if (plan.result_is_input) continue;
      EXPECT_TRUE(std::all_of(written_[rank].begin(), written_[rank].end(),
                              [](int times) { return times == 1; }))
          << "rank " << rank << ": a byte of the result is not written once";
    }
  }

 private:
  bool gives_input(std::uint32_t rank) const {
    const bool root_only =
        spec_.kind == CollectiveKind::kBroadcast || spec_.kind == CollectiveKind::kScatter;
    return !root_only || rank == spec_.root;
  }

  void begin(std::uint32_t rank) {
    const CollectivePlan& plan = plans_[rank];
    for (const std::uint32_t block : plan.own_blocks) {
      const CollectiveBlock where = input_block(at_rank(spec_, rank), block);
      ASSERT_LE(where.offset + where.bytes, inputs_[rank].size());
      const Name name{What::kOwn, block, rank};
      EXPECT_TRUE(streams_.emplace(name, part(inputs_[rank], where.offset, where.bytes)).second);
    }
    ASSERT_LE(plan.copied.offset + plan.copied.bytes, inputs_[rank].size());
    write(rank, plan.copied_to, part(inputs_[rank], plan.copied.offset, plan.copied.bytes));
  }

  void make(std::uint32_t rank, const CollectiveStream& stream) {
    EXPECT_EQ(stream.name.rank, rank);
    EXPECT_GT(stream.bytes, 0U);
    ASSERT_TRUE(stream.inputs.size() == 1 || stream.inputs.size() == 2);
    Bytes made;
    for (const Name& name : stream.inputs) {
      const Bytes& input = streams_.at(name);
      ASSERT_EQ(input.size(), stream.bytes);
      if (name.rank != rank) {
        EXPECT_TRUE(pulls_from(at_rank(spec_, rank), rank, name.rank))
            << rank << " pulls from " << name.rank;
        traffic_[rank].pulled += stream.bytes;
        traffic_[name.rank].served += stream.bytes;
      }
      if (made.empty()) {
        made = input;
      } else {
        add(input, made, element_size(spec_.dtype));
      }
    }
    if (stream.in_result) write(rank, stream.result_offset, made);
    EXPECT_TRUE(streams_.emplace(stream.name, std::move(made)).second) << "made twice";
  }

  void write(std::uint32_t rank, std::uint64_t offset, const Bytes& bytes) {
    ASSERT_LE(offset + bytes.size(), results_[rank].size());
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      results_[rank][offset + i] = bytes[i];
      ++written_[rank][offset + i];
    }
  }

  // The definitions of the operations.
  Bytes expected(std::uint32_t rank) const {
    const std::uint64_t even = spec_.size / spec_.members;
    Bytes result;
    const auto append = [&result](const Bytes& bytes) {
      result.insert(result.end(), bytes.begin(), bytes.end());
    };
    switch (spec_.kind) {
      case CollectiveKind::kBroadcast:
        return inputs_[spec_.root];
      case CollectiveKind::kAllreduce:
        return sum();
      case CollectiveKind::kReduceScatter: {
        const CollectiveBlock mine = input_block(spec_, rank);
        return part(sum(), mine.offset, mine.bytes);
      }
      case CollectiveKind::kGather:
        if (rank != spec_.root) return {};
        [[fallthrough]];
      case CollectiveKind::kAllgather:
        for (const Bytes& input : inputs_)
          append(input);
        return result;
      case CollectiveKind::kScatter:
        return part(inputs_[spec_.root], rank * even, even);
      case CollectiveKind::kAllToAll:
        for (const Bytes& input : inputs_)
          append(part(input, rank * even, even));
        return result;
    }
    return result;
  }
  Bytes sum() const {
    Bytes total(spec_.size);
    for (const Bytes& input : inputs_)
      add(input, total, element_size(spec_.dtype));
    return total;
  }

  const CollectiveSpec spec_;
  std::mt19937 random_;
  std::vector<CollectivePlan> plans_;
  std::vector<Bytes> inputs_;
  std::vector<Bytes> results_;
  std::vector<std::vector<int>> written_;
  std::vector<Traffic> traffic_;
  std::map<Name, Bytes, NameOrder> streams_;
};

// Schedules that the operation can have.
std::vector<CollectiveSchedule> schedules_of(const CollectiveSpec& spec) {
  const bool in_blocks = sums(spec.kind) || spec.kind == CollectiveKind::kAllgather;
  std::vector<CollectiveSchedule> schedules{CollectiveSchedule::kRing};
  if (in_blocks && std::has_single_bit(spec.members)) {
    schedules.push_back(CollectiveSchedule::kHypercube);
    if (spec.kind == CollectiveKind::kAllreduce)
      schedules.push_back(CollectiveSchedule::kFullExchange);
  }
  return schedules;
}

// Of a sum on the hypercube: each step of a block once, for as long as the block is on the member's
// side.
std::uint64_t halving_pull(const CollectiveSpec& spec, std::uint32_t rank) {
  std::uint64_t bytes = 0;
  for (std::uint32_t block = 0; block < spec.members; ++block) {
    for (std::uint32_t across = spec.members / 2; across > 0; across /= 2) {
      if ((block & ~(across - 1)) == (rank & ~(across - 1)))
        bytes += input_block(spec, block).bytes;
    }
  }
  return bytes;
}

// What the bound allows a member to receive.
std::uint64_t allowed_pull(const CollectiveSpec& spec, std::uint32_t rank) {
  const std::uint64_t n = spec.members;
  if (spec.schedule == CollectiveSchedule::kFullExchange) return std::bit_width(n - 1) * spec.size;
  if (spec.schedule == CollectiveSchedule::kHypercube && sums(spec.kind)) {
    const bool all = spec.kind == CollectiveKind::kAllreduce;
    return halving_pull(spec, rank) + (all ? spec.size - input_block(spec, rank).bytes : 0);
  }
  const auto block = [&](std::uint32_t index) { return input_block(spec, index).bytes; };
  const auto before = static_cast<std::uint32_t>((rank + n - 1) % n);
  switch (spec.kind) {
    case CollectiveKind::kBroadcast:
      return rank == spec.root ? 0 : spec.size;
    case CollectiveKind::kReduceScatter:
      return n == 1 ? 0 : spec.size - block(before);
    case CollectiveKind::kAllreduce:
      return n == 1 ? 0 : spec.size - block(before) + spec.size - block(rank);
    case CollectiveKind::kAllgather:
      return (n - 1) * spec.size;
    case CollectiveKind::kGather:
      return rank == spec.root ? (n - 1) * spec.size : 0;
    case CollectiveKind::kScatter:
      return rank == spec.root ? 0 : spec.size / n;
    case CollectiveKind::kAllToAll:
      return (n - 1) * (spec.size / n);
  }
  return 0;
}

// No member sends more than the busiest receiver of the operation gets, but for the root of a
// scatter, whose link is the bound; and a member of a sum, by the unevenness of two blocks.
std::uint64_t allowed_send(const CollectiveSpec& spec, std::uint32_t rank) {
  const std::uint64_t n = spec.members;
  if (spec.kind == CollectiveKind::kScatter)
    return rank == spec.root ? (n - 1) * (spec.size / n) : 0;
  if (spec.kind == CollectiveKind::kGather) return rank == spec.root ? 0 : spec.size;
  // The sides of a hypercube are uneven by a block in each step and direction.
  if (spec.schedule == CollectiveSchedule::kHypercube && sums(spec.kind)) {
    const std::uint64_t largest = spec.size / n + element_size(spec.dtype);
    return 2 * spec.size + 2 * std::bit_width(n - 1) * largest;
  }
  std::uint64_t most = 0;
  for (std::uint32_t other = 0; other < n; ++other)
    most = std::max(most, allowed_pull(spec, other));
  return most;
}

void check_operation(const CollectiveSpec& spec, unsigned seed) {
  SCOPED_TRACE(fmt::format("{} of {} bytes in a group of {}, root {}, {}", to_string(spec.kind),
                           spec.size, spec.members, spec.root, to_string(spec.dtype)));
  ASSERT_TRUE(check(spec));
  Group group(spec, seed);
  group.run();
  if (testing::Test::HasFatalFailure()) return;
  group.check_results();
  for (std::uint32_t rank = 0; rank < spec.members; ++rank) {
    EXPECT_EQ(group.traffic()[rank].pulled, allowed_pull(spec, rank)) << "rank " << rank;
    EXPECT_LE(group.traffic()[rank].served, allowed_send(spec, rank)) << "rank " << rank;
  }
}

// Sizes that an operation can have: none, the smallest, fewer elements than members, odd counts.
std::vector<std::uint64_t> sizes_of(CollectiveKind kind, std::uint32_t members,
                                    std::size_t element) {
  std::vector<std::uint64_t> sizes;
  const std::uint64_t unit = cuts_evenly(kind) ? members : sums(kind) ? element : 1;
  for (const std::uint64_t count :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{members} - 1,
        std::uint64_t{members}, std::uint64_t{members} + 1, std::uint64_t{101}})
    sizes.push_back(count * unit);
  return sizes;
}

TEST(CollectivePlan, EveryOperationGivesWhatItIsDefinedToGive) {
  unsigned seed = 1;
  for (const CollectiveKind kind : kKinds) {
    for (const std::uint32_t members : kGroups) {
      for (const DataType dtype : {DataType::kU8, DataType::kU16, DataType::kF32, DataType::kI64}) {
        for (const std::uint64_t size : sizes_of(kind, members, element_size(dtype))) {
          CollectiveSpec spec{.kind = kind, .members = members, .size = size, .dtype = dtype};
          for (const std::uint32_t root : std::set<std::uint32_t>{0, members / 2, members - 1}) {
            spec.root = root;
            for (const CollectiveSchedule schedule : schedules_of(spec)) {
              spec.schedule = schedule;
              check_operation(spec, ++seed);
              if (testing::Test::HasFailure()) return;
            }
          }
        }
      }
    }
  }
}

RC_GTEST_PROP(CollectivePlan, AnyGroupOfAnySize, ()) {
  CollectiveSpec spec;
  spec.kind = *rc::gen::elementOf(kKinds);
  spec.members = *rc::gen::inRange<std::uint32_t>(1, 33);
  spec.root = *rc::gen::inRange<std::uint32_t>(0, spec.members);
  spec.dtype = *rc::gen::elementOf(kDataTypes);
  const std::uint64_t unit = cuts_evenly(spec.kind) ? spec.members : element_size(spec.dtype);
  spec.size = *rc::gen::inRange<std::uint64_t>(0, 400) * unit;
  spec.schedule = *rc::gen::elementOf(schedules_of(spec));
  check_operation(spec, *rc::gen::arbitrary<unsigned>());
  RC_ASSERT(!testing::Test::HasFailure());
}

// Where a member must learn of others, and only there.
TEST(CollectivePlan, PeersAreThoseThatAreNeeded) {
  for (const CollectiveKind kind : kKinds) {
    for (const std::uint32_t members : {2U, 5U, 8U}) {
      CollectiveSpec spec{
          .kind = kind, .members = members, .root = 1, .size = std::uint64_t{members} * 8};
      spec.schedule = schedules_of(spec).back();
      for (std::uint32_t rank = 0; rank < members; ++rank) {
        std::set<std::uint32_t> needed;
        for (const CollectiveStream& stream : plan_collective(at_rank(spec, rank)).streams) {
          for (const Name& input : stream.inputs)
            needed.insert(input.rank);
        }
        for (std::uint32_t peer = 0; peer < members; ++peer) {
          EXPECT_EQ(pulls_from(spec, rank, peer), peer != rank && needed.contains(peer))
              << to_string(kind) << ": " << rank << " from " << peer;
        }
      }
    }
  }
}

// The ring's first sums are of what is here already; a result comes last.
TEST(CollectivePlan, StreamsStartInTheOrderInWhichTheirBytesCome) {
  const CollectiveSpec spec{.members = 4, .rank = 2, .size = 16, .dtype = DataType::kF32};
  const auto streams = plan_collective(spec).streams;
  const auto is = [&](std::size_t i, What what, std::uint32_t block) {
    return streams.at(i).name == Name{what, block, 2};
  };
  ASSERT_EQ(streams.size(), 6U);
  EXPECT_TRUE(is(0, What::kSum, 0) && is(1, What::kSum, 3) && is(2, What::kSum, 2));
  EXPECT_TRUE(is(3, What::kCopy, 1) && is(4, What::kCopy, 0) && is(5, What::kCopy, 3));
}

// A ring of eight takes seven steps, a hypercube three: for few bytes that is what counts.
TEST(CollectivePlan, TheScheduleFollowsTheModel) {
  const LinkEstimate link{.latency = std::chrono::microseconds(50), .bytes_per_second = 60e6};
  CollectiveSpec spec{.kind = CollectiveKind::kAllreduce, .members = 8, .size = 64};
  EXPECT_EQ(choose_schedule(spec, link), CollectiveSchedule::kFullExchange);
  spec.size = 1 << 20;
  EXPECT_EQ(choose_schedule(spec, link), CollectiveSchedule::kHypercube);
  spec.members = 7;
  EXPECT_EQ(choose_schedule(spec, link), CollectiveSchedule::kRing);
  spec.kind = CollectiveKind::kGather;
  spec.members = 8;
  EXPECT_EQ(choose_schedule(spec, link), CollectiveSchedule::kRing);
}

TEST(CollectiveBlock, SumsAreCutBetweenElementsAndNearlyEqual) {
  for (const std::uint32_t members : {1U, 3U, 16U, kMaxCollectiveMembers}) {
    for (const std::uint64_t elements : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{17},
                                         (std::uint64_t{1} << 45) + 12'345}) {
      const CollectiveSpec spec{.members = members, .size = elements * 8, .dtype = DataType::kF64};
      std::uint64_t end = 0;
      for (std::uint32_t i = 0; i < members; ++i) {
        const CollectiveBlock block = input_block(spec, i);
        ASSERT_EQ(block.offset, end);
        ASSERT_EQ(block.bytes % 8, 0U);
        ASSERT_GE(block.bytes / 8, elements / members);
        ASSERT_LE(block.bytes / 8, elements / members + 1);
        end += block.bytes;
      }
      EXPECT_EQ(end, spec.size);
    }
  }
}

Errc refusal(const CollectiveSpec& spec) {
  const Status status = check(spec);
  EXPECT_FALSE(status);
  return status ? Errc::kSystem : status.error().code();
}

TEST(CollectiveCheck, NamesWhatIsWrong) {
  const CollectiveSpec good{.members = 4, .rank = 3, .size = 16, .dtype = DataType::kF32};
  EXPECT_TRUE(check(good));
  CollectiveSpec spec = good;
  spec.members = 0;
  EXPECT_EQ(refusal(spec), Errc::kInvalidArgument);
  spec.members = kMaxCollectiveMembers + 1;
  EXPECT_EQ(refusal(spec), Errc::kInvalidArgument);
  spec = good;
  spec.rank = 4;
  EXPECT_EQ(refusal(spec), Errc::kInvalidArgument);
  spec = good;
  spec.size = 18;
  EXPECT_EQ(refusal(spec), Errc::kInvalidArgument);
  spec = good;
  spec.size = std::uint64_t{1} << 60;
  EXPECT_EQ(refusal(spec), Errc::kInvalidArgument);
  spec = good;
  spec.op = ReduceOp::kBitXor;
  EXPECT_EQ(refusal(spec), Errc::kInvalidArgument);
  spec = good;
  spec.root = 4;  // an allreduce has none
  EXPECT_TRUE(check(spec));
  for (const CollectiveKind kind :
       {CollectiveKind::kBroadcast, CollectiveKind::kGather, CollectiveKind::kScatter}) {
    spec.kind = kind;
    EXPECT_EQ(refusal(spec), Errc::kInvalidArgument);
  }
  for (const CollectiveKind kind : {CollectiveKind::kScatter, CollectiveKind::kAllToAll}) {
    spec = good;
    spec.kind = kind;
    spec.size = 17;
    EXPECT_EQ(refusal(spec), Errc::kInvalidArgument);
    EXPECT_NE(check(spec).error().message().find("17"), std::string::npos);
  }
  spec = good;
  spec.kind = static_cast<CollectiveKind>(static_cast<int>(CollectiveKind::kAllToAll) + 1);
  EXPECT_EQ(refusal(spec), Errc::kInvalidArgument);
  spec = good;
  spec.op = static_cast<ReduceOp>(kReduceOps.size());
  EXPECT_EQ(refusal(spec), Errc::kInvalidArgument);
  spec = good;
  spec.dtype = static_cast<DataType>(kDataTypes.size());
  EXPECT_EQ(refusal(spec), Errc::kInvalidArgument);
  // Others carry bytes, whatever they are.
  spec = good;
  spec.kind = CollectiveKind::kAllgather;
  spec.size = 17;
  EXPECT_TRUE(check(spec));
}

}  // namespace
}  // namespace lochos
