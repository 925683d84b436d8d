#include "tools/perf_collective_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>

#include "tools/options.h"
#include "tools/perf_collective.h"
#include "tools/perf_json_file.h"

namespace lochos {
namespace {

constexpr const char* kBroadcastFooter =
    "Rank i waits i times --arrive after the barrier; then rank 0 puts and the others get.\n"
    "Timed is the slowest rank, since the barrier and since its own arrival.\n\n"
    "  lochos perf bcast --directory 10.0.0.1:7777 --ranks 8 --rank 0 --size 64M --iterations 5";
constexpr const char* kReduceFooter =
    "Rank i waits i times --arrive after the barrier; then it puts an object. Rank 0 has them\n"
    "reduced and gets the result: that is timed, since the barrier and since the last of the\n"
    "sources that go in could be there. With --count K the first K that turn up go in.\n\n"
    "  lochos perf reduce --directory 10.0.0.1:7777 --ranks 8 --rank 0 --size 64M --dtype bf16";
constexpr const char* kGroupFooter =
    " Inputs are in the node's\n"
    "pool before the clock starts, results are read there. Sizes that the ranks cannot share\n"
    "evenly are rounded down.\n\n"
    "  lochos perf allreduce --directory 10.0.0.1:7777 --ranks 8 --rank 0 --size 16M --verify";
constexpr const char* kFooter =
    "Start it once on every host, with the ranks 0 to N-1; each process is a node of its own. "
    "Every\n"
    "iteration begins at a barrier. Rank 0 prints, for each iteration and as median: the time,\n"
    "object bytes sent by the busiest rank and by all, bytes received, and the processor time of\n"
    "all ranks. The bound comes from the same run: ranks 0 and 1 move an object of the same size\n"
    "while nobody else does, connections being there already.\n"
    "In a lab (tests/lab) --ranks and --rank come from LOCHOS_LAB_SIZE and LOCHOS_LAB_RANK.\n\n";

// Shared by the ranks of a run, for objects on their way and for what erasing has not yet freed.
constexpr std::uint64_t kSparePool = 64ULL << 20;

struct Options {
  std::uint64_t ranks = 0;
  std::uint64_t rank = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t size = 64ULL << 20;
  std::uint64_t iterations = 5;
  std::uint64_t warmup = 1;
  std::uint64_t arrive_ms = 0;
  bool verify = false;
  std::string dtype = "f32";
  std::string reduce_op = "sum";
  std::uint64_t count = 0;
  std::string json;
};

std::optional<std::uint64_t> lab_number(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) return std::nullopt;
  std::uint64_t number = 0;
  const std::string_view view(text);
  const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), number);
  if (error != std::errc() || end != view.data() + view.size()) return std::nullopt;
  return number;
}

// What the objects are made of. Errors: kInvalidArgument.
Status set_elements(CollectiveOptions& collective, const Options& options) {
  const auto dtype = parse_data_type(options.dtype);
  if (!dtype) return fail(dtype.error().code(), "--dtype: " + dtype.error().message());
  if (options.size % element_size(*dtype) != 0) {
    return fail(Errc::kInvalidArgument,
                fmt::format("--size {} is no multiple of the {} bytes of an element", options.size,
                            element_size(*dtype)));
  }
  collective.dtype = *dtype;
  return {};
}

// How they are combined. Errors: kInvalidArgument.
Status set_combination(CollectiveOptions& collective, const Options& options) {
  const auto op = parse_reduce_op(options.reduce_op);
  if (!op) return fail(op.error().code(), "--op: " + op.error().message());
  if (!supported(*op, collective.dtype)) {
    return fail(Errc::kInvalidArgument, fmt::format("--op {} is not for --dtype {}", to_string(*op),
                                                    to_string(collective.dtype)));
  }
  if (options.count > collective.ranks) {
    return fail(Errc::kInvalidArgument,
                fmt::format("--count {} of {} ranks", options.count, collective.ranks));
  }
  collective.reduce_op = *op;
  collective.count = static_cast<std::uint32_t>(options.count);
  return {};
}

Result<CollectiveOptions> collective_options(const CollectiveOp& op, const Options& options,
                                             const Config& config) {
  const std::uint64_t ranks =
      options.ranks != 0 ? options.ranks : lab_number("LOCHOS_LAB_SIZE").value_or(0);
  const bool given = options.rank != std::numeric_limits<std::uint64_t>::max();
  const std::uint64_t rank =
      given ? options.rank : lab_number("LOCHOS_LAB_RANK").value_or(options.rank);
  if (ranks < 1 || ranks > 1'000'000)
    return fail(Errc::kInvalidArgument, "how many ranks are there? Give --ranks N");
  if (rank >= ranks) {
    return fail(Errc::kInvalidArgument,
                fmt::format("which rank is this? Give --rank I, 0 to {}", ranks - 1));
  }
  CollectiveOptions collective;
  collective.ranks = static_cast<std::uint32_t>(ranks);
  collective.rank = static_cast<std::uint32_t>(rank);
  collective.size = options.size;
  collective.iterations = static_cast<std::uint32_t>(options.iterations);
  collective.warmup = static_cast<std::uint32_t>(options.warmup);
  collective.arrive = std::chrono::milliseconds(options.arrive_ms);
  collective.verify = options.verify;
  collective.timeout = config.duration("timeout");
  if (op.has_elements()) {
    if (auto set = set_elements(collective, options); !set) return fail(set.error());
  }
  if (op.combines()) {
    if (auto set = set_combination(collective, options); !set) return fail(set.error());
  }
  collective.size = op.usable_size(collective);
  return collective;
}

