// `lochos perf bcast`: rank 0 puts an object, all others get it.
#include <optional>

#include "tools/perf_collective.h"
#include "tools/perf_pattern.h"

namespace lochos {
namespace {

class Broadcast final : public CollectiveOp {
 public:
  std::string_view name() const override { return "bcast"; }
  // A pipelined chain brings the object to everybody in the time of one hop.
  double bound_factor(std::uint32_t) const override { return 1; }

  // The source fills its object before the clock starts, as a program that computes it would.
  Status prepare(CollectiveContext& context, const std::string& key, std::uint64_t seed) override {
    if (context.options.rank != 0) return {};
    auto writer = context.store.create(key, context.options.size, context.options.timeout);
    if (!writer) return fail(writer.error());
    fill_pattern(writer->bytes(), seed);
    writer_ = std::move(*writer);
    return {};
  }

  Status execute(CollectiveContext& context, const std::string& key) override {
    if (context.options.rank == 0) return writer_->seal(context.options.timeout);
    auto view = context.store.get(key, context.options.timeout);
    if (!view) return fail(view.error());
    view_ = std::move(*view);
    return {};
  }

  std::uint64_t check(CollectiveContext& context, std::uint64_t seed) override {
    if (context.options.rank == 0) return 0;
    const bool right = view_->size() == context.options.size &&
                       has_contents(view_->bytes(), seed, context.options.verify);
    return right ? 0 : 1;
  }

  Status clean(CollectiveContext& context, const std::string& key) override {
    writer_.reset();
    view_.reset();
    if (context.options.rank != 0) return {};
    return context.store.erase(key, context.options.timeout);
  }

 private:
  std::optional<ObjectWriter> writer_;
  std::optional<ObjectView> view_;
};

}  // namespace

std::unique_ptr<CollectiveOp> make_broadcast() {
  return std::make_unique<Broadcast>();
}

}  // namespace lochos
