#include "tools/demo_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <thread>

#include "base/temporary_folder.h"
#include "base/units.h"
#include "tools/demo_cluster.h"
#include "tools/demo_reduce.h"
#include "tools/digest.h"
#include "tools/file_io.h"
#include "tools/json.h"
#include "tools/options.h"
#include "tools/progress.h"
#include "tools/stop_signals.h"
#include "tools/store_command.h"

namespace lochos {
namespace {

constexpr const char* kFooter =
    "Starts one directory and five nodes on loopback, puts a file on the first, gets it on the "
    "other\n"
    "four at once, kills one of them in the middle, and compares SHA-256 everywhere. Then the "
    "four\n"
    "that are left contribute to a sum, and another is killed while its contribution is added.\n"
    "Needs no root and no RDMA, ends in a few seconds and removes what it made.\n\n"
    "  lochos demo\n"
    "  lochos demo weights.bin";

constexpr std::size_t kNodeCount = 5;
constexpr const char* kObjectName = "demo";
constexpr Duration kStartTimeout = std::chrono::seconds(8);
constexpr Duration kMoveTimeout = std::chrono::seconds(10);
constexpr Duration kStopTimeout = std::chrono::seconds(3);
// The receiver is killed once this share of its copy is there.
constexpr double kKillAt = 0.4;

struct DemoArguments {
  std::string file;
  std::uint64_t size = 256ULL << 20;
  bool json = false;
};

struct Row {
  std::string role = "receiver";
  double seconds = 0;
  std::string sha256;
  std::string error;                 // why it has no copy
  std::vector<std::string> parents;  // in the order in which they were seen
};

// Bytes that do not compress and differ everywhere: a transfer that mixes up offsets is seen.
std::vector<std::byte> random_bytes(std::uint64_t size) {
  std::vector<std::byte> bytes(size);
  std::uint64_t state = 0x9E3779B97F4A7C15ULL;
  for (std::size_t at = 0; at < bytes.size(); at += sizeof state) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    std::memcpy(bytes.data() + at, &state, std::min(sizeof state, bytes.size() - at));
  }
  return bytes;
}

Status check_memory(std::uint64_t size) {
  std::ifstream meminfo("/proc/meminfo");
  std::uint64_t available_kb = 0;
  for (std::string line; std::getline(meminfo, line);) {
    if (line.starts_with("MemAvailable:")) available_kb = std::stoull(line.substr(13));
  }
  const std::uint64_t need = kNodeCount * std::max(size, 3 * kDemoPartBytes) + (256ULL << 20);
  if (available_kb == 0 || need <= available_kb * 1024) return {};
  return fail(Error(Errc::kNoSpace, fmt::format("five nodes with {} each need {}, and {} is free",
                                                format_size(size), format_size(need),
                                                format_size(available_kb * 1024)))
                  .with_operation("demo")
                  .with_fix(fmt::format("--size {}M",
                                        std::max<std::uint64_t>(1, available_kb / 1024 / 12))));
}

// The run's actors. The main thread watches and kills; one thread a receiver gets and hashes.
class Demo {
 public:
  Demo(DemoCluster& cluster, std::string path, std::uint64_t size, const StopSignals& signals)
      : cluster_(cluster), path_(std::move(path)), size_(size), signals_(signals) {
    rows_[0].role = "source";
  }

  Status run() {
    if (auto put = put_source(); !put) return put;
    std::vector<std::thread> receivers;
    const Instant started = SteadyClock().now();
    for (std::size_t i = 1; i < kNodeCount; ++i)
      receivers.emplace_back([this, i, started] { receive(i, started); });
    const Status watched = watch();
    if (!watched) {  // their nodes are the quickest way to end their waits
      for (std::size_t i = 1; i < kNodeCount; ++i)
        cluster_.kill(i);
    }
    for (std::thread& receiver : receivers)
      receiver.join();
    return watched;
  }

  const std::array<Row, kNodeCount>& rows() const { return rows_; }
  std::optional<std::size_t> victim() const { return victim_; }
  double killed_at() const { return killed_at_; }

 private:
  Status put_source() {
    Store& store = cluster_.nodes()[0].store;
    auto file = InputFile::open(path_);
    if (!file) return fail(file.error());
    const Instant started = SteadyClock().now();
    const Deadline deadline(kMoveTimeout);
    auto put = put_file(store, kObjectName, *file, deadline);
    if (!put) return fail(put.error());
    rows_[0].seconds = seconds(SteadyClock().now() - started);
    auto view = store.get(kObjectName, kMoveTimeout);
    if (!view) return fail(view.error());
    rows_[0].sha256 = sha256(view->bytes());
    return {};
  }

  void receive(std::size_t index, Instant started) {
    Row& row = rows_[index];
    auto view = cluster_.nodes()[index].store.get(kObjectName, kMoveTimeout);
    row.seconds = seconds(SteadyClock().now() - started);
    arrived_[index].store(true);
    if (view) {
      row.sha256 = sha256(view->bytes());
    } else {
      row.error = view.error().to_string();
    }
  }