Result<NodeOptions> node_options(const Config& config, const CollectiveOptions& collective,
                                 const CollectiveOp& op) {
  NodeOptions node;
  node.directory = config.text("node.directory");
  if (node.directory.empty()) {
    return fail(Errc::kInvalidArgument,
                "where is the directory? Give --directory ADDR:PORT or set LOCHOS_DIRECTORY");
  }
  node.name = fmt::format("perf-{}-{}", op.name(), collective.rank);
  // Those of two iterations live at once, some that go while others are made; and their rounding.
  const bool chosen = config.value("node.pool").origin != Config::Origin::kDefault;
  node.pool_bytes = chosen
                        ? config.size("node.pool")
                        : std::max(3 * collective.size, 2 * op.pool_bytes(collective)) + kSparePool;
  node.transport = config.transport("node.transport");
  node.interface = config.text("node.interface");
  node.listen = config.text("node.listen");
  node.provider = config.text("node.provider");
  node.gid_index = config.integer("node.gid_index");
  node.huge_pages = config.boolean("node.huge_pages");
  return node;
}

Result<CollectiveResult> run_op(CollectiveOp& op, const NodeOptions& node,
                                const CollectiveOptions& collective) {
  auto joined = Collective::join(node, collective, op.name());
  if (!joined) return fail(joined.error());
  return (*joined)->run(op);
}

Result<int> run(CollectiveOp& op, const Options& options, const Context& context) {
  auto collective = collective_options(op, options, context.config);
  if (!collective) return fail(collective.error());
  auto node = node_options(context.config, *collective, op);
  if (!node) return fail(node.error());
  const bool reports = collective->rank == 0;
  auto file = PerfJsonFile::open(reports ? options.json : std::string(),
                                 collective_json(op, *collective, {}));
  if (!file) return fail(file.error());
  if (reports) print_collective_header();
  auto result = run_op(op, *node, *collective);
  if (!result) {
    (void)file->finish();
    return fail(result.error());
  }
  if (!reports) return kExitDone;
  print_collective(op, *collective, *result);
  if (auto written = file->replace(collective_json(op, *collective, *result)); !written)
    return fail(written.error());
  if (auto written = file->finish(); !written) return fail(written.error());
  for (const IterationFigures& iteration : result->iterations) {
    if (iteration.wrong > 0) return kExitFailed;
  }
  return kExitDone;
}

using MakeOp = std::unique_ptr<CollectiveOp> (*)();

template <class Values>
std::string names_of(const Values& values) {
  std::string names;
  for (const auto value : values)
    names += fmt::format("{}{}", names.empty() ? "" : "|", to_string(value));
  return names;
}

void add_element_options(CLI::App& command, const CollectiveOp& op, Options& options) {
  if (op.has_elements())
    add_text(command, "--dtype", names_of(kDataTypes), options.dtype, "Type of elements [f32]");
  if (op.combines())
    add_text(command, "--op", names_of(kReduceOps), options.reduce_op, "Operation [sum]");
  if (!op.takes_count()) return;
  add_integer(command, "--count", options.count, 1, 1'000'000,
              "Use only the first N objects that turn up [all]");
}

void add_operation(CLI::App& perf, Context& context, const std::string& help,
                   const std::string& footer, MakeOp make) {
  const std::unique_ptr<CollectiveOp> op = make();
  CLI::App& command = add_command(perf, std::string(op->name()), help, kFooter + footer);
  auto options = std::make_shared<Options>();
  add_element_options(command, *op, *options);
  add_integer(command, "--ranks", options->ranks, 1, 1'000'000, "How many processes take part");
  add_integer(command, "--rank", options->rank, 0, 999'999, "Which of them this is, from 0");
  add_size(command, "-s,--size", options->size, "Bytes of the object");
  add_integer(command, "-n,--iterations", options->iterations, 1, 1'000'000,
              "How often to measure [5]");
  add_integer(command, "--warmup", options->warmup, 0, 1'000'000,
              "Iterations before that, which do not count [1]");
  add_integer(command, "--arrive", options->arrive_ms, 0, 3'600'000,
              "Milliseconds between the arrivals of one rank and the next [0]");
  add_switch(command, "--verify", options->verify, "Check every byte, not a sample of them");
  add_text(command, "--json", "FILE", options->json,
           "Write the figures as JSON (rank 0 does); -: standard output");
  for (const char* key :
       {"node.directory", "node.pool", "node.transport", "node.interface", "node.listen",
        "node.provider", "node.gid_index", "node.huge_pages", "timeout"})
    add_config_option(command, context, key);
  set_run(command, context, [options, make, &context] { return run(*make(), *options, context); });
}

}  // namespace

void add_collective_commands(CLI::App& perf, Context& context) {
  add_operation(perf, context, "Time to bring an object from one node to all others",
                kBroadcastFooter, make_broadcast);
  add_operation(perf, context, "Time to combine an object of each node into one", kReduceFooter,
                make_reduce_to_first);
  for (const GroupOperation& group : group_operations())
    add_operation(perf, context, group.help, std::string(group.footer) + kGroupFooter, group.make);
}

}  // namespace lochos
