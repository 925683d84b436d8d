#include "tools/demo_reduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>

#include "base/units.h"
#include "compute/reduce_kernels.h"
#include "tools/deadline.h"
#include "tools/digest.h"
#include "tools/perf_elements.h"

namespace lochos {
namespace {

constexpr const char* kTarget = "demo-sum";
constexpr Duration kReduceTimeout = std::chrono::seconds(8);
constexpr DataType kType = DataType::kF32;
// The first source is held back at this share until somebody has been killed.
constexpr double kFirstShare = 0.6;
// The victim is killed once this share of the stream that it adds to has reached it.
constexpr double kKillAt = 0.4;

std::string part_name(std::size_t node) {
  return fmt::format("demo-part-{}", node + 1);
}

std::vector<std::byte> part_of(std::size_t node) {
  std::vector<std::byte> bytes(kDemoPartBytes);
  fill_elements(bytes, kType, node);
  return bytes;
}

class DemoReduce {
 public:
  DemoReduce(DemoCluster& cluster, const StopSignals& signals)
      : cluster_(cluster), signals_(signals), deadline_(kReduceTimeout) {
    for (std::size_t i = 0; i < cluster.nodes().size(); ++i) {
      if (!cluster.is_killed(i)) alive_.push_back(i);
    }
    for (const std::size_t node : alive_) {
      outcome_.rows.emplace_back().name = cluster.nodes()[node].name;
      sources_.emplace_back(part_name(node));
    }
    // The last to come is not needed until another's contribution is lost.
    outcome_.sources = alive_.size() - 1;
  }

  Result<DemoReduceOutcome> run() {
    if (auto begun = begin(); !begun) return fail(begun.error());
    if (auto killed = kill_in_the_middle(); !killed) return fail(killed.error());
    if (auto sealed = finish_first(); !sealed) return fail(sealed.error());
    judge(reduced_->take());
    return std::move(outcome_);
  }

 private:
  static constexpr std::size_t kVictim = 1;  // its neighbours are the first source and the root

  Store& store(std::size_t row) { return cluster_.nodes()[alive_[row]].store; }

  // Asks for the sum before there is anything, then lets the contributions turn up one by one.
  Status begin() {
    started_ = SteadyClock().now();
    reduced_.emplace(store(0).reduce_async(
        kTarget, sources_, {.dtype = kType, .count = outcome_.sources}, deadline_.remaining()));
    for (std::size_t row = 0; row < alive_.size(); ++row) {
      const std::vector<std::byte> bytes = part_of(alive_[row]);
      auto writer = store(row).create(part_name(alive_[row]), bytes.size(), deadline_.remaining());
      if (!writer) return fail(writer.error());
      const auto share =
          row == 0 ? static_cast<std::size_t>(kFirstShare * static_cast<double>(bytes.size())) /
                         4096 * 4096
                   : bytes.size();
      std::copy_n(bytes.begin(), share, writer->bytes().begin());
      if (row == 0) {
        writer->publish(share);
        first_.emplace(std::move(*writer));
        auto stats = store(kVictim).stats(deadline_.remaining());
        if (!stats) return fail(stats.error());
        received_before_ = stats->bytes_received;
      } else if (auto sealed = writer->seal(deadline_.remaining()); !sealed) {
        return sealed;
      }
      outcome_.rows[row].role = row == kVictim           ? "killed"
                                : row < outcome_.sources ? "contributor"
                                                         : "spare";
    }
    return {};
  }

  Status kill_in_the_middle() {
    constexpr Duration kLook = std::chrono::milliseconds(2);
    while (outcome_.killed_at < kKillAt) {
      if (signals_.wait(kLook)) return fail(Errc::kCancelled, "interrupted");
      auto stats = store(kVictim).stats(deadline_.remaining());
      if (!stats) return fail(stats.error());
      outcome_.killed_at = static_cast<double>(stats->bytes_received - received_before_) /
                           static_cast<double>(kDemoPartBytes);
      if (deadline_.remaining() == Duration{0})
        return fail(Errc::kTimedOut, "the sum did not begin to move");
    }
    cluster_.kill(alive_[kVictim]);
    return {};
  }

  Status finish_first() {
    const std::vector<std::byte> bytes = part_of(alive_[0]);
    std::copy(bytes.begin(), bytes.end(), first_->bytes().begin());
    return first_->seal(deadline_.remaining());
  }

