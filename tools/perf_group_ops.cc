// `lochos perf allreduce` and the other operations of known groups (node/group.h).
#include <array>
#include <optional>
#include <span>
#include <vector>

#include "node/group.h"
#include "tools/perf_collective.h"
#include "tools/perf_elements.h"

namespace lochos {
namespace {

using Seeds = std::vector<std::uint64_t>;

std::uint64_t seed_of(std::uint64_t iteration, std::uint64_t rank) {
  return iteration << 32 | rank;
}

// Whether `result` is what `rank` gives from its element number `first` on.
bool is_given_by(std::uint32_t rank, std::span<const std::byte> result, std::uint64_t first,
                 const CollectiveOptions& options, std::uint64_t iteration) {
  const Seeds seeds{seed_of(iteration, rank)};
  return !find_wrong_element(result, ReduceOp::kMin, options.dtype, seeds, options.verify, first);
}

// Whether `result` is the combination of what all ranks give.
bool is_combined(std::span<const std::byte> result, std::uint64_t first,
                 const CollectiveOptions& options, std::uint64_t iteration) {
  Seeds seeds;
  for (std::uint32_t rank = 0; rank < options.ranks; ++rank)
    seeds.push_back(seed_of(iteration, rank));
  return !find_wrong_element(result, options.reduce_op, options.dtype, seeds, options.verify,
                             first);
}

double share_of_others(std::uint32_t ranks) {
  return static_cast<double>(ranks - 1) / ranks;
}

// The largest size up to `size` of which every rank has as many whole elements as the others.
std::uint64_t cut_evenly(const CollectiveOptions& options) {
  const std::uint64_t unit = options.ranks * element_size(options.dtype);
  return options.size / unit * unit;
}

// What they have in common: the input lies in the pool before the clock starts, as that of a
// program which computes it there would.
class GroupOp : public CollectiveOp {
 public:
  bool has_elements() const override { return true; }
  double bus_factor(std::uint32_t ranks) const override { return bound_factor(ranks); }

  Status prepare(CollectiveContext& context, const std::string& key, std::uint64_t seed) override {
    const CollectiveOptions& options = context.options;
    auto group = Group::open(context.store, key, options.rank, context.ranks);
    if (!group) return fail(group.error());
    auto input = group->buffer(input_bytes(options), options.timeout);
    if (!input) return fail(input.error());
    fill_elements(input->bytes(), options.dtype, seed_of(seed, options.rank));
    group_.emplace(std::move(*group));
    input_ = std::move(*input);
    return {};
  }
  Status execute(CollectiveContext& context, const std::string&) override {
    auto result = call(*group_, std::move(input_), context.options);
    if (!result) return fail(result.error());
    result_ = std::move(*result);
    return {};
  }
  std::uint64_t check(CollectiveContext& context, std::uint64_t seed) override {
    return is_right(result_->bytes(), context.options, seed) ? 0 : 1;
  }
  Status clean(CollectiveContext&, const std::string&) override {
    result_.reset();
    group_.reset();
    return {};
  }

 protected:
  virtual std::uint64_t input_bytes(const CollectiveOptions& options) const { return options.size; }
  virtual Result<ObjectView> call(Group& group, GroupBuffer input,
                                  const CollectiveOptions& options) const = 0;
  virtual bool is_right(std::span<const std::byte> result, const CollectiveOptions& options,
                        std::uint64_t iteration) const = 0;

 private:
  std::optional<Group> group_;
  GroupBuffer input_;
  std::optional<ObjectView> result_;
};

class Allreduce final : public GroupOp {
 public:
  std::string_view name() const override { return "allreduce"; }
  bool combines() const override { return true; }
  double bound_factor(std::uint32_t ranks) const override { return 2 * share_of_others(ranks); }
  // The input, the result, and the sums on their way.
  std::uint64_t pool_bytes(const CollectiveOptions& options) const override {
    return 3 * options.size;
  }

