#include <fmt/format.h>

#include <memory>

#include "tools/file_io.h"
#include "tools/json.h"
#include "tools/options.h"
#include "tools/store_command.h"

namespace lochos {
namespace {

constexpr const char* kFooter =
    "Stores a file as an immutable object that every node of the cluster can get. The bytes are\n"
    "read straight into the node's pool, and others may fetch them while they are being read.\n\n"
    "  lochos put model weights.bin\n"
    "  tar c data | lochos put data -";

struct PutArguments {
  std::string name;
  std::string file;
  bool json = false;
};

Result<int> run_put(const Context& context, const PutArguments& arguments) {
  const Deadline deadline(context.config.duration("timeout"));
  const Instant started = SteadyClock().now();
  // The cheap checks come first: a bad name costs no connection.
  auto id = ObjectId::from_name(arguments.name);
  if (!id) return fail(id.error());
  auto file = InputFile::open(arguments.file);
  if (!file) return fail(file.error());
  auto store = open_store(context, deadline);
  if (!store) return fail(store.error());

  auto size = put_file(*store, arguments.name, *file, deadline);
  if (!size) return fail(size.error());
  if (arguments.json) {
    JsonWriter json;
    json.begin_object()
        .field("name", arguments.name)
        .field("id", id->to_hex())
        .field("size", *size)
        .field("seconds", seconds(SteadyClock().now() - started))
        .end_object();
    fmt::print("{}", json.text());
  }
  return kExitDone;
}

}  // namespace

void add_put_command(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<PutArguments>();
  CLI::App& command = add_command(app, "put", "Store a file as an object", kFooter);
  add_positional(command, "NAME", arguments->name, Presence::kRequired,
                 "Name of the object, 1 to 1024 bytes of UTF-8");
  add_positional(command, "FILE", arguments->file, Presence::kRequired,
                 "File to read; - is standard input");
  add_switch(command, "--json", arguments->json, "Print name, id, size and time as JSON");
  add_store_options(command, context);
  set_run(command, context, [&context, arguments] { return run_put(context, *arguments); });
}

}  // namespace lochos
