#include "scheduler/collective_plan.h"

#include <fmt/format.h>

#include <algorithm>

namespace lochos {
namespace {

using What = CollectiveStreamName::What;

bool sums(CollectiveKind kind) {
  return kind == CollectiveKind::kAllreduce || kind == CollectiveKind::kReduceScatter;
}
bool has_root(CollectiveKind kind) {
  return kind == CollectiveKind::kBroadcast || kind == CollectiveKind::kGather ||
         kind == CollectiveKind::kScatter;
}
bool cuts_evenly(CollectiveKind kind) {
  return kind == CollectiveKind::kScatter || kind == CollectiveKind::kAllToAll;
}

class Planner {
 public:
  explicit Planner(const CollectiveSpec& spec) : spec_(spec), n_(spec.members), me_(spec.rank) {}

  CollectivePlan plan() {
    switch (spec_.kind) {
      case CollectiveKind::kBroadcast:
        broadcast();
        break;
      case CollectiveKind::kReduceScatter:
        plan_.result_bytes = bytes_of(me_);
        reduce_scatter(0);
        break;
      case CollectiveKind::kAllreduce:
        plan_.result_bytes = spec_.size;
        reduce_scatter(input_block(spec_, me_).offset);
        for_each_other_backwards([&](std::uint32_t block) {
          copy_along_ring(block, What::kSum, bytes_of(block), input_block(spec_, block).offset);
        });
        break;
      case CollectiveKind::kAllgather:
        plan_.result_bytes = spec_.size * n_;
        own(0);
        copy_own({0, spec_.size}, me_ * spec_.size);
        for_each_other_backwards([&](std::uint32_t block) {
          copy_along_ring(block, What::kOwn, spec_.size, block * spec_.size);
        });
        break;
      case CollectiveKind::kGather:
        gather();
        break;
      case CollectiveKind::kScatter:
        scatter();
        break;
      case CollectiveKind::kAllToAll:
        all_to_all();
        break;
    }
    return std::move(plan_);
  }

 private:
  std::uint32_t before(std::uint32_t rank) const { return (rank + n_ - 1) % n_; }
  std::uint32_t after(std::uint32_t rank, std::uint32_t steps) const { return (rank + steps) % n_; }
  std::uint64_t bytes_of(std::uint32_t block) const { return input_block(spec_, block).bytes; }

  void own(std::uint32_t block) { plan_.own_blocks.push_back(block); }
  void copy_own(CollectiveBlock from, std::uint64_t to) {
    plan_.copied = from;
    plan_.copied_to = to;
  }
  void copy(const CollectiveStreamName& from, std::uint32_t block, std::uint64_t bytes,
            std::uint64_t offset) {
    if (bytes == 0) return;
    plan_.streams.push_back({{What::kCopy, block, me_}, {from}, bytes, true, offset});
  }
  // The nearest on the ring first: its bytes are here first.
  template <class F>
  void for_each_other_backwards(F&& f) {
    for (std::uint32_t step = 1; step < n_; ++step)
      f(after(me_, n_ - step));
  }

  // A block that begins its way at the member of its number.
  void copy_along_ring(std::uint32_t block, What first, std::uint64_t bytes, std::uint64_t offset) {
    const std::uint32_t from = before(me_);
    const CollectiveStreamName source =
        from == block ? CollectiveStreamName{first, first == What::kOwn ? 0 : block, from}
                      : CollectiveStreamName{What::kCopy, block, from};
    copy(source, block, bytes, offset);
  }

  // The sum of block b begins with member b+1 and ends with member b.
  void reduce_scatter(std::uint64_t result_offset) {
    if (n_ == 1) {
      copy_own({0, spec_.size}, 0);
      return;
    }
    const auto sum = [&](std::uint32_t block) {
      const std::uint64_t bytes = bytes_of(block);
      if (bytes == 0) return;
      own(block);
      if (block == before(me_)) return;  // it begins here
      const std::uint32_t from = before(me_);
      const bool from_first = from == after(block, 1);
      CollectiveStream stream;
      stream.name = {What::kSum, block, me_};
      stream.inputs = {{from_first ? What::kOwn : What::kSum, block, from},
                       {What::kOwn, block, me_}};
      stream.bytes = bytes;
      stream.in_result = block == me_;
      stream.result_offset = stream.in_result ? result_offset : 0;
      plan_.streams.push_back(std::move(stream));
    };
    for_each_other_backwards(sum);
    sum(me_);
  }

  void broadcast() {
    plan_.result_bytes = spec_.size;
    if (me_ == spec_.root) {
      plan_.result_is_input = true;
      own(0);
      return;
    }
    const std::uint32_t from = before(me_);
    copy({from == spec_.root ? What::kOwn : What::kCopy, 0, from}, 0, spec_.size, 0);
  }

