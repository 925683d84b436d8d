#include "tools/reduce_command.h"

#include <fmt/format.h>

#include <memory>

#include "base/units.h"
#include "node/reduce_request.h"
#include "tools/json.h"
#include "tools/options.h"
#include "tools/store_command.h"

namespace lochos {
namespace {

constexpr const char* kFooter =
    "Makes the object TARGET by combining the elements of the SOURCEs, which need not exist yet.\n"
    "Prints its size, then a line for each source: whether it went in or was left out. "
    "Interrupted\n"
    "or out of time, it leaves no target behind.\n\n"
    "Sums of floating-point numbers depend on the order in which sources turn up; with\n"
    "--deterministic they are added in the order given, which may take longer.\n\n"
    "  lochos reduce gradient g0 g1 g2 g3\n"
    "  lochos reduce gradient g0 g1 g2 g3 --count 2 --op avg --dtype bf16\n"
    "  lochos reduce flags f0 f1 --op bor --dtype u8 --json";

struct ReduceArguments {
  std::string target;
  std::vector<std::string> sources;
  std::string op = "sum";
  std::string dtype = "f32";
  std::uint64_t count = 0;  // 0: all
  bool deterministic = false;
  bool json = false;
};

template <class Values>
std::string names_of(const Values& values) {
  std::string names;
  for (const auto value : values) {
    if (!names.empty()) names += '|';
    names += to_string(value);
  }
  return names;
}

// Errors: kInvalidArgument, naming the option.
Result<ReduceOptions> options_of(const ReduceArguments& arguments) {
  const auto op = parse_reduce_op(arguments.op);
  if (!op) return fail(op.error().code(), "--op: " + op.error().message());
  const auto dtype = parse_data_type(arguments.dtype);
  if (!dtype) return fail(dtype.error().code(), "--dtype: " + dtype.error().message());
  if (arguments.count > arguments.sources.size()) {
    return fail(Errc::kInvalidArgument, fmt::format("--count {} is more than the {} sources given",
                                                    arguments.count, arguments.sources.size()));
  }
  return ReduceOptions{.op = *op,
                       .dtype = *dtype,
                       .count = arguments.count,
                       .deterministic = arguments.deterministic};
}

void print_result(const ReduceArguments& arguments, const ReduceResult& result) {
  fmt::print("{}: {} ({} bytes) from {} of {} sources\n", printable(arguments.target),
             format_size(result.size), result.size, result.included.size(),
             arguments.sources.size());
  for (const std::size_t position : result.included)
    fmt::print("included  {}\n", printable(arguments.sources[position]));
  for (const std::size_t position : result.left_out)
    fmt::print("left out  {}\n", printable(arguments.sources[position]));
}

void write_names(JsonWriter& json, const char* key, const std::vector<std::string>& names,
                 const std::vector<std::size_t>& positions) {
  json.key(key).begin_array();
  for (const std::size_t position : positions)
    json.value(names[position]);
  json.end_array();
}

void print_json(const ReduceArguments& arguments, const ObjectId& id, const ReduceOptions& options,
                const ReduceResult& result, Duration elapsed) {
  JsonWriter json;
  json.begin_object()
      .field("name", arguments.target)
      .field("id", id.to_hex())
      .field("size", result.size)
      .field("generation", result.generation)
      .field("op", to_string(options.op))
      .field("dtype", to_string(options.dtype))
      .field("deterministic", options.deterministic)
      .field("seconds", seconds(elapsed));
  write_names(json, "included", arguments.sources, result.included);
  write_names(json, "left_out", arguments.sources, result.left_out);
  fmt::print("{}", json.end_object().text());
}

Result<int> run_reduce(const Context& context, const ReduceArguments& arguments) {
  const Deadline deadline(context.config.duration("timeout"));
  const Instant started = SteadyClock().now();
  const auto options = options_of(arguments);
  if (!options) return fail(options.error());
  // What is wrong with the names costs no connection.
  const Store::Key target(arguments.target);
  const std::vector<Store::Key> sources(arguments.sources.begin(), arguments.sources.end());
  if (auto sound = make_reduce(target, sources, *options); !sound) {
    return fail(Error(sound.error()).with_operation("reduce").with_object(arguments.target));
  }
  auto store = open_store(context, deadline);
  if (!store) return fail(store.error());

  auto result = store->reduce(target, sources, *options, deadline.remaining());
  if (!result) return fail(result.error());
  if (arguments.json) {
    print_json(arguments, *target.id, *options, *result, SteadyClock().now() - started);
  } else {
    print_result(arguments, *result);
  }
  return kExitDone;
}

}  // namespace

void add_reduce_command(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<ReduceArguments>();
  CLI::App& command =
      add_command(app, "reduce", "Make one object from many: sum, min, max, …", kFooter);
  add_positional(command, "TARGET", arguments->target, Presence::kRequired,
                 "Name of the object to make");
  add_positionals(command, "SOURCE", arguments->sources,
                  "Names of the objects to make it from; they may be put later");
  add_text(command, "--op", names_of(kReduceOps), arguments->op, "Operation [sum]");
  add_text(command, "--dtype", names_of(kDataTypes), arguments->dtype, "Type of elements [f32]");
  add_integer(command, "--count", arguments->count, 1, kMaxReduceSources,
              "Use only the first N sources that turn up [all]");
  add_switch(command, "--deterministic", arguments->deterministic,
             "The same bits whatever the order in which sources turn up");
  add_switch(command, "--json", arguments->json,
             "Print name, id, size, generation, time and sources as JSON");
  add_store_options(command, context);
  set_run(command, context, [&context, arguments] { return run_reduce(context, *arguments); });
}

}  // namespace lochos
