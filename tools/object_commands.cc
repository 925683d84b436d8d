// ls, stat, rm and wait.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/units.h"
#include "tools/json.h"
#include "tools/options.h"
#include "tools/store_command.h"

namespace lochos {
namespace {

std::string shown_name(const ObjectStat& object) {
  return object.name.empty() ? object.id.to_hex() : printable(object.name);
}

void write_common(JsonWriter& json, const ObjectStat& object) {
  json.field("name", object.name)
      .field("id", object.id.to_hex())
      .field("size", object.size)
      .field("generation", object.generation)
      .field("sealed", object.sealed)
      .field("inline", object.is_inline)
      .field("holder_count", object.holder_count);
}

std::string state_of(const ObjectStat& object) {
  if (!object.sealed) return "partial";
  return object.is_inline ? "inline" : "sealed";
}

Result<int> run_ls(const Context& context, bool as_json) {
  const Deadline deadline(context.config.duration("timeout"));
  auto store = open_store(context, deadline);
  if (!store) return fail(store.error());
  auto objects = store->list(deadline.remaining());
  if (!objects) return fail(objects.error());
  std::sort(objects->begin(), objects->end(), [](const ObjectStat& a, const ObjectStat& b) {
    return std::tie(a.name, a.id) < std::tie(b.name, b.id);
  });
  if (as_json) {
    JsonWriter json;
    json.begin_array();
    for (const ObjectStat& object : *objects) {
      json.begin_object();
      write_common(json, object);
      json.end_object();
    }
    fmt::print("{}", json.end_array().text());
    return kExitDone;
  }
  std::size_t width = 4;
  for (const ObjectStat& object : *objects)
    width = std::max(width, shown_name(object).size());
  fmt::print("{:<{}}  {:>10}  {:>10}  {:>7}  {}\n", "NAME", width, "SIZE", "GENERATION", "HOLDERS",
             "STATE");
  for (const ObjectStat& object : *objects) {
    fmt::print("{:<{}}  {:>10}  {:>10}  {:>7}  {}\n", shown_name(object), width,
               format_size(object.size), object.generation, object.holder_count, state_of(object));
  }
  return kExitDone;
}

void print_stat(const ObjectStat& object) {
  fmt::print("name        {}\n", printable(object.name));
  fmt::print("id          {}\n", object.id.to_hex());
  fmt::print("size        {} ({} bytes)\n", format_size(object.size), object.size);
  fmt::print("generation  {}\n", object.generation);
  fmt::print("state       {}\n", state_of(object));
  fmt::print("holders     {}\n", object.holder_count);
  for (const ObjectStat::Holder& holder : object.holders) {
    fmt::print("  {} {}  {}{}\n", holder.node.to_string(), printable(holder.node_name),
               holder.complete ? "complete" : "partial",
               holder.parent ? ", fed by " + holder.parent.to_string() : "");
  }
}

Result<int> run_stat(const Context& context, const std::string& name, bool as_json) {
  const Deadline deadline(context.config.duration("timeout"));
  auto store = open_store(context, deadline);
  if (!store) return fail(store.error());
  auto object = store->stat(name, deadline.remaining());
  if (!object) return fail(object.error());
  if (!as_json) {
    print_stat(*object);
    return kExitDone;
  }
  JsonWriter json;
  json.begin_object();
  write_common(json, *object);
  json.key("holders").begin_array();
  for (const ObjectStat::Holder& holder : object->holders) {
    json.begin_object()
        .field("node", holder.node.to_string())
        .field("name", holder.node_name)
        .field("complete", holder.complete);
    json.key("parent");
    holder.parent ? json.value(holder.parent.to_string()) : json.null();
    json.end_object();
  }
  fmt::print("{}", json.end_array().end_object().text());
  return kExitDone;
}

Result<int> run_rm(const Context& context, const std::vector<std::string>& names) {
  const Deadline deadline(context.config.duration("timeout"));
  auto store = open_store(context, deadline);
  if (!store) return fail(store.error());
  for (const std::string& name : names) {
    if (auto erased = store->erase(name, deadline.remaining()); !erased)
      return fail(erased.error());
  }
  return kExitDone;
}

struct WaitArguments {
  std::vector<std::string> names;
  std::uint64_t count = 0;  // 0: all
  bool json = false;
};

Result<int> run_wait(const Context& context, const WaitArguments& arguments) {
  const Deadline deadline(context.config.duration("timeout"));
  const std::uint64_t count = arguments.count == 0 ? arguments.names.size() : arguments.count;
  if (count > arguments.names.size()) {
    return fail(Errc::kInvalidArgument, fmt::format("--count {} is more than the {} names given",
                                                    count, arguments.names.size()));
  }
  auto store = open_store(context, deadline);
  if (!store) return fail(store.error());
  const std::vector<Store::Key> keys(arguments.names.begin(), arguments.names.end());
  auto ready = store->wait(keys, count, deadline.remaining());
  if (!ready) return fail(ready.error());
  if (!arguments.json) {
    for (const std::size_t position : *ready)
      fmt::print("{}\n", printable(arguments.names[position]));
    return kExitDone;
  }
  JsonWriter json;
  json.begin_object().key("ready").begin_array();
  for (const std::size_t position : *ready)
    json.value(arguments.names[position]);
  fmt::print("{}", json.end_array().end_object().text());
  return kExitDone;
}

}  // namespace

void add_ls_command(CLI::App& app, Context& context) {
  auto as_json = std::make_shared<bool>(false);
  CLI::App& command = add_command(app, "ls", "List the objects of the cluster",
                                  "  lochos ls\n  lochos ls --json | jq '.[].name'");
  add_switch(command, "--json", *as_json, "Print a JSON array with one object per line of ls");
  add_store_options(command, context);
  set_run(command, context, [&context, as_json] { return run_ls(context, *as_json); });
}

void add_stat_command(CLI::App& app, Context& context) {
  struct Arguments {
    std::string name;
    bool json = false;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App& command =
      add_command(app, "stat", "Show an object's size, state and holders", "  lochos stat model");
  add_positional(command, "NAME", arguments->name, Presence::kRequired, "Name of the object");
  add_switch(command, "--json", arguments->json, "Print a JSON object");
  add_store_options(command, context);
  set_run(command, context,
          [&context, arguments] { return run_stat(context, arguments->name, arguments->json); });
}

void add_rm_command(CLI::App& app, Context& context) {
  auto names = std::make_shared<std::vector<std::string>>();
  CLI::App& command = add_command(app, "rm", "Erase objects from every node",
                                  "Readers that hold a view keep their bytes. Afterwards the name "
                                  "is free for another put.\n\n  lochos rm model");
  add_positionals(command, "NAME", *names, "Names of the objects");
  add_store_options(command, context);
  set_run(command, context, [&context, names] { return run_rm(context, *names); });
}

void add_wait_command(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<WaitArguments>();
  CLI::App& command =
      add_command(app, "wait", "Wait until objects exist",
                  "Prints the names of those that exist, in the order given. Fetches nothing.\n\n"
                  "  lochos wait a b c              all three\n"
                  "  lochos wait a b c --count 1    the first that turns up\n"
                  "  lochos wait a --timeout none   for ever");
  add_positionals(command, "NAME", arguments->names, "Names of the objects");
  add_integer(command, "--count", arguments->count, 1, 10'000, "How many must exist [all]");
  add_switch(command, "--json", arguments->json, "Print {\"ready\": [names]}");
  add_store_options(command, context);
  set_run(command, context, [&context, arguments] { return run_wait(context, *arguments); });
}

}  // namespace lochos
