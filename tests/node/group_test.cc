// Groups over whole nodes in one process, over TCP on loopback. Each member is a thread.
#include "node/group.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <optional>
#include <thread>

#include "tests/compute/exact_numbers.h"
#include "tests/node/cluster.h"

namespace lochos {
namespace {

using namespace std::chrono_literals;
using test::Buffer;
using test::numbers;

constexpr std::uint64_t kMiB = 1 << 20;

// Bounded, so that a state that never comes is a failure and not a hang.
bool eventually(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

// A cluster, and what its nodes' pools held at the start.
class Scene {
 public:
  explicit Scene(std::size_t nodes) : cluster_(nodes) {
    for (std::size_t i = 0; i < nodes; ++i)
      used_.push_back(used(i));
  }

  Cluster& cluster() { return cluster_; }
  std::uint64_t used(std::size_t node) { return cluster_.store(node).stats()->pool_used_bytes; }
  bool grown(std::size_t node) { return used(node) > used_.at(node); }
  // Nothing of the operations is left.
  void expect_pools_back(const std::vector<std::size_t>& nodes) {
    for (const std::size_t node : nodes) {
      EXPECT_TRUE(eventually([&] { return used(node) == used_.at(node); }))
          << "node " << node << " keeps " << used(node) - used_.at(node) << " bytes";
    }
  }
  void expect_pools_back() {
    std::vector<std::size_t> all(used_.size());
    for (std::size_t i = 0; i < all.size(); ++i)
      all[i] = i;
    expect_pools_back(all);
  }

  // Member `rank` is on node `rank` modulo their number.
  Group group(const std::string& name, std::uint32_t rank, std::uint32_t members) {
    auto group = Group::open(cluster_.store(rank % used_.size()), name, rank, members);
    EXPECT_TRUE(group) << group.error().to_string();
    return std::move(*group);
  }

 private:
  Cluster cluster_;
  std::vector<std::uint64_t> used_;
};

// Runs one thread a rank and waits for all.
void each(std::uint32_t members, const std::function<void(std::uint32_t)>& member) {
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < members; ++rank)
    threads.emplace_back(member, rank);
  for (std::thread& thread : threads)
    thread.join();
}

GroupBuffer filled(Group& group, std::span<const std::byte> bytes) {
  auto buffer = group.buffer(bytes.size());
  EXPECT_TRUE(buffer) << buffer.error().to_string();
  if (!buffer) return {};
  std::copy(bytes.begin(), bytes.end(), buffer->bytes().begin());
  return std::move(*buffer);
}

Buffer part(const Buffer& bytes, std::uint64_t offset, std::uint64_t count) {
  const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(offset);
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}
Buffer joined(const std::vector<Buffer>& parts) {
  Buffer all;
  for (const Buffer& part : parts)
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

void expect_result(const Result<ObjectView>& result, const Buffer& expected, const char* what) {
  ASSERT_TRUE(result) << what << ": " << result.error().to_string();
  EXPECT_TRUE(same_bytes(result->bytes(), expected)) << what;
}
void expect_result(const Status& status, const Buffer& out, const Buffer& expected,
                   const char* what) {
  ASSERT_TRUE(status) << what << ": " << status.error().to_string();
  EXPECT_TRUE(out == expected) << what;
}

// What all members give, and what each must get.
struct Inputs {
  Inputs(std::uint32_t count, std::uint64_t size, DataType type, ReduceOp operation)
      : members(count), dtype(type), op(operation) {
    for (std::uint32_t rank = 0; rank < members; ++rank)
      each.push_back(numbers(dtype, size, rank + 1));
    combined = test::reduced(op, dtype, each);
  }
  Buffer transposed(std::uint32_t rank) const {
    std::vector<Buffer> parts;
    for (const Buffer& input : each)
      parts.push_back(part(input, rank * (input.size() / members), input.size() / members));
    return joined(parts);
  }

  const std::uint32_t members;
  const DataType dtype;
  const ReduceOp op;
  std::vector<Buffer> each;
  Buffer combined;
};

// Every operation once, in the pool; the root is the last member.
void run_in_pool(Group& group, const Inputs& inputs) {
  const std::uint32_t rank = group.rank();
  const std::uint32_t root = inputs.members - 1;
  const Buffer& mine = inputs.each[rank];
  const std::uint64_t size = mine.size();
  const Buffer& given = inputs.each[root];
  expect_result(group.broadcast(root, size, rank == root ? filled(group, given) : GroupBuffer()),
                given, "broadcast");
  expect_result(group.allreduce(filled(group, mine), inputs.op, inputs.dtype), inputs.combined,
                "allreduce");
  const CollectiveBlock block = group.reduce_scatter_block(size, inputs.dtype);
  expect_result(group.reduce_scatter(filled(group, mine), inputs.op, inputs.dtype),
                part(inputs.combined, block.offset, block.bytes), "reduce_scatter");
  expect_result(group.allgather(filled(group, mine)), joined(inputs.each), "allgather");
  expect_result(group.gather(root, filled(group, mine)),
                rank == root ? joined(inputs.each) : Buffer(), "gather");
  if (size % inputs.members == 0) {
    const std::uint64_t share = size / inputs.members;
    expect_result(group.scatter(root, size, rank == root ? filled(group, given) : GroupBuffer()),
                  part(given, rank * share, share), "scatter");
    expect_result(group.all_to_all(filled(group, mine)), inputs.transposed(rank), "all_to_all");
  }
  EXPECT_TRUE(group.barrier());
}

// The same, in the caller's memory; the root is rank 0.
void run_in_own_memory(Group& group, const Inputs& inputs) {
  const std::uint32_t rank = group.rank();
  const Buffer& mine = inputs.each[rank];
  const std::uint64_t size = mine.size();
  Buffer both = rank == 0 ? mine : Buffer(size);
  expect_result(group.broadcast(0, both), both, inputs.each[0], "broadcast");
  both = mine;
  expect_result(group.allreduce(both, both, inputs.op, inputs.dtype), both, inputs.combined,
                "allreduce in place");
  const CollectiveBlock block = group.reduce_scatter_block(size, inputs.dtype);
  Buffer out(block.bytes);
  expect_result(group.reduce_scatter(mine, out, inputs.op, inputs.dtype), out,
                part(inputs.combined, block.offset, block.bytes), "reduce_scatter");
  out.assign(size * inputs.members, {});
  expect_result(group.allgather(mine, out), out, joined(inputs.each), "allgather");
  out.assign(rank == 0 ? size * inputs.members : 0, {});
  expect_result(group.gather(0, mine, out), out, rank == 0 ? joined(inputs.each) : Buffer(),
                "gather");
  if (size % inputs.members == 0) {
    const std::uint64_t share = size / inputs.members;
    out.assign(share, {});
    expect_result(group.scatter(0, rank == 0 ? mine : Buffer(), out), out,
                  part(inputs.each[0], rank * share, share), "scatter");
    out.assign(size, {});
    expect_result(group.all_to_all(mine, out), out, inputs.transposed(rank), "all_to_all");
  }
}

class GroupSizes : public testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Members, GroupSizes, testing::Values(1, 2, 3, 4, 5));

// None, fewer elements than members, an odd number of them, one that all members divide, much.
TEST_P(GroupSizes, EveryOperationOfEverySize) {
  const std::uint32_t members = GetParam();
  Scene scene(members);
  for (const std::uint64_t size : {std::uint64_t{0}, std::uint64_t{4}, std::uint64_t{4} * 1003,
                                   std::uint64_t{240}, std::uint64_t{4} * 60 * 1111, kMiB}) {
    const Inputs inputs(members, size, DataType::kF32, ReduceOp::kSum);
    each(members, [&](std::uint32_t rank) {
      SCOPED_TRACE(fmt::format("rank {} of {}, {} bytes", rank, members, size));
      Group group = scene.group(fmt::format("pool-{}", size), rank, members);
      run_in_pool(group, inputs);
      Group other = scene.group(fmt::format("own-{}", size), rank, members);
      run_in_own_memory(other, inputs);
    });
    if (HasFailure()) return;
  }
  scene.expect_pools_back();
}

TEST(GroupTest, SeveralMembersOnOneNode) {
  Scene scene(2);
  for (const std::uint64_t size : {std::uint64_t{4} * 35, std::uint64_t{4} * 35 * 3001}) {
    const Inputs inputs(5, size, DataType::kF32, ReduceOp::kSum);
    each(5, [&](std::uint32_t rank) {
      SCOPED_TRACE(fmt::format("rank {}, {} bytes", rank, size));
      Group group = scene.group(fmt::format("g{}", size), rank, 5);
      run_in_pool(group, inputs);
      run_in_own_memory(group, inputs);
    });
  }
  scene.expect_pools_back();
}

TEST(GroupTest, EveryTypeAndOperationIsExact) {
  Scene scene(3);
  for (const DataType dtype : kDataTypes) {
    for (const ReduceOp op : kReduceOps) {
      if (!supported(op, dtype)) continue;
      const Inputs inputs(3, element_size(dtype) * 4099, dtype, op);
      each(3, [&](std::uint32_t rank) {
        SCOPED_TRACE(fmt::format("rank {}: {} of {}", rank, to_string(op), to_string(dtype)));
        Group group = scene.group(fmt::format("{}-{}", to_string(op), to_string(dtype)), rank, 3);
        Buffer out(inputs.combined.size());
        const Status done = group.allreduce(inputs.each[rank], out, op, dtype);
        ASSERT_TRUE(done) << done.error().to_string();
        EXPECT_EQ(test::first_difference(dtype, out, inputs.combined), -1);
      });
    }
  }
  scene.expect_pools_back();
}

TEST(GroupTest, AllMembersHaveTheSameBits) {
  constexpr std::uint32_t kMembers = 4;
  Scene scene(kMembers);
  std::vector<Buffer> outs(kMembers, Buffer(kMiB));
  each(kMembers, [&](std::uint32_t rank) {
    Group group = scene.group("rough", rank, kMembers);
    // Any bits: sums of them depend on the order.
    Buffer in = pattern(kMiB, rank + 1);
    for (std::size_t at = 3; at < in.size(); at += 4)
      in[at] &= std::byte{0x3f};  // no NaN
    const Status done = group.allreduce(in, outs[rank], ReduceOp::kAverage, DataType::kF32);
    EXPECT_TRUE(done) << done.error().to_string();
  });
  for (std::uint32_t rank = 1; rank < kMembers; ++rank)
    EXPECT_TRUE(outs[rank] == outs[0]) << rank;
}

TEST(GroupTest, SeveralGroupsAtOnce) {
  constexpr std::uint32_t kMembers = 3;
  constexpr std::uint32_t kGroups = 4;
  Scene scene(kMembers);
  each(kMembers * kGroups, [&](std::uint32_t thread) {
    const std::uint32_t number = thread / kMembers;
    const std::uint32_t rank = thread % kMembers;
    const Inputs inputs(kMembers, 12 * (1000 + 31 * number), DataType::kI32, ReduceOp::kSum);
    SCOPED_TRACE(fmt::format("group {}, rank {}", number, rank));
    Group group = scene.group(fmt::format("group-{}", number), rank, kMembers);
    for (int round = 0; round < 3; ++round)
      run_in_pool(group, inputs);
  });
  scene.expect_pools_back();
}

// The others have begun when the last one comes.
TEST(GroupTest, MembersMayComeLate) {
  constexpr std::uint32_t kMembers = 4;
  Scene scene(kMembers);
  const Inputs inputs(kMembers, kMiB, DataType::kF32, ReduceOp::kSum);
  for (std::uint32_t late = 0; late < kMembers; ++late) {
    each(kMembers, [&](std::uint32_t rank) {
      SCOPED_TRACE(fmt::format("rank {}, {} comes late", rank, late));
      if (rank == late) {
        for (std::uint32_t other = 0; other < kMembers; ++other) {
          EXPECT_TRUE(eventually([&] { return other == late || scene.grown(other); }));
        }
      }
      Group group = scene.group(fmt::format("late-{}", late), rank, kMembers);
      run_in_pool(group, inputs);
    });
    scene.expect_pools_back();
  }
}

// A gather's leaf is done when it has said what it gives, and a broadcast's root needs nobody.
TEST(GroupTest, ThoseThatNeedNobodyAreDoneAtOnce) {
  Scene scene(2);
  Group root = scene.group("g", 0, 2);
  Group other = scene.group("g", 1, 2);
  const Buffer bytes = numbers(DataType::kU8, kMiB, 1);
  expect_result(root.broadcast(0, kMiB, filled(root, bytes)), bytes, "the root");
  expect_result(root.broadcast(0, kMiB, filled(root, bytes)), bytes, "the root, again");
  expect_result(other.broadcast(0, kMiB), bytes, "the late one");
  expect_result(other.broadcast(0, kMiB), bytes, "the late one, again");
  expect_result(other.gather(0, filled(other, bytes)), {}, "the leaf");
  expect_result(root.gather(0, filled(root, bytes)), joined({bytes, bytes}), "the root");
  scene.expect_pools_back();
}

// A result stays as long as its view, and no longer.
TEST(GroupTest, ResultsLiveAsLongAsTheirViews) {
  Scene scene(2);
  const Inputs inputs(2, kMiB, DataType::kF32, ReduceOp::kSum);
  std::vector<std::optional<ObjectView>> views(2);
  each(2, [&](std::uint32_t rank) {
    Group group = scene.group("g", rank, 2);
    for (int round = 0; round < 3; ++round) {
      auto view = group.allreduce(filled(group, inputs.each[rank]), ReduceOp::kSum, DataType::kF32);
      ASSERT_TRUE(view) << view.error().to_string();
      if (round == 0) views[rank] = *view;
    }
  });
  for (auto& view : views) {
    ASSERT_TRUE(view);
    EXPECT_TRUE(same_bytes(view->bytes(), inputs.combined));
  }
  EXPECT_TRUE(scene.grown(0) && scene.grown(1));
  views.clear();
  scene.expect_pools_back();
}

// ---- errors ----

void expect_mentions(const Error& error, const std::vector<std::string>& words) {
  for (const std::string& word : words)
    EXPECT_NE(error.to_string().find(word), std::string::npos) << error.to_string();
}

TEST(GroupTest, MembersThatDisagreeAreNamed) {
  constexpr std::uint32_t kMembers = 3;
  Scene scene(kMembers);
  using Call = std::function<Result<ObjectView>(Group&)>;
  const Buffer bytes = numbers(DataType::kF32, kMiB, 1);
  const Call usual = [&](Group& group) {
    return group.allreduce(filled(group, bytes), ReduceOp::kSum, DataType::kF32);
  };
  const std::vector<std::pair<std::string, Call>> others = {
      {"size",
       [&](Group& group) {
         return group.allreduce(filled(group, std::span(bytes).first(kMiB / 2)), ReduceOp::kSum,
                                DataType::kF32);
       }},
      {"op",
       [&](Group& group) {
         return group.allreduce(filled(group, bytes), ReduceOp::kMax, DataType::kF32);
       }},
      {"dtype",
       [&](Group& group) {
         return group.allreduce(filled(group, bytes), ReduceOp::kSum, DataType::kI32);
       }},
      {"kind", [&](Group& group) { return group.allgather(filled(group, bytes)); }},
      {"members",
       [&](Group& group) {
         Group larger = scene.group(group.name(), group.rank(), kMembers + 1);
         return larger.allreduce(filled(larger, bytes), ReduceOp::kSum, DataType::kF32);
       }},
  };
  for (const auto& pair : others) {
    const std::string& what = pair.first;
    const Call& other = pair.second;
    each(kMembers, [&](std::uint32_t rank) {
      SCOPED_TRACE(fmt::format("rank {}, another {}", rank, what));
      Group group = scene.group("disagree-" + what, rank, kMembers);
      const auto result = rank == 2 ? other(group) : usual(group);
      EXPECT_ERROR(result, Errc::kInvalidArgument);
      // Whichever of the first two came first.
      if (!result) expect_mentions(result.error(), {"rank 2", "disagree-" + what + "/0"});
    });
    scene.expect_pools_back();
  }
}

TEST(GroupTest, ARankThatIsThereTwiceIsRefused) {
  Scene scene(2);
  Group first = scene.group("g", 0, 2);
  Group twin = scene.group("g", 0, 2);
  const Buffer bytes(100);
  ASSERT_TRUE(first.gather(1, filled(first, bytes)));
  const auto again = twin.gather(1, filled(twin, bytes));
  EXPECT_ERROR(again, Errc::kInvalidArgument);
  if (!again) expect_mentions(again.error(), {"rank 0"});
  Group other = scene.group("g", 1, 2);
  EXPECT_TRUE(other.gather(1, filled(other, bytes)));
}

// The one whose time is over says for whom it waited; the others hear that it gave up, and so does
// the one that never came.
TEST(GroupTest, ThoseWhoseTimeIsOverNameWhoIsMissing) {
  for (const std::uint32_t members : {4U, 5U}) {
    Scene scene(members);
    const Buffer bytes = numbers(DataType::kF32, kMiB, 1);
    const auto call = [&](std::uint32_t rank, Duration timeout) {
      Group group = scene.group("g", rank, members);
      return group.allreduce(filled(group, bytes), ReduceOp::kSum, DataType::kF32, timeout);
    };
    const std::string missing = fmt::format("rank {}", members - 1);
    // Rank 1 pulls nothing from the last, on a ring; it must know all the same.
    each(members - 1, [&](std::uint32_t rank) {
      const auto result = call(rank, rank == 1 ? Duration(500ms) : Duration(20s));
      EXPECT_ERROR(result, rank == 1 ? Errc::kTimedOut : Errc::kAborted);
      if (!result) expect_mentions(result.error(), {rank == 1 ? missing : "rank 1"});
    });
    const auto late = call(members - 1, 20s);
    EXPECT_ERROR(late, Errc::kAborted);
    if (!late) expect_mentions(late.error(), {"rank 1"});
    scene.expect_pools_back();
  }
}

TEST(GroupTest, BarriersHoldUntilAllAreThere) {
  Scene scene(2);
  Group alone = scene.group("g", 0, 2);
  EXPECT_ERROR(alone.barrier(50ms), Errc::kTimedOut);
  std::atomic<bool> entered{false};
  each(2, [&](std::uint32_t rank) {
    Group group = scene.group("other", rank, 2);
    if (rank == 1) entered = true;
    const Status passed = group.barrier();
    EXPECT_TRUE(passed) << passed.error().to_string();
    EXPECT_TRUE(entered);
  });
}

// A member's node stops while streams from it are under way: one member is missing yet, so that
// nobody can be done.
TEST(GroupTest, AMemberThatIsStoppedInTheMiddleFailsAll) {
  constexpr std::uint32_t kMembers = 4;
  for (const bool all_to_all : {false, true}) {
    Scene scene(kMembers);
    const Buffer bytes = numbers(DataType::kF32, 4 * kMiB, 1);
    const auto call = [&](std::uint32_t rank) {
      Group group = scene.group("g", rank, kMembers);
      GroupBuffer input = filled(group, bytes);
      return all_to_all ? group.all_to_all(std::move(input), 30s)
                        : group.allreduce(std::move(input), ReduceOp::kSum, DataType::kF32, 30s);
    };
    // Their bytes have begun to move: rank 1 has received some of rank 0's.
    const auto moving = [&] { return scene.cluster().store(1).stats()->bytes_received > 0; };
    const auto expect_aborted = [&](std::uint32_t rank) {
      const auto result = call(rank);
      EXPECT_ERROR(result, Errc::kAborted);
      if (!result) expect_mentions(result.error(), {"rank 0", "node0"});
    };
    each(4, [&](std::uint32_t rank) {
      SCOPED_TRACE(fmt::format("rank {}", rank));
      if (rank == 0) {
        const auto result = call(0);
        EXPECT_FALSE(result);
      } else if (rank == 3) {
        EXPECT_TRUE(eventually(moving));
        scene.cluster().stop_node(0);
        expect_aborted(3);
      } else {
        expect_aborted(rank);
      }
    });
    scene.expect_pools_back({1, 2, 3});
    // The nodes that are left serve other groups.
    const Inputs inputs(2, kMiB, DataType::kF32, ReduceOp::kSum);
    each(2, [&](std::uint32_t rank) {
      auto group = Group::open(scene.cluster().store(rank + 1), "next", rank, 2);
      ASSERT_OK(group);
      run_in_pool(*group, inputs);
    });
  }
}

// All are there, and one is stopped at some moment: everybody has the right result or an error.
TEST(GroupTest, WhenAMemberIsStoppedNobodyHasAWrongResult) {
  constexpr std::uint32_t kMembers = 4;
  for (std::uint64_t moved = 0; moved < 16 * kMiB; moved += 5 * kMiB) {
    Scene scene(kMembers);
    const Inputs inputs(kMembers, 8 * kMiB, DataType::kF32, ReduceOp::kSum);
    std::atomic<int> left{kMembers - 1};
    each(kMembers + 1, [&](std::uint32_t rank) {
      SCOPED_TRACE(fmt::format("rank {}, stopped at {}", rank, moved));
      if (rank == kMembers) {
        EXPECT_TRUE(eventually([&] {
          // Of rank 2's streams: it takes part.
          return left == 0 || scene.cluster().store(3).stats()->bytes_received > moved;
        }));
        scene.cluster().stop_node(2);
        return;
      }
      Group group = scene.group("g", rank, kMembers);
      const auto view =
          group.allreduce(filled(group, inputs.each[rank]), ReduceOp::kSum, DataType::kF32, 30s);
      if (rank == 2) return;
      --left;
      if (view) {
        EXPECT_TRUE(same_bytes(view->bytes(), inputs.combined));
      } else {
        EXPECT_EQ(view.error().code(), Errc::kAborted) << view.error().to_string();
      }
    });
    scene.expect_pools_back({0, 1, 3});
  }
}

TEST(GroupTest, NoRoomIsSaidAndNothingStays) {
  Scene scene(2);
  Group group = scene.group("g", 0, 2);
  EXPECT_ERROR(group.buffer(1 << 30), Errc::kNoSpace);
  // Room for the input, not for the result.
  auto input = group.buffer(40 * kMiB);
  ASSERT_OK(input);
  EXPECT_ERROR(group.allgather(std::move(*input), 10s), Errc::kNoSpace);
  scene.expect_pools_back();
}

// Rank 1 has no room for the result, or none for its input: nobody waits for it, all are told, and
// when there is room the next call works.
TEST(GroupTest, NoRoomAtOneMemberEndsTheCallForAll) {
  Scene scene(3);
  const Inputs inputs(3, kMiB, DataType::kF32, ReduceOp::kSum);
  for (const std::uint64_t blocking : {61 * kMiB, 63 * kMiB + 512 * 1024}) {
    const std::string name = "g" + std::to_string(blocking);
    std::vector<std::optional<Group>> groups(3);
    for (std::uint32_t rank = 0; rank < 3; ++rank)
      groups[rank] = scene.group(name, rank, 3);
    auto taken = groups[1]->buffer(blocking);
    ASSERT_OK(taken);
    each(3, [&](std::uint32_t rank) {
      Buffer all(3 * kMiB);
      const Status status = groups[rank]->allgather(inputs.each[rank], all, 60s);
      EXPECT_ERROR(status, Errc::kNoSpace);
      if (!status) {
        EXPECT_NE(status.error().to_string().find("rank 1"), std::string::npos)
            << status.error().to_string();
      }
    });
    *taken = GroupBuffer();
    each(3, [&](std::uint32_t rank) {
      Buffer all(3 * kMiB);
      EXPECT_TRUE(groups[rank]->allgather(inputs.each[rank], all, 20s));
    });
    scene.expect_pools_back();
  }
}

TEST(GroupTest, TheDirectoryMayGo) {
  Scene scene(2);
  const std::uint16_t port = scene.cluster().directory_port();
  const Inputs inputs(2, kMiB, DataType::kF32, ReduceOp::kSum);
  std::thread waiting([&] {
    Group group = scene.group("g", 0, 2);
    const auto result =
        group.allreduce(filled(group, inputs.each[0]), ReduceOp::kSum, DataType::kF32, 20s);
    EXPECT_ERROR(result, Errc::kAborted);
  });
  EXPECT_TRUE(eventually([&] { return scene.used(0) >= 2 * kMiB; }));
  scene.cluster().stop_directory();
  scene.cluster().restart_directory(port);
  waiting.join();
  each(2, [&](std::uint32_t rank) {
    Group group = scene.group("after", rank, 2);
    run_in_pool(group, inputs);
  });
  scene.expect_pools_back();
}

}  // namespace
}  // namespace lochos