  // What the survivors hold, against the sum of all but the victim's.
  void judge(Result<ReduceResult> result) {
    for (std::size_t row = 0; row < alive_.size(); ++row) {
      if (row != kVictim) look_at_copy(row);
    }
    outcome_.sha256 = sha256(expected());
    if (!result) {
      outcome_.wrong.push_back(result.error().to_string());
    } else {
      for (const std::size_t row : result->included)
        outcome_.rows[row].included = true;
    }
    for (std::size_t row = 0; row < alive_.size(); ++row)
      judge_row(outcome_.rows[row], row == kVictim);
  }

  void look_at_copy(std::size_t row) {
    DemoReduceRow& shown = outcome_.rows[row];
    auto view = store(row).get(kTarget, deadline_.remaining());
    shown.seconds = seconds(SteadyClock().now() - started_);
    if (view) {
      shown.sha256 = sha256(view->bytes());
    } else {
      shown.error = view.error().to_string();
    }
  }

  void judge_row(const DemoReduceRow& row, bool victim) {
    if (row.included == victim) {
      outcome_.wrong.push_back(
          fmt::format("the contribution of {} {}", row.name, victim ? "went in" : "is missing"));
    }
    if (victim) return;
    if (!row.error.empty()) {
      outcome_.wrong.push_back(fmt::format("{}: {}", row.name, row.error));
    } else if (row.sha256 != outcome_.sha256) {
      outcome_.wrong.push_back(fmt::format("{} has another sum: sha256 {}", row.name, row.sha256));
    }
  }

  std::vector<std::byte> expected() const {
    std::vector<std::byte> sum = part_of(alive_[0]);
    for (std::size_t row = 1; row < alive_.size(); ++row) {
      if (row == kVictim) continue;
      const std::vector<std::byte> part = part_of(alive_[row]);
      reduce_into(ReduceOp::kSum, kType, sum.data(), sum.data(), part.data(), sum.size());
    }
    return sum;
  }

  DemoCluster& cluster_;
  const StopSignals& signals_;
  const Deadline deadline_;
  std::vector<std::size_t> alive_;  // by row
  std::vector<Store::Key> sources_;
  Instant started_{};
  std::optional<Pending<ReduceResult>> reduced_;
  std::optional<ObjectWriter> first_;
  std::uint64_t received_before_ = 0;
  DemoReduceOutcome outcome_;
};

}  // namespace

Result<DemoReduceOutcome> run_demo_reduce(DemoCluster& cluster, const StopSignals& signals) {
  return DemoReduce(cluster, signals).run();
}

void print_demo_reduce(const DemoReduceOutcome& outcome) {
  fmt::print("\nreduce: the sum of the first {} of {} contributions of {}, while they are made\n",
             outcome.sources, outcome.rows.size(), format_size(kDemoPartBytes));
  for (const DemoReduceRow& row : outcome.rows) {
    if (row.role != "killed") continue;
    fmt::print("{} was killed (SIGKILL) when it had added its own to {:.0f} % of the first one's\n",
               row.name, outcome.killed_at * 100);
  }
  fmt::print("\n{:<8}  {:<11}  {:<10}  {:>8}  {}\n", "node", "role", "in the sum", "time",
             "sha256");
  for (const DemoReduceRow& row : outcome.rows) {
    const bool whole = row.error.empty() && row.role != "killed";
    fmt::print("{:<8}  {:<11}  {:<10}  {:>8}  {}\n", row.name, row.role,
               row.included ? "yes" : "no", whole ? fmt::format("{:.2f} s", row.seconds) : "-",
               !whole                         ? "-"
               : row.sha256 == outcome.sha256 ? "ok"
                                              : "WRONG");
  }
}

void write_demo_reduce(JsonWriter& json, const DemoReduceOutcome& outcome) {
  json.begin_object()
      .field("size", kDemoPartBytes)
      .field("sources", outcome.sources)
      .field("sha256", outcome.sha256)
      .field("killed_at", outcome.killed_at)
      .key("nodes")
      .begin_array();
  for (const DemoReduceRow& row : outcome.rows) {
    json.begin_object()
        .field("name", row.name)
        .field("role", row.role)
        .field("included", row.included)
        .field("seconds", row.seconds)
        .field("sha256_ok", row.sha256 == outcome.sha256)
        .field("error", row.error)
        .end_object();
  }
  json.end_array().end_object();
}

}  // namespace lochos
