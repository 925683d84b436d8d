#include "tools/perf_collective.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <span>
#include <thread>
#include <type_traits>

#include "tools/perf_pattern.h"
#include "tools/perf_statistics.h"

namespace lochos {
namespace {

// Iterations of the pair, for the bound: one to connect and these to measure.
constexpr std::uint32_t kPairIterations = 3;

Instant now() {
  return SteadyClock().now();
}

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto s = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return s(usage.ru_utime) + s(usage.ru_stime);
}

tl::unexpected<Error> failed_in(std::string_view step, const std::string& key, const Error& error) {
  return fail(Error(error).with_operation(fmt::format("{} of {}", step, key)));
}

}  // namespace

bool has_contents(std::span<const std::byte> bytes, std::uint64_t seed, bool all) {
  if (all) return !find_mismatch(bytes, seed);
  return !find_sampled_mismatch(bytes, seed);
}

IterationFigures combine(std::span<const RankFigures> ranks) {
  IterationFigures all;
  if (!ranks.empty()) all.bytes_sent_first = ranks.front().bytes_sent;
  for (const RankFigures& rank : ranks) {
    all.total_s = std::max(all.total_s, rank.total_s);
    all.own_s = std::max(all.own_s, rank.own_s);
    all.cpu_s += rank.cpu_s;
    all.bytes_sent_max = std::max(all.bytes_sent_max, rank.bytes_sent);
    all.bytes_sent_total += rank.bytes_sent;
    all.bytes_received_total += rank.bytes_received;
    all.wrong += rank.wrong;
  }
  return all;
}

Collective::Collective(std::unique_ptr<Node> node, const CollectiveOptions& options)
    : node_(std::move(node)), options_(options), store_(node_->store()) {}

Result<std::unique_ptr<Collective>> Collective::join(const NodeOptions& node,
                                                     const CollectiveOptions& options,
                                                     std::string_view name) {
  auto started = Node::start(node);
  if (!started) return fail(started.error());
  if (auto joined = (*started)->wait_until_joined(options.timeout); !joined)
    return fail(joined.error());
  std::unique_ptr<Collective> collective(new Collective(std::move(*started), options));
  if (auto agreed = collective->agree_on_run(name); !agreed) return fail(agreed.error());
  return collective;
}

// Rank 0 chooses a word that no earlier run has used, so that what a killed run left behind cannot
// be taken for objects of this one.
Status Collective::agree_on_run(std::string_view name) {
  const std::string key = fmt::format("lochos/perf/{}/run", name);
  if (options_.rank == 0) {
    const std::string word = fmt::format("{:x}-{:x}", now().time_since_epoch().count(), ::getpid());
    (void)store_.erase(key, options_.timeout);
    if (auto put = store_.put(key, std::as_bytes(std::span(word)), options_.timeout); !put)
      return failed_in("put", key, put.error());
  }
  if (auto met = meet(key, options_.ranks); !met) return met;
  auto word = store_.get(key, options_.timeout);
  if (!word) return failed_in("get", key, word.error());
  run_ = fmt::format(
      "lochos/perf/{}/{}", name,
      std::string_view(reinterpret_cast<const char*>(word->bytes().data()), word->size()));
  if (auto met = meet(run_, options_.ranks); !met) return met;
  if (options_.rank == 0) (void)store_.erase(key, options_.timeout);
  return {};
}

Status Collective::meet(const std::string& name, std::uint32_t ranks) {
  if (ranks < 2) return {};
  auto met = store_.barrier(name, ranks, options_.timeout);
  if (!met) return failed_in("barrier", name, met.error());
  return {};
}

Result<CollectiveResult> Collective::run(CollectiveOp& op) {
  CollectiveResult result;
  if (options_.ranks >= 2) {
    if (options_.rank < 2) {
      const std::unique_ptr<CollectiveOp> pair = make_broadcast();
      auto figures = iterate(*pair, "pair", 2, 1, kPairIterations, Duration{0});
      if (!figures) return fail(figures.error());
      std::vector<double> times;
      for (const IterationFigures& i : *figures)
        times.push_back(i.total_s);
      result.bound_s = median(times) * op.bound_factor(options_.ranks);
    }
    if (auto met = meet(run_ + "/pair-done", options_.ranks); !met) return fail(met.error());
  }
  auto figures =
      iterate(op, "run", options_.ranks, options_.warmup, options_.iterations, options_.arrive);
  if (!figures) return fail(figures.error());
  result.iterations = std::move(*figures);
  return result;
}