  bool all_arrived() const {
    for (std::size_t i = 1; i < kNodeCount; ++i) {
      if (!arrived_[i].load()) return false;
    }
    return true;
  }

  // Follows the transfer until every get has ended, and kills one receiver on the way.
  Status watch() {
    constexpr Duration kLook = std::chrono::milliseconds(2);
    while (!all_arrived()) {
      if (signals_.wait(kLook)) return fail(Errc::kCancelled, "interrupted");
      look_at_tree();
      if (!victim_) kill_somebody();
    }
    return {};
  }

  void look_at_tree() {
    auto stat = cluster_.nodes()[0].store.stat(kObjectName, std::chrono::seconds(1));
    if (!stat) return;
    for (const ObjectStat::Holder& holder : stat->holders) {
      if (!holder.parent) continue;
      const auto parent = std::find_if(
          stat->holders.begin(), stat->holders.end(),
          [&holder](const ObjectStat::Holder& other) { return other.node == holder.parent; });
      if (parent == stat->holders.end()) continue;
      for (std::size_t i = 1; i < kNodeCount; ++i) {
        std::vector<std::string>& seen = rows_[i].parents;
        if (cluster_.nodes()[i].name != holder.node_name) continue;
        if (seen.empty() || seen.back() != parent->node_name) seen.push_back(parent->node_name);
      }
    }
    for (std::size_t i = 1; i < kNodeCount; ++i) {
      feeds_[i] = std::any_of(stat->holders.begin(), stat->holders.end(), [&](const auto& holder) {
        return std::any_of(stat->holders.begin(), stat->holders.end(), [&](const auto& other) {
          return holder.parent && other.node == holder.parent &&
                 other.node_name == cluster_.nodes()[i].name;
        });
      });
    }
  }

  // One that feeds another, so that its death must be repaired.
  void kill_somebody() {
    for (std::size_t i = 1; i < kNodeCount; ++i) {
      if (!feeds_[i] || arrived_[i].load()) continue;
      auto stats = cluster_.nodes()[i].store.stats(std::chrono::seconds(1));
      if (!stats) continue;
      const double share = static_cast<double>(stats->bytes_received) / static_cast<double>(size_);
      if (share < kKillAt) continue;
      cluster_.kill(i);
      victim_ = i;
      killed_at_ = share;
      rows_[i].role = "killed";
      return;
    }
  }

