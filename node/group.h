// Collective operations of a group whose members know each other: broadcast, allreduce,
// reduce-scatter, allgather, gather, scatter, all-to-all, barrier.
//
// A `Group` is one member's handle: a Store, the name of the group, and this member's rank among
// `members`. Members may be on one node or on many. All members call the same operations in the
// same order, with the same sizes, roots, operations and types; the handle counts the calls, and
// what is called "group 'x', call 7" by one is the same for all. Nobody needs to be there first: a
// member that comes late finds the others waiting, and those that do not need it are done already.
//
// Thread word: one call at a time on one Group; different Groups may be used by different threads.
// Names: 1 … kMaxGroupNameBytes bytes of UTF-8 without NUL; two groups of the cluster that live at
// the same time need different names. After an error give a new group another name than the old
// one's: failures are remembered for a minute.
//
// Two forms of every operation:
//  * in place in the pool: the input is a GroupBuffer, memory of the node that the caller fills;
//    the result is pinned, read-only memory of the node, too. Nothing is copied.
//  * in the caller's memory: spans. The input is copied into the pool and the result out of it, so
//    that they may overlap.
//
// Costs (S bytes, n members, bandwidth B): broadcast S/B; reduce-scatter, all-to-all (n-1)/n · S/B;
// allreduce 2(n-1)/n · S/B; allgather, gather, scatter (n-1) · block/B (scheduler/collective_plan.h
// has the schedules).
//
// Errors of every operation: kInvalidArgument before anything is sent (the call does not count, and
// may be repeated) or, if another member asked for something else, naming both ranks and what they
// said; kAborted if a member died, was stopped or gave up, naming its rank and node, and if the
// directory was lost in the middle; kTimedOut, naming the ranks that this one waited for; kNoSpace,
// at all members, if the node of one has no room for its input or result, naming it;
// kConnectionLost, kClosed (of this member's own node). Some members may have had their results
// before another one failed: what a member was given is right. The group stays usable, since a
// member that comes late to a call that has failed is told so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/error.h"
#include "compute/element.h"
#include "node/store.h"
#include "scheduler/collective_plan.h"

namespace lochos {

// With the number of the call it is still a name.
inline constexpr std::size_t kMaxGroupNameBytes = 1000;

class LocalLink;

// Writable memory of this member's node for the input of one operation. Movable; given back when
// it is dropped, taken over by the operation it is passed to. Any thread, one at a time.
class GroupBuffer {
 public:
  GroupBuffer() = default;  // of no bytes
  GroupBuffer(GroupBuffer&&) noexcept;
  GroupBuffer& operator=(GroupBuffer&&) noexcept;
  ~GroupBuffer();

  std::span<std::byte> bytes() const { return bytes_; }
  std::uint64_t size() const { return bytes_.size(); }

 private:
  friend class Group;
  void give_back();

  std::shared_ptr<StoreBackend> backend_;  // null: of no bytes
  std::shared_ptr<LocalLink> link_;
  std::uint64_t writer_ = 0;
  std::span<std::byte> bytes_;
};

class Group {
 public:
  // Nothing is sent. Errors: kInvalidArgument (the name; no or more than kMaxCollectiveMembers
  // members; a rank that is none of theirs).
  static Result<Group> open(const Store& store, std::string_view name, std::uint32_t rank,
                            std::uint32_t members);
  Group(Group&&) noexcept = default;
  Group& operator=(Group&&) noexcept = default;

  std::uint32_t rank() const { return rank_; }
  std::uint32_t members() const { return members_; }
  const std::string& name() const { return name_; }

  // ---- in the pool ----

  // Memory for an input, uninitialised. Not a call that counts. Errors: kNoSpace.
  Result<GroupBuffer> buffer(std::uint64_t bytes, Duration timeout = kDefaultTimeout);

  // Each returns the result; an operation that takes `input` owns it from then on, whatever comes
  // of it. Inputs must come from buffer() of a Group on a Store that is a copy of this one's.

