#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "base/units.h"
#include "tools/json.h"
#include "tools/perf_collective.h"
#include "tools/perf_statistics.h"

namespace lochos {
namespace {

template <class F>
double median_of(const CollectiveResult& result, F field) {
  std::vector<double> values;
  for (const IterationFigures& i : result.iterations)
    values.push_back(static_cast<double>(field(i)));
  return median(values);
}

// What a run comes to.
struct Summary {
  double median_s = 0, min_s = 0, max_s = 0, median_own_s = 0, cpu_s = 0;
  double bytes_sent_max = 0, bytes_sent_first = 0, bytes_sent_total = 0, bytes_received_total = 0;
  std::uint64_t wrong = 0;
};

Summary summarise(const CollectiveResult& result) {
  using I = IterationFigures;
  Summary s;
  s.median_s = median_of(result, [](const I& i) { return i.total_s; });
  s.median_own_s = median_of(result, [](const I& i) { return i.own_s; });
  s.cpu_s = median_of(result, [](const I& i) { return i.cpu_s; });
  s.bytes_sent_max = median_of(result, [](const I& i) { return i.bytes_sent_max; });
  s.bytes_sent_first = median_of(result, [](const I& i) { return i.bytes_sent_first; });
  s.bytes_sent_total = median_of(result, [](const I& i) { return i.bytes_sent_total; });
  s.bytes_received_total = median_of(result, [](const I& i) { return i.bytes_received_total; });
  s.min_s = result.iterations.empty() ? 0 : result.iterations.front().total_s;
  for (const I& i : result.iterations) {
    s.min_s = std::min(s.min_s, i.total_s);
    s.max_s = std::max(s.max_s, i.total_s);
    s.wrong += i.wrong;
  }
  return s;
}

// For a whole that starts together the slowest rank's time, else the slowest since its own arrival.
double own_time(const CollectiveOptions& options, const Summary& summary) {
  return options.arrive > Duration{0} ? summary.median_own_s : summary.median_s;
}

// The part of the limit that was reached.
double share_of_bound(const CollectiveOptions& options, const CollectiveResult& result,
                      const Summary& summary) {
  const double time = own_time(options, summary);
  return time > 0 ? result.bound_s / time : 0;
}

// MB are 2^20 bytes.
double algorithm_rate(const CollectiveOptions& options, const CollectiveResult& result,
                      const Summary& summary) {
  const double time = own_time(options, summary);
  return result.iterations.empty() || time <= 0
             ? 0
             : static_cast<double>(options.size) / time / (1 << 20);
}

std::string_view reduction(const CollectiveOp& op, const CollectiveOptions& options) {
  return op.combines() ? to_string(options.reduce_op) : "none";
}

// In the columns of nccl-tests.
void print_elements(const CollectiveOp& op, const CollectiveOptions& options,
                    const CollectiveResult& result, const Summary& summary) {
  const double rate = algorithm_rate(options, result, summary);
  fmt::print("#{:>11} {:>11} {:>5} {:>6} {:>10} {:>12} {:>12} {:>7} {:>8}\n", "size[B]", "count",
             "type", "redop", "time[us]", "algbw[MB/s]", "busbw[MB/s]", "#wrong", "share");
  fmt::print(" {:>11} {:>11} {:>5} {:>6} {:>10.0f} {:>12.1f} {:>12.1f} {:>7} {:>8.3f}\n",
             options.size, options.size / element_size(options.dtype), to_string(options.dtype),
             reduction(op, options), own_time(options, summary) * 1e6, rate,
             rate * op.bus_factor(options.ranks), summary.wrong,
             share_of_bound(options, result, summary));
}

constexpr const char* kLine = " {:<10} {:>10.4f} {:>10.4f} {:>14} {:>14} {:>14} {:>9.3f}\n";

}  // namespace

void print_collective_header() {
  fmt::print(" {:<10} {:>10} {:>10} {:>14} {:>14} {:>14} {:>9}\n", "#iteration", "slowest[s]",
             "own[s]", "sent max[B]", "sent all[B]", "received[B]", "CPU[s]");
  std::fflush(stdout);
}

void print_iteration(std::size_t number, const IterationFigures& i) {
  fmt::print(kLine, number, i.total_s, i.own_s, i.bytes_sent_max, i.bytes_sent_total,
             i.bytes_received_total, i.cpu_s);
  std::fflush(stdout);
}

void print_collective(const CollectiveOp& op, const CollectiveOptions& options,
                      const CollectiveResult& result) {
  const Summary s = summarise(result);
  const auto bytes = [](double value) { return fmt::format("{:.0f}", value); };
  fmt::print(kLine, "median", s.median_s, s.median_own_s, bytes(s.bytes_sent_max),
             bytes(s.bytes_sent_total), bytes(s.bytes_received_total), s.cpu_s);
  if (op.has_elements()) print_elements(op, options, result, s);
  if (result.bound_s > 0) {
    const double factor = op.bound_factor(options.ranks);
    fmt::print(
        "# bound {:.4f} s: {}{} over the bandwidth of ranks 0 and 1 alone, measured in this run "
        "({:.1f} MB/s)\n# share of the bound {:.3f}\n",
        result.bound_s, factor == 1 ? "" : fmt::format("{:.4g} times ", factor),
        format_size(options.size),
        factor * static_cast<double>(options.size) / result.bound_s / (1 << 20),
        share_of_bound(options, result, s));
  }
  if (s.wrong > 0) fmt::print("# {} objects had WRONG contents\n", s.wrong);
  std::fflush(stdout);
}

std::string collective_json(const CollectiveOp& op, const CollectiveOptions& options,
                            const CollectiveResult& result) {
  const Summary s = summarise(result);
  const bool known = !result.iterations.empty();
  JsonWriter json;
  const auto number = [&](std::string_view key, double value) {
    known ? json.field(key, value) : json.key(key).null();
  };
  const auto count = [&](std::string_view key, double value) {
    known ? json.field(key, static_cast<std::uint64_t>(value)) : json.key(key).null();
  };
  const double rate = algorithm_rate(options, result, s);
  json.begin_object().field("op", op.name());
  json.field("ranks", options.ranks).field("size", options.size);
  if (op.has_elements()) {
    json.field("count", options.size / element_size(options.dtype));
    json.field("dtype", to_string(options.dtype)).field("reduce_op", reduction(op, options));
  }
  if (op.takes_count()) json.field("sources", options.sources());
  json.field("iterations", result.iterations.size());
  number("median_s", s.median_s);
  number("min_s", s.min_s);
  number("max_s", s.max_s);
  number("median_own_s", s.median_own_s);
  number("bound_s", result.bound_s);
  number("share", share_of_bound(options, result, s));
  number("algbw_MBps", rate);
  number("busbw_MBps", rate * op.bus_factor(options.ranks));
  count("wrong", static_cast<double>(s.wrong));
  count("bytes_sent_max", s.bytes_sent_max);
  count("bytes_sent_first", s.bytes_sent_first);
  count("bytes_sent_total", s.bytes_sent_total);
  count("bytes_received_total", s.bytes_received_total);
  number("cpu_s", s.cpu_s);
  json.key("each").begin_array();
  for (const IterationFigures& i : result.iterations) {
    json.begin_object().field("s", i.total_s).field("own_s", i.own_s).field("cpu_s", i.cpu_s);
    json.field("bytes_sent_max", i.bytes_sent_max).field("bytes_sent_total", i.bytes_sent_total);
    json.field("wrong", i.wrong).end_object();
  }
  json.end_array().end_object();
  return json.text();
}

}  // namespace lochos