  DemoCluster& cluster_;
  const std::string path_;
  const std::uint64_t size_;
  const StopSignals& signals_;
  std::array<Row, kNodeCount> rows_;
  std::array<std::atomic<bool>, kNodeCount> arrived_{};
  std::array<bool, kNodeCount> feeds_{};
  std::optional<std::size_t> victim_;
  double killed_at_ = 0;
};

// What is wrong with the outcome; empty if nothing is.
std::vector<std::string> verdict(const Demo& demo, DemoCluster& cluster,
                                 const std::string& expected) {
  std::vector<std::string> wrong;
  for (std::size_t i = 0; i < kNodeCount; ++i) {
    const Row& row = demo.rows()[i];
    const std::string& name = cluster.nodes()[i].name;
    if (demo.victim() == i) {
      if (row.error.empty() && row.sha256 != expected)
        wrong.push_back(fmt::format("{} had other bytes before it was killed", name));
      continue;
    }
    if (!row.error.empty()) {
      wrong.push_back(fmt::format("{}: {}", name, row.error));
    } else if (row.sha256 != expected) {
      wrong.push_back(fmt::format("{} has other bytes: sha256 {}", name, row.sha256));
    }
  }
  if (!demo.victim()) wrong.emplace_back("no receiver could be killed in mid-transfer");
  return wrong;
}

void print_table(const Demo& demo, DemoCluster& cluster, std::uint64_t size,
                 const std::string& expected) {
  fmt::print("\n{:<8}  {:<9}  {:>8}  {:>10}  {:<7}  {}\n", "node", "role", "time", "rate", "sha256",
             "fed by");
  for (std::size_t i = 0; i < kNodeCount; ++i) {
    const Row& row = demo.rows()[i];
    const bool whole = row.error.empty() && demo.victim() != i;
    const std::string rate =
        whole ? format_rate(static_cast<double>(size) / std::max(row.seconds, 1e-9)) : "-";
    const std::string sha = !whole ? "-" : row.sha256 == expected ? "ok" : "WRONG";
    const std::string parents =
        i == 0 ? "the file" : fmt::format("{}", fmt::join(row.parents, ", then "));
    fmt::print("{:<8}  {:<9}  {:>8}  {:>10}  {:<7}  {}\n", cluster.nodes()[i].name, row.role,
               whole ? fmt::format("{:.2f} s", row.seconds) : "-", rate, sha, parents);
  }
}

void print_json(const Demo& demo, DemoCluster& cluster, std::uint64_t size,
                const std::string& expected, const std::optional<DemoReduceOutcome>& reduce,
                const std::vector<std::string>& wrong) {
  JsonWriter json;
  json.begin_object()
      .field("ok", wrong.empty())
      .field("size", size)
      .field("sha256", expected)
      .field("killed_at", demo.killed_at())
      .key("nodes")
      .begin_array();
  for (std::size_t i = 0; i < kNodeCount; ++i) {
    const Row& row = demo.rows()[i];
    json.begin_object()
        .field("name", cluster.nodes()[i].name)
        .field("role", row.role)
        .field("seconds", row.seconds)
        .field("sha256_ok", row.sha256 == expected)
        .field("error", row.error)
        .key("parents")
        .begin_array();
    for (const std::string& parent : row.parents)
      json.value(parent);
    json.end_array().end_object();
  }
  json.end_array().key("reduce");
  if (reduce) {
    write_demo_reduce(json, *reduce);
  } else {
    json.null();
  }
  json.key("wrong").begin_array();
  for (const std::string& text : wrong)
    json.value(text);
  fmt::print("{}", json.end_array().end_object().text());
}

struct Source {
  std::string path;
  std::uint64_t size = 0;
  std::string sha256;
};

// The file to broadcast, and what it must look like everywhere.
Result<Source> prepare_source(const DemoArguments& arguments, const std::string& folder) {
  if (arguments.file.empty()) {
    if (auto room = check_memory(arguments.size); !room) return fail(room.error());
    const std::vector<std::byte> bytes = random_bytes(arguments.size);
    const std::string path = folder + "/file";
    auto written = write_file(path, bytes, [](std::uint64_t) {});
    if (!written) return fail(written.error());
    return Source{path, arguments.size, sha256(bytes)};
  }
  auto file = InputFile::open(arguments.file);
  if (!file) return fail(file.error());
  if (auto room = check_memory(file->size().value_or(0)); !room) return fail(room.error());
  auto bytes = file->read_all([](std::uint64_t) {});
  if (!bytes) return fail(bytes.error());
  return Source{arguments.file, bytes->size(), sha256(*bytes)};
}

void print_broadcast(const Demo& demo, DemoCluster& cluster, const Source& source) {
  if (demo.victim()) {
    fmt::print("{} was killed (SIGKILL) when it had {:.0f} % of its copy and fed others\n",
               cluster.nodes()[*demo.victim()].name, demo.killed_at() * 100);
  }
  print_table(demo, cluster, source.size, source.sha256);
}

Result<int> run_demo(const DemoArguments& arguments) {
  const Instant started = SteadyClock().now();
  auto signals = StopSignals::open();
  if (!signals) return fail(signals.error());
  auto folder = TemporaryFolder::create("lochos-demo");
  if (!folder) return fail(folder.error());
  auto source = prepare_source(arguments, folder->path());
  if (!source) return fail(source.error());
  // Room for the object or what the reduce needs, and the rounding of size classes.
  const std::uint64_t pool = std::max(source->size, 4 * kDemoPartBytes) + (64ULL << 20);
  auto cluster = DemoCluster::start(folder->path(), kNodeCount, pool, kStartTimeout);
  if (!cluster) return fail(cluster.error());
  if (!arguments.json) {
    fmt::print(
        "one directory and {} nodes on this machine, TCP over loopback\n"
        "broadcast of {} ({}, sha256 {}…)\n",
        kNodeCount, arguments.file.empty() ? "a random file" : arguments.file,
        format_size(source->size), source->sha256.substr(0, 16));
  }
  Demo demo(*cluster, source->path, source->size, *signals);
  if (auto ran = demo.run(); !ran) return fail(ran.error());
  std::vector<std::string> wrong = verdict(demo, *cluster, source->sha256);
  if (!arguments.json) print_broadcast(demo, *cluster, *source);
  std::optional<DemoReduceOutcome> reduce;
  if (wrong.empty()) {
    if (auto erased = cluster->nodes()[0].store.erase(kObjectName, kStopTimeout); !erased)
      return fail(erased.error());
    auto outcome = run_demo_reduce(*cluster, *signals);
    if (!outcome) return fail(outcome.error());
    reduce = std::move(*outcome);
    wrong = reduce->wrong;
  }
  if (auto stopped = cluster->stop(kStopTimeout); !stopped)
    wrong.push_back(stopped.error().message());
  if (arguments.json) {
    print_json(demo, *cluster, source->size, source->sha256, reduce, wrong);
    return wrong.empty() ? kExitDone : kExitFailed;
  }
  if (reduce) print_demo_reduce(*reduce);
  for (const std::string& text : wrong)
    fmt::print("wrong: {}\n", text);
  fmt::print("\n{} in {}\n",
             wrong.empty() ? "All right: every survivor has the same bytes" : "Something is wrong",
             format_duration(SteadyClock().now() - started));
  return wrong.empty() ? kExitDone : kExitFailed;
}

}  // namespace

void add_demo_command(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<DemoArguments>();
  CLI::App& command = add_command(
      app, "demo", "Watch a broadcast and a sum on this machine survive killed nodes", kFooter);
  add_positional(command, "FILE", arguments->file, Presence::kOptional,
                 "File to broadcast; one is made if none is given");
  add_size(command, "--size", arguments->size, "Size of the file that is made");
  add_switch(command, "--json", arguments->json, "Print the outcome as a JSON object");
  set_run(command, context, [arguments] { return run_demo(*arguments); });
}

}  // namespace lochos