Result<std::vector<IterationFigures>> Collective::iterate(CollectiveOp& op, std::string_view label,
                                                          std::uint32_t ranks, std::uint32_t warmup,
                                                          std::uint32_t iterations,
                                                          Duration arrive) {
  CollectiveContext context{store_, options_, ranks};
  std::vector<IterationFigures> all;
  for (std::uint32_t i = 0; i < warmup + iterations; ++i) {
    const std::string key = fmt::format("{}/{}/{}", run_, label, i);
    auto own = measure(op, context, key, i, arrive);
    if (!own) return fail(own.error());
    auto ranks_figures = gather(*own, key, ranks);
    if (!ranks_figures) return fail(ranks_figures.error());
    if (auto cleaned = op.clean(context, key); !cleaned)
      return failed_in("clean-up", key, cleaned.error());
    if (options_.rank != 0 || i < warmup) continue;
    all.push_back(combine(*ranks_figures));
    if (label == "run") print_iteration(i - warmup, all.back());
  }
  return all;
}

Result<RankFigures> Collective::measure(CollectiveOp& op, CollectiveContext& context,
                                        const std::string& key, std::uint64_t seed,
                                        Duration arrive) {
  const auto failed = [&](std::string_view step, const Error& error) {
    return failed_in(step, key, error);
  };
  if (auto prepared = op.prepare(context, key, seed); !prepared)
    return failed("preparation", prepared.error());
  auto before = store_.stats(options_.timeout);
  if (!before) return failed("stats", before.error());
  if (auto met = meet(key + "/start", context.ranks); !met) return fail(met.error());

  RankFigures own;
  const Instant start = now();
  const double cpu = cpu_seconds();
  if (options_.rank > 0 && arrive > Duration{0})
    std::this_thread::sleep_until(start + options_.rank * arrive);
  const Instant arrived = now();
  if (auto done = op.execute(context, key); !done) return failed(op.name(), done.error());
  const Instant end = now();
  if (op.is_timed(options_.rank)) {
    const auto begins = op.begins(options_);
    own.total_s = seconds(end - start);
    own.own_s = seconds(end - (begins && arrive > Duration{0} ? start + *begins : arrived));
  }

  // The node goes on forwarding to others after its own part; that counts as well.
  if (auto met = meet(key + "/done", context.ranks); !met) return fail(met.error());
  own.cpu_s = cpu_seconds() - cpu;
  auto after = store_.stats(options_.timeout);
  if (!after) return failed("stats", after.error());
  own.bytes_sent = after->bytes_sent - before->bytes_sent;
  own.bytes_received = after->bytes_received - before->bytes_received;
  own.wrong = op.check(context, seed);
  return own;
}

Result<std::vector<RankFigures>> Collective::gather(const RankFigures& own, const std::string& key,
                                                    std::uint32_t ranks) {
  static_assert(std::is_trivially_copyable_v<RankFigures>);
  const auto name = [&](std::uint32_t rank) { return fmt::format("{}/figures/{}", key, rank); };
  std::vector<RankFigures> all{own};
  if (options_.rank != 0) {
    const std::string mine = name(options_.rank);
    auto put = store_.put(mine, std::as_bytes(std::span(&own, 1)), options_.timeout);
    if (!put) return failed_in("put", mine, put.error());
  }
  for (std::uint32_t rank = 1; rank < ranks && options_.rank == 0; ++rank) {
    auto view = store_.get(name(rank), options_.timeout);
    if (!view) return failed_in("get", name(rank), view.error());
    if (view->size() != sizeof(RankFigures))
      return fail(Errc::kProtocol, fmt::format("rank {} is of another release", rank));
    std::memcpy(&all.emplace_back(), view->bytes().data(), sizeof(RankFigures));
  }
  if (auto met = meet(key + "/gathered", ranks); !met) return fail(met.error());
  if (options_.rank != 0) {
    if (auto erased = store_.erase(name(options_.rank), options_.timeout); !erased)
      return failed_in("erase", name(options_.rank), erased.error());
  }
  return all;
}

}  // namespace lochos