  // What `root` gives, to all. `bytes` is its size, at every member; only the root gives an input.
  Result<ObjectView> broadcast(std::uint32_t root, std::uint64_t bytes, GroupBuffer input = {},
                               Duration timeout = kDefaultTimeout);
  // All inputs combined, element by element, to all. Inputs are of one size, a multiple of the
  // element's. Floats are combined in an order that is the same for all members of one call, but
  // depends on the number of members.
  Result<ObjectView> allreduce(GroupBuffer input, ReduceOp op, DataType dtype,
                               Duration timeout = kDefaultTimeout);
  // As allreduce, but each member gets reduce_scatter_block() of it alone.
  Result<ObjectView> reduce_scatter(GroupBuffer input, ReduceOp op, DataType dtype,
                                    Duration timeout = kDefaultTimeout);
  // All inputs, which are of one size, one after the other in the order of ranks, to all.
  Result<ObjectView> allgather(GroupBuffer input, Duration timeout = kDefaultTimeout);
  // As allgather, but to the root alone; the others get no bytes, when theirs have been fetched or
  // before.
  Result<ObjectView> gather(std::uint32_t root, GroupBuffer input,
                            Duration timeout = kDefaultTimeout);
  // The root's input in `members` equal parts, the one of this rank. `bytes` is the input's size,
  // at every member, a multiple of the number of members; only the root gives an input.
  Result<ObjectView> scatter(std::uint32_t root, std::uint64_t bytes, GroupBuffer input = {},
                             Duration timeout = kDefaultTimeout);
  // Every member's input, all of one size, is `members` equal parts: part i goes to rank i. The
  // result is the parts for this rank in the order of the ranks that they come from.
  Result<ObjectView> all_to_all(GroupBuffer input, Duration timeout = kDefaultTimeout);
  // Returns when all members are in it. Those that are missing are not named, and a member that
  // calls something else instead is noticed by the deadline alone.
  Status barrier(Duration timeout = kDefaultTimeout);

  // The part of a reduced input of `bytes` that reduce_scatter leaves to this member: cut between
  // elements, the parts of all members nearly equal. REQUIRES: a multiple of the element's size.
  CollectiveBlock reduce_scatter_block(std::uint64_t bytes, DataType dtype) const;

  // ---- in the caller's memory ----
  // As above. Errors: kInvalidArgument also if the sizes of `in` and `out` do not fit together.

  // In at the root, out elsewhere.
  Status broadcast(std::uint32_t root, std::span<std::byte> bytes,
                   Duration timeout = kDefaultTimeout);
  // `out` is as large as `in`.
  Status allreduce(std::span<const std::byte> in, std::span<std::byte> out, ReduceOp op,
                   DataType dtype, Duration timeout = kDefaultTimeout);
  // `out` is as large as reduce_scatter_block() says.
  Status reduce_scatter(std::span<const std::byte> in, std::span<std::byte> out, ReduceOp op,
                        DataType dtype, Duration timeout = kDefaultTimeout);
  // `out` is `members` times as large as `in`.
  Status allgather(std::span<const std::byte> in, std::span<std::byte> out,
                   Duration timeout = kDefaultTimeout);
  // As allgather at the root; elsewhere `out` is not looked at.
  Status gather(std::uint32_t root, std::span<const std::byte> in, std::span<std::byte> out,
                Duration timeout = kDefaultTimeout);
  // `in` is `members` times as large as `out`; it is looked at at the root alone.
  Status scatter(std::uint32_t root, std::span<const std::byte> in, std::span<std::byte> out,
                 Duration timeout = kDefaultTimeout);
  // `out` is as large as `in`.
  Status all_to_all(std::span<const std::byte> in, std::span<std::byte> out,
                    Duration timeout = kDefaultTimeout);

 private:
  Group(std::shared_ptr<StoreBackend> backend, std::string name, std::uint32_t rank,
        std::uint32_t members);

  CollectiveSpec spec(CollectiveKind kind, std::uint64_t size) const;
  std::string next_call_name() const;
  Status check_call(const CollectiveSpec& spec, std::uint64_t input_bytes) const;
  Result<ObjectView> run(const CollectiveSpec& spec, GroupBuffer input, Duration timeout);
  // Without asking whether the input is as large as announced.
  Result<ObjectView> run_unchecked(const CollectiveSpec& spec, GroupBuffer input, Duration timeout);
  Status run_copied(const CollectiveSpec& spec, std::span<const std::byte> in,
                    std::span<std::byte> out, Duration timeout);

  std::shared_ptr<StoreBackend> backend_;
  std::string name_;
  std::uint32_t rank_ = 0;
  std::uint32_t members_ = 1;
  std::uint64_t calls_ = 0;  // that the node has been told of
};

}  // namespace lochos