 private:
  Result<ObjectView> call(Group& group, GroupBuffer input,
                          const CollectiveOptions& options) const override {
    return group.allreduce(std::move(input), options.reduce_op, options.dtype, options.timeout);
  }
  bool is_right(std::span<const std::byte> result, const CollectiveOptions& options,
                std::uint64_t iteration) const override {
    return result.size() == options.size && is_combined(result, 0, options, iteration);
  }
};

class ReduceScatter final : public GroupOp {
 public:
  std::string_view name() const override { return "reduce_scatter"; }
  bool combines() const override { return true; }
  double bound_factor(std::uint32_t ranks) const override { return share_of_others(ranks); }
  std::uint64_t usable_size(const CollectiveOptions& options) const override {
    return cut_evenly(options);
  }
  std::uint64_t pool_bytes(const CollectiveOptions& options) const override {
    return 2 * options.size;
  }

 private:
  Result<ObjectView> call(Group& group, GroupBuffer input,
                          const CollectiveOptions& options) const override {
    return group.reduce_scatter(std::move(input), options.reduce_op, options.dtype,
                                options.timeout);
  }
  bool is_right(std::span<const std::byte> result, const CollectiveOptions& options,
                std::uint64_t iteration) const override {
    const std::uint64_t block = options.size / options.ranks;
    const std::uint64_t first = options.rank * block / element_size(options.dtype);
    return result.size() == block && is_combined(result, first, options, iteration);
  }
};

// --size is what all have together.
class Allgather final : public GroupOp {
 public:
  std::string_view name() const override { return "allgather"; }
  double bound_factor(std::uint32_t ranks) const override { return share_of_others(ranks); }
  std::uint64_t usable_size(const CollectiveOptions& options) const override {
    return cut_evenly(options);
  }
  std::uint64_t pool_bytes(const CollectiveOptions& options) const override {
    return 2 * options.size;
  }

 private:
  std::uint64_t input_bytes(const CollectiveOptions& options) const override {
    return options.size / options.ranks;
  }
  Result<ObjectView> call(Group& group, GroupBuffer input,
                          const CollectiveOptions& options) const override {
    return group.allgather(std::move(input), options.timeout);
  }
  bool is_right(std::span<const std::byte> result, const CollectiveOptions& options,
                std::uint64_t iteration) const override {
    const std::uint64_t block = input_bytes(options);
    bool right = result.size() == options.size;
    for (std::uint32_t rank = 0; rank < options.ranks && right; ++rank)
      right = is_given_by(rank, result.subspan(rank * block, block), 0, options, iteration);
    return right;
  }
};

// --size is what one rank gives.
class Gather final : public GroupOp {
 public:
  std::string_view name() const override { return "gather"; }
  double bound_factor(std::uint32_t ranks) const override { return ranks - 1; }
  std::uint64_t pool_bytes(const CollectiveOptions& options) const override {
    return (options.rank == 0 ? options.ranks + std::uint64_t{1} : 1) * options.size;
  }

 private:
  Result<ObjectView> call(Group& group, GroupBuffer input,
                          const CollectiveOptions& options) const override {
    return group.gather(0, std::move(input), options.timeout);
  }
  bool is_right(std::span<const std::byte> result, const CollectiveOptions& options,
                std::uint64_t iteration) const override {
    if (options.rank != 0) return result.empty();
    bool right = result.size() == options.ranks * options.size;
    for (std::uint32_t rank = 0; rank < options.ranks && right; ++rank) {
      right = is_given_by(rank, result.subspan(rank * options.size, options.size), 0, options,
                          iteration);
    }
    return right;
  }
};

// --size is what one rank gets.
class Scatter final : public GroupOp {
 public:
  std::string_view name() const override { return "scatter"; }
  double bound_factor(std::uint32_t ranks) const override { return ranks - 1; }
  std::uint64_t pool_bytes(const CollectiveOptions& options) const override {
    return input_bytes(options) + options.size;
  }

