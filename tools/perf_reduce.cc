// `lochos perf reduce`: every rank puts an object, rank 0 has them reduced and gets the result.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "tools/perf_collective.h"
#include "tools/perf_elements.h"

namespace lochos {
namespace {

class ReduceToFirst final : public CollectiveOp {
 public:
  std::string_view name() const override { return "reduce"; }
  bool combines() const override { return true; }
  bool takes_count() const override { return true; }
  // A pipelined chain: every link carries the size of one object, all at the same time.
  double bound_factor(std::uint32_t) const override { return 1; }
  bool is_timed(std::uint32_t rank) const override { return rank == 0; }
  // The result can be there once the last source that goes in is.
  std::optional<Duration> begins(const CollectiveOptions& options) const override {
    return (options.sources() - 1) * options.arrive;
  }

  // The source is in the rank's own memory before the clock starts; the cluster hears of it only
  // in execute().
  Status prepare(CollectiveContext& context, const std::string&, std::uint64_t seed) override {
    source_.resize(context.options.size);
    fill_elements(source_, context.options.dtype, seed_of(seed, context.options.rank));
    return {};
  }

  Status execute(CollectiveContext& context, const std::string& key) override {
    const CollectiveOptions& options = context.options;
    auto put = context.store.put_user_memory(source(key, options.rank), source_, options.timeout);
    if (!put || options.rank != 0) return put;
    std::vector<Store::Key> sources;
    for (std::uint32_t rank = 0; rank < context.ranks; ++rank)
      sources.emplace_back(source(key, rank));
    auto reduced = context.store.reduce_async(
        key, sources, {.op = options.reduce_op, .dtype = options.dtype, .count = options.sources()},
        options.timeout);
    auto target = context.store.get_async(key, options.timeout);
    auto result = reduced.take();
    if (!result) return fail(result.error());
    included_ = std::move(result->included);
    auto view = target.take();
    if (!view) return fail(view.error());
    view_ = std::move(*view);
    return {};
  }

  std::uint64_t check(CollectiveContext& context, std::uint64_t seed) override {
    const CollectiveOptions& options = context.options;
    if (options.rank != 0) return 0;
    std::vector<std::uint64_t> seeds;
    for (const std::size_t rank : included_)
      seeds.push_back(seed_of(seed, rank));
    const bool right = included_.size() == options.sources() && view_->size() == options.size &&
                       !find_wrong_element(view_->bytes(), options.reduce_op, options.dtype, seeds,
                                           options.verify);
    return right ? 0 : 1;
  }

  Status clean(CollectiveContext& context, const std::string& key) override {
    view_.reset();
    const CollectiveOptions& options = context.options;
    if (options.rank == 0) {
      if (auto erased = context.store.erase(key, options.timeout); !erased) return erased;
    }
    return context.store.erase(source(key, options.rank), options.timeout);
  }

 private:
  static std::string source(const std::string& key, std::uint32_t rank) {
    return key + "/" + std::to_string(rank);
  }
  static std::uint64_t seed_of(std::uint64_t iteration, std::uint64_t rank) {
    return iteration << 32 | rank;
  }

  std::vector<std::byte> source_;
  std::vector<std::size_t> included_;
  std::optional<ObjectView> view_;
};

}  // namespace

std::unique_ptr<CollectiveOp> make_reduce_to_first() {
  return std::make_unique<ReduceToFirst>();
}

}  // namespace lochos