  void gather() {
    own(0);
    if (me_ != spec_.root) return;
    plan_.result_bytes = spec_.size * n_;
    copy_own({0, spec_.size}, me_ * spec_.size);
    for_each_other_backwards([&](std::uint32_t other) {
      copy({What::kOwn, 0, other}, other, spec_.size, other * spec_.size);
    });
  }

  void scatter() {
    const std::uint64_t block = spec_.size / n_;
    plan_.result_bytes = block;
    if (me_ != spec_.root) {
      copy({What::kOwn, me_, spec_.root}, me_, block, 0);
      return;
    }
    for (std::uint32_t i = 0; i < n_; ++i)
      own(i);
    copy_own({me_ * block, block}, 0);
  }

  void all_to_all() {
    const std::uint64_t block = spec_.size / n_;
    plan_.result_bytes = spec_.size;
    for (std::uint32_t i = 0; i < n_; ++i)
      own(i);
    copy_own({me_ * block, block}, me_ * block);
    for_each_other_backwards([&](std::uint32_t other) {
      copy({What::kOwn, me_, other}, other, block, other * block);
    });
  }

  const CollectiveSpec& spec_;
  const std::uint32_t n_;
  const std::uint32_t me_;
  CollectivePlan plan_;
};

}  // namespace

std::string_view to_string(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kBroadcast:
      return "broadcast";
    case CollectiveKind::kAllreduce:
      return "allreduce";
    case CollectiveKind::kReduceScatter:
      return "reduce_scatter";
    case CollectiveKind::kAllgather:
      return "allgather";
    case CollectiveKind::kGather:
      return "gather";
    case CollectiveKind::kScatter:
      return "scatter";
    case CollectiveKind::kAllToAll:
      return "all_to_all";
  }
  return "unknown";
}

Status check(const CollectiveSpec& spec) {
  const auto bad = [](std::string message) {
    return fail(Errc::kInvalidArgument, std::move(message));
  };
  if (spec.members == 0 || spec.members > kMaxCollectiveMembers) {
    return bad(fmt::format("a group of {} members; 1 to {} are possible", spec.members,
                           kMaxCollectiveMembers));
  }
  // The values may come from another language.
  if (spec.kind > CollectiveKind::kAllToAll ||
      static_cast<std::size_t>(spec.op) >= kReduceOps.size() ||
      static_cast<std::size_t>(spec.dtype) >= kDataTypes.size())
    return bad("there is no such kind, operation or element type");
  if (spec.rank >= spec.members)
    return bad(fmt::format("rank {} in a group of {}", spec.rank, spec.members));
  if (has_root(spec.kind) && spec.root >= spec.members)
    return bad(fmt::format("root {} in a group of {}", spec.root, spec.members));
  constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 48;
  if (spec.size > kMaxBytes) return bad(fmt::format("a size of {} bytes", spec.size));
  if (sums(spec.kind)) {
    if (!supported(spec.op, spec.dtype)) {
      return bad(fmt::format("{} of {} is not defined", to_string(spec.op), to_string(spec.dtype)));
    }
    if (spec.size % element_size(spec.dtype) != 0) {
      return bad(fmt::format("{} bytes are no multiple of the {} of an element of {}", spec.size,
                             element_size(spec.dtype), to_string(spec.dtype)));
    }
  }
  if (cuts_evenly(spec.kind) && spec.size % spec.members != 0)
    return bad(fmt::format("{} bytes cannot be cut into {} equal blocks", spec.size, spec.members));
  return {};
}

CollectiveBlock input_block(const CollectiveSpec& spec, std::uint32_t index) {
  if (sums(spec.kind)) {
    const std::uint64_t element = element_size(spec.dtype);
    const std::uint64_t elements = spec.size / element;
    const auto begin = [&](std::uint64_t i) {
      // elements · i / members without overflow
      return (elements / spec.members * i + elements % spec.members * i / spec.members) * element;
    };
    return {begin(index), begin(index + std::uint64_t{1}) - begin(index)};
  }
  if (cuts_evenly(spec.kind)) {
    const std::uint64_t block = spec.size / spec.members;
    return {index * block, block};
  }
  return {0, spec.size};
}

CollectivePlan plan_collective(const CollectiveSpec& spec) {
  return Planner(spec).plan();
}

bool pulls_from(const CollectiveSpec& spec, std::uint32_t rank, std::uint32_t peer) {
  if (rank == peer) return false;
  switch (spec.kind) {
    case CollectiveKind::kBroadcast:
      if (rank == spec.root) return false;
      [[fallthrough]];
    case CollectiveKind::kAllreduce:
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllgather:
      return peer == (rank + spec.members - 1) % spec.members;
    case CollectiveKind::kGather:
      return rank == spec.root;
    case CollectiveKind::kScatter:
      return peer == spec.root;
    case CollectiveKind::kAllToAll:
      return true;
  }
  return false;
}

}  // namespace lochos