 private:
  std::uint64_t input_bytes(const CollectiveOptions& options) const override {
    return options.rank == 0 ? options.ranks * options.size : 0;
  }
  Result<ObjectView> call(Group& group, GroupBuffer input,
                          const CollectiveOptions& options) const override {
    return group.scatter(0, options.ranks * options.size, std::move(input), options.timeout);
  }
  bool is_right(std::span<const std::byte> result, const CollectiveOptions& options,
                std::uint64_t iteration) const override {
    const std::uint64_t first = options.rank * options.size / element_size(options.dtype);
    return result.size() == options.size && is_given_by(0, result, first, options, iteration);
  }
};

class AllToAll final : public GroupOp {
 public:
  std::string_view name() const override { return "alltoall"; }
  double bound_factor(std::uint32_t ranks) const override { return share_of_others(ranks); }
  std::uint64_t usable_size(const CollectiveOptions& options) const override {
    return cut_evenly(options);
  }
  std::uint64_t pool_bytes(const CollectiveOptions& options) const override {
    return 2 * options.size;
  }

 private:
  Result<ObjectView> call(Group& group, GroupBuffer input,
                          const CollectiveOptions& options) const override {
    return group.all_to_all(std::move(input), options.timeout);
  }
  bool is_right(std::span<const std::byte> result, const CollectiveOptions& options,
                std::uint64_t iteration) const override {
    const std::uint64_t block = options.size / options.ranks;
    const std::uint64_t first = options.rank * block / element_size(options.dtype);
    bool right = result.size() == options.size;
    for (std::uint32_t rank = 0; rank < options.ranks && right; ++rank)
      right = is_given_by(rank, result.subspan(rank * block, block), first, options, iteration);
    return right;
  }
};

// Nothing is moved, so there is no bound to compare with.
class BarrierOp final : public CollectiveOp {
 public:
  std::string_view name() const override { return "barrier"; }
  bool has_elements() const override { return true; }
  double bound_factor(std::uint32_t) const override { return 0; }
  double bus_factor(std::uint32_t) const override { return 0; }
  std::uint64_t usable_size(const CollectiveOptions&) const override { return 0; }

  Status prepare(CollectiveContext& context, const std::string& key, std::uint64_t) override {
    auto group = Group::open(context.store, key, context.options.rank, context.ranks);
    if (!group) return fail(group.error());
    group_.emplace(std::move(*group));
    return {};
  }
  Status execute(CollectiveContext& context, const std::string&) override {
    return group_->barrier(context.options.timeout);
  }
  std::uint64_t check(CollectiveContext&, std::uint64_t) override { return 0; }
  Status clean(CollectiveContext&, const std::string&) override {
    group_.reset();
    return {};
  }

 private:
  std::optional<Group> group_;
};

template <class Op>
std::unique_ptr<CollectiveOp> make() {
  return std::make_unique<Op>();
}

}  // namespace

std::span<const GroupOperation> group_operations() {
  static constexpr std::array kAll = {
      GroupOperation{"Time to combine an input of each rank for all of them",
                     "Every rank gives --size bytes and gets as many.", make<Allreduce>},
      GroupOperation{"Time to combine an input of each rank, a part of it for each",
                     "Every rank gives --size bytes and gets a part of the combination.",
                     make<ReduceScatter>},
      GroupOperation{"Time to bring what each rank has to all",
                     "--size is what the ranks have together, as in nccl-tests: each gives its "
                     "part and gets all.",
                     make<Allgather>},
      GroupOperation{"Time to bring what each rank has to one",
                     "Every rank gives --size bytes; rank 0 gets all.", make<Gather>},
      GroupOperation{"Time to bring a part of what one rank has to each",
                     "Rank 0 gives; every rank gets --size bytes.", make<Scatter>},
      GroupOperation{"Time for each rank to give a part of what it has to each",
                     "Every rank gives --size bytes, a part to each, and gets as many.",
                     make<AllToAll>},
      GroupOperation{"Time for all ranks to meet", "Nothing is moved: there is no bound.",
                     make<BarrierOp>},
  };
  return kAll;
}

}  // namespace lochos
