#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "tools/file_io.h"
#include "tools/json.h"
#include "tools/options.h"
#include "tools/progress.h"
#include "tools/store_command.h"

namespace lochos {
namespace {

constexpr const char* kFooter =
    "Stores a file as an immutable object that every node of the cluster can get. The bytes are\n"
    "read straight into the node's pool, and others may fetch them while they are being read.\n\n"
    "  lochos put model weights.bin\n"
    "  tar c data | lochos put data -";

// What is read at once, and then published: small enough that readers follow closely.
constexpr std::size_t kPublishBytes = 1024 * 1024;

struct PutArguments {
  std::string name;
  std::string file;
  bool json = false;
};

Status put_known_size(Store& store, const PutArguments& arguments, InputFile& file,
                      std::uint64_t size, const Deadline& deadline) {
  auto writer = store.create(arguments.name, size, deadline.remaining());
  if (!writer) return fail(writer.error());
  ProgressBar bar("put " + printable(arguments.name), size);
  const std::span<std::byte> bytes = writer->bytes();
  std::uint64_t done = 0;
  while (done < size) {
    const std::size_t want = std::min<std::uint64_t>(kPublishBytes, size - done);
    auto got = file.read(bytes.subspan(done, want));
    if (!got) return fail(got.error());
    if (*got < want) {
      return fail(
          Error(Errc::kAborted, fmt::format("{} became shorter while it was read", file.name()))
              .with_operation("put")
              .with_object(arguments.name)
              .with_bytes(done + *got, size));
    }
    done += *got;
    writer->publish(done);
    bar.update(done);
  }
  return writer->seal(deadline.remaining());
}

Result<std::uint64_t> put_to_end(Store& store, const PutArguments& arguments, InputFile& file,
                                 const Deadline& deadline) {
  ProgressBar bar("read " + printable(arguments.name), 0);
  auto bytes = file.read_all([&bar](std::uint64_t done) { bar.update(done); });
  if (!bytes) return fail(bytes.error());
  if (auto put = store.put(arguments.name, *bytes, deadline.remaining()); !put)
    return fail(put.error());
  return bytes->size();
}

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

  std::uint64_t size = 0;
  if (file->size()) {
    size = *file->size();
    if (auto put = put_known_size(*store, arguments, *file, size, deadline); !put)
      return fail(put.error());
  } else {
    auto put = put_to_end(*store, arguments, *file, deadline);
    if (!put) return fail(put.error());
    size = *put;
  }
  if (arguments.json) {
    JsonWriter json;
    json.begin_object()
        .field("name", arguments.name)
        .field("id", id->to_hex())
        .field("size", size)
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
