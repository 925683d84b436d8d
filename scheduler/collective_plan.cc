#include "scheduler/collective_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <optional>

#include "scheduler/link_model.h"

namespace lochos {
namespace {

using What = CollectiveStreamName::What;

// What a step costs beside the link's own latency: both ends wake up, post, and count.
constexpr double kStepSeconds = 50e-6;

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

bool is_power_of_two(std::uint32_t n) {
  return std::has_single_bit(n);
}

class Planner {
 public:
  explicit Planner(const CollectiveSpec& spec) : spec_(spec), n_(spec.members), me_(spec.rank) {}

  CollectivePlan plan() {
    plan_.result_bytes = result_bytes(spec_);
    switch (spec_.kind) {
      case CollectiveKind::kBroadcast:
        broadcast();
        break;
      case CollectiveKind::kReduceScatter:
        reduce_scatter(0);
        break;
      case CollectiveKind::kAllreduce:
        allreduce();
        break;
      case CollectiveKind::kAllgather:
        own(0);
        copy_own({0, spec_.size}, me_ * spec_.size);
        for_each_other([&](std::uint32_t block) {
          pass_on(block, {What::kOwn, 0, block}, spec_.size, block * spec_.size);
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
  bool hypercube() const { return spec_.schedule != CollectiveSchedule::kRing; }
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
  // The nearest first: its bytes are here first.
  template <class F>
  void for_each_other(F&& f) {
    for (std::uint32_t step = 1; step < n_; ++step)
      f(hypercube() ? me_ ^ step : after(me_, n_ - step));
  }

  // What begins its way as `first` at the member of its number reaches this one from the member
  // before it: on the ring, or across the highest of the dimensions in which the two differ.
  void pass_on(std::uint32_t block, const CollectiveStreamName& first, std::uint64_t bytes,
               std::uint64_t offset) {
    const std::uint32_t from = hypercube() ? me_ ^ std::bit_floor(me_ ^ block) : before(me_);
    copy(from == block ? first : CollectiveStreamName{What::kCopy, block, from}, block, bytes,
         offset);
  }

  void allreduce() {
    if (spec_.schedule == CollectiveSchedule::kFullExchange && n_ > 1) return full_exchange();
    reduce_scatter(input_block(spec_, me_).offset);
    for_each_other([&](std::uint32_t block) {
      pass_on(block, final_sum(block), bytes_of(block), input_block(spec_, block).offset);
    });
  }

  // Where the sum of a block is complete: at the member of its number.
  CollectiveStreamName final_sum(std::uint32_t block) const {
    const std::uint32_t last_step = hypercube() ? dimensions() - 1 : 0;
    return {What::kSum, step_name(last_step, block), block};
  }
  std::uint32_t dimensions() const { return static_cast<std::uint32_t>(std::countr_zero(n_)); }
  std::uint32_t step_name(std::uint32_t step, std::uint32_t block) const {
    return step * n_ + block;
  }

  void reduce_scatter(std::uint64_t result_offset) {
    if (n_ == 1) {
      copy_own({0, spec_.size}, 0);
    } else if (hypercube()) {
      halve(result_offset);
    } else {
      go_round(result_offset);
    }
  }

  void sum(std::uint32_t name, const CollectiveStreamName& theirs, const CollectiveStreamName& mine,
           std::uint64_t bytes, std::optional<std::uint64_t> result_offset) {
    CollectiveStream stream;
    stream.name = {What::kSum, name, me_};
    stream.inputs = {theirs, mine};
    stream.bytes = bytes;
    stream.in_result = result_offset.has_value();
    stream.result_offset = result_offset.value_or(0);
    plan_.streams.push_back(std::move(stream));
  }

  // The sum of block b begins with member b+1 and ends with member b.
  void go_round(std::uint64_t result_offset) {
    const auto part = [&](std::uint32_t block) {
      if (bytes_of(block) == 0) return;
      own(block);
      const std::uint32_t from = before(me_);
      if (block == from) return;  // it begins here
      const What theirs = from == after(block, 1) ? What::kOwn : What::kSum;
      sum(block, {theirs, block, from}, {What::kOwn, block, me_}, bytes_of(block),
          block == me_ ? std::optional(result_offset) : std::nullopt);
    };
    for_each_other(part);
    part(me_);
  }

  // In step k a member adds what the one across the k-th dimension (the highest first) has of the
  // blocks that lie on its own side, and leaves the others to it.
  void halve(std::uint64_t result_offset) {
    for (std::uint32_t block = 0; block < n_; ++block) {
      if (bytes_of(block) > 0) own(block);
    }
    const std::uint32_t last = dimensions() - 1;
    for (std::uint32_t step = 0; step <= last; ++step) {
      const std::uint32_t across = n_ >> (step + 1);
      for (std::uint32_t low = 0; low < across; ++low) {
        const std::uint32_t block = (me_ & ~(across - 1)) | low;
        if (bytes_of(block) == 0) continue;
        const auto before_step = [&](std::uint32_t rank) {
          return step == 0 ? CollectiveStreamName{What::kOwn, block, rank}
                           : CollectiveStreamName{What::kSum, step_name(step - 1, block), rank};
        };
        sum(step_name(step, block), before_step(me_ ^ across), before_step(me_), bytes_of(block),
            step == last ? std::optional(result_offset) : std::nullopt);
      }
    }
  }

  // Everybody adds everything; the lower member's part always comes first, so that all have the
  // same bits.
  void full_exchange() {
    own(kWholeInput);
    for (std::uint32_t step = 0; step < dimensions(); ++step) {
      const auto before_step = [&](std::uint32_t rank) {
        return step == 0 ? CollectiveStreamName{What::kOwn, kWholeInput, rank}
                         : CollectiveStreamName{What::kSum, step - 1, rank};
      };
      const std::uint32_t other = me_ ^ (1U << step);
      if (spec_.size == 0) continue;
      sum(step, before_step(std::min(me_, other)), before_step(std::max(me_, other)), spec_.size,
          step + 1 == dimensions() ? std::optional<std::uint64_t>(0) : std::nullopt);
    }
  }

  void broadcast() {
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
    copy_own({0, spec_.size}, me_ * spec_.size);
    for_each_other([&](std::uint32_t other) {
      copy({What::kOwn, 0, other}, other, spec_.size, other * spec_.size);
    });
  }

  void scatter() {
    const std::uint64_t block = spec_.size / n_;
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
    for (std::uint32_t i = 0; i < n_; ++i)
      own(i);
    copy_own({me_ * block, block}, me_ * block);
    for_each_other([&](std::uint32_t other) {
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
  if (index == kWholeInput) return {0, spec.size};
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

CollectiveSchedule choose_schedule(const CollectiveSpec& spec, const LinkEstimate& link) {
  const bool in_blocks = sums(spec.kind) || spec.kind == CollectiveKind::kAllgather;
  if (!in_blocks || !is_power_of_two(spec.members)) return CollectiveSchedule::kRing;
  if (spec.kind != CollectiveKind::kAllreduce) return CollectiveSchedule::kHypercube;
  const double latency = std::chrono::duration<double>(link.latency).count() + kStepSeconds;
  const double transfer = static_cast<double>(spec.size) / link.bytes_per_second;
  const double steps = std::countr_zero(spec.members);
  const double n = spec.members;
  const double in_halves = 2 * steps * latency + 2 * (n - 1) / n * transfer;
  const double whole = steps * (latency + transfer);
  return whole < in_halves ? CollectiveSchedule::kFullExchange : CollectiveSchedule::kHypercube;
}

std::uint64_t result_bytes(const CollectiveSpec& spec) {
  switch (spec.kind) {
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kAllreduce:
    case CollectiveKind::kAllToAll:
      return spec.size;
    case CollectiveKind::kReduceScatter:
      return input_block(spec, spec.rank).bytes;
    case CollectiveKind::kAllgather:
      return spec.size * spec.members;
    case CollectiveKind::kGather:
      return spec.rank == spec.root ? spec.size * spec.members : 0;
    case CollectiveKind::kScatter:
      return spec.size / spec.members;
  }
  return 0;
}

CollectivePlan plan_collective(const CollectiveSpec& spec) {
  return Planner(spec).plan();
}

bool pulls_from(const CollectiveSpec& spec, std::uint32_t rank, std::uint32_t peer) {
  if (rank == peer) return false;
  switch (spec.kind) {
    case CollectiveKind::kBroadcast:
      return rank != spec.root && peer == (rank + spec.members - 1) % spec.members;
    case CollectiveKind::kAllreduce:
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllgather:
      if (spec.schedule != CollectiveSchedule::kRing) return is_power_of_two(rank ^ peer);
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
