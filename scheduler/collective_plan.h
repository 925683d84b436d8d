// What each member of a known group does in a collective operation: which streams it makes, from
// whose, and where they go. Pure; every member computes its own part from the same few numbers.
//
// The schedules cost what the bandwidth bound allows (S bytes, n members, bandwidth B):
//   broadcast       a chain from the root: S/B
//   reduce-scatter  the input in n blocks; the sum of block b travels along the ring and ends at
//                   member b: (n-1)/n · S/B
//   allgather       member b's block travels along the ring: (n-1) · block/B
//   allreduce       both, one after the other for each block: 2(n-1)/n · S/B
//   gather, scatter the root's link: (n-1) · block/B
//   all-to-all      each pair directly: (n-1)/n · S/B
// Where n is a power of two, blocks that are not large go along the edges of a hypercube instead
// (recursive halving and doubling): the same bytes in log2 n steps rather than n-1. A small
// allreduce then takes even fewer: each step exchanges all of it, log2 n · (L + S/B). (Sources: the
// ring is that of Patarasuk and Yuan, 2009; halving and doubling that of Rabenseifner, 2004.) A
// stream starts as soon as those it is made from have begun, so members may come late.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "compute/element.h"

namespace lochos {

struct LinkEstimate;

// The numbers are part of the wire format: append only.
enum class CollectiveKind : std::uint8_t {
  kBroadcast,
  kAllreduce,
  kReduceScatter,
  kAllgather,
  kGather,
  kScatter,
  kAllToAll,
};
std::string_view to_string(CollectiveKind kind);

// Which way blocks take between the members. The numbers are part of the wire format.
enum class CollectiveSchedule : std::uint8_t {
  kRing,
  kHypercube,     // members are a power of two
  kFullExchange,  // allreduce of a power of two: no blocks, every step exchanges everything
};

inline constexpr std::uint32_t kMaxCollectiveMembers = 16'384;

// The same for all members, except `rank`.
struct CollectiveSpec {
  CollectiveKind kind = CollectiveKind::kAllreduce;
  std::uint32_t members = 1;
  std::uint32_t rank = 0;
  std::uint32_t root = 0;  // broadcast, gather, scatter
  // Bytes: of the object (broadcast); of each member's input (allreduce, reduce-scatter,
  // all-to-all, allgather, gather); of the root's input (scatter).
  std::uint64_t size = 0;
  ReduceOp op = ReduceOp::kSum;  // allreduce, reduce-scatter
  DataType dtype = DataType::kU8;
  // One for all members: chosen when the operation begins, not by its callers.
  CollectiveSchedule schedule = CollectiveSchedule::kRing;
  bool operator==(const CollectiveSpec&) const = default;
};

// Errors: kInvalidArgument, naming the field (rank or root outside the group, a size that is no
// multiple of the element or of the members where blocks must be equal, an undefined operation).
Status check(const CollectiveSpec& spec);

// The schedule with the shortest estimated time.
CollectiveSchedule choose_schedule(const CollectiveSpec& spec, const LinkEstimate& link);

// Block `index` of a member's input. Sums: cut between elements, nearly equal; else equal parts (of
// allgather, gather and broadcast: one block, the whole).
struct CollectiveBlock {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  bool operator==(const CollectiveBlock&) const = default;
};
CollectiveBlock input_block(const CollectiveSpec& spec, std::uint32_t index);
// In place of a block's number: all of the input.
inline constexpr std::uint32_t kWholeInput = 0xffff'ffff;

// A stream's name in the group: what it is of which block, made by which member.
struct CollectiveStreamName {
  enum class What : std::uint8_t {
    kOwn,   // a block of the member's input
    kSum,   // of the inputs of some members; `block` also says of which step
    kCopy,  // of what another member has
  };
  What what = What::kOwn;
  std::uint32_t block = 0;
  std::uint32_t rank = 0;
  bool operator==(const CollectiveStreamName&) const = default;
};

struct CollectiveStream {
  CollectiveStreamName name;
  std::vector<CollectiveStreamName> inputs;  // one: a copy; two: a sum
  std::uint64_t bytes = 0;
  bool in_result = false;
  std::uint64_t result_offset = 0;
};

struct CollectivePlan {
  std::uint64_t result_bytes = 0;
  bool result_is_input = false;  // the root of a broadcast: nothing to write
  // Blocks of the own input that streams here or elsewhere are made from.
  std::vector<std::uint32_t> own_blocks;
  std::vector<CollectiveStream> streams;  // in the order to start them
  // Of the own input straight into the result; bytes 0: none.
  CollectiveBlock copied;
  std::uint64_t copied_to = 0;
};

// Bytes of a member's result, whatever the schedule. REQUIRES: check(spec).
std::uint64_t result_bytes(const CollectiveSpec& spec);
// REQUIRES: check(spec).
CollectivePlan plan_collective(const CollectiveSpec& spec);
// Whether `rank` makes streams from those of `peer`: it must learn where that member is.
bool pulls_from(const CollectiveSpec& spec, std::uint32_t rank, std::uint32_t peer);

}  // namespace lochos
