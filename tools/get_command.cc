#include <fmt/format.h>
#include <poll.h>

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
    "Waits until the object exists and has arrived whole. FILE appears complete or not at all: a\n"
    "get that fails or is killed leaves what was there before.\n\n"
    "  lochos get model weights.bin\n"
    "  lochos get data | tar x\n"
    "  lochos get result --timeout 10m > out";

struct GetArguments {
  std::string name;
  std::string file = "-";
  bool json = false;
};

// Draws the bar while the object arrives: its size comes from the directory, the bytes done from
// this node's counter (other transfers count too; it is a picture, not an account).
Result<ObjectView> get_with_progress(Store& store, const std::string& name,
                                     const Deadline& deadline) {
  ProgressBar bar("get " + printable(name), 0);
  if (!bar.enabled()) return store.get(name, deadline.remaining());
  const auto before = store.stats(deadline.remaining());
  auto pending = store.get_async(name, deadline.remaining());
  auto readable = pending.event_fd();
  if (!before || !readable) return pending.take();
  std::uint64_t size = 0;
  constexpr int kRedrawMs = 100;
  constexpr Duration kAskTimeout = std::chrono::seconds(1);
  while (!pending.ready()) {
    pollfd waiting{*readable, POLLIN, 0};
    if (::poll(&waiting, 1, kRedrawMs) > 0) continue;
    if (size == 0) {
      if (auto stat = store.stat(name, kAskTimeout)) size = stat->size;
      bar.set_total(size);
    }
    if (auto now = store.stats(kAskTimeout))
      bar.update(
          std::min(now->bytes_received - before->bytes_received, size == 0 ? UINT64_MAX : size));
  }
  return pending.take();
}

Result<int> run_get(const Context& context, const GetArguments& arguments) {
  const Deadline deadline(context.config.duration("timeout"));
  const Instant started = SteadyClock().now();
  if (arguments.json && arguments.file == "-")
    return fail(Errc::kInvalidArgument, "--json needs FILE: standard output holds the bytes");
  auto id = ObjectId::from_name(arguments.name);
  if (!id) return fail(id.error());
  auto store = open_store(context, deadline);
  if (!store) return fail(store.error());
  auto view = get_with_progress(*store, arguments.name, deadline);
  if (!view) return fail(view.error());

  ProgressBar bar("write " + printable(arguments.file), view->size());
  auto written =
      write_file(arguments.file, view->bytes(), [&bar](std::uint64_t done) { bar.update(done); });
  if (!written) return fail(written.error());
  if (arguments.json) {
    JsonWriter json;
    json.begin_object()
        .field("name", arguments.name)
        .field("id", id->to_hex())
        .field("size", view->size())
        .field("generation", view->generation())
        .field("seconds", seconds(SteadyClock().now() - started))
        .end_object();
    fmt::print("{}", json.text());
  }
  return kExitDone;
}

}  // namespace

void add_get_command(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<GetArguments>();
  CLI::App& command = add_command(app, "get", "Fetch an object", kFooter);
  add_positional(command, "NAME", arguments->name, Presence::kRequired, "Name of the object");
  add_positional(command, "FILE", arguments->file, Presence::kOptional,
                 "File to write; - or nothing is standard output");
  add_switch(command, "--json", arguments->json, "Print size and time as JSON (needs FILE)");
  add_store_options(command, context);
  set_run(command, context, [&context, arguments] { return run_get(context, *arguments); });
}

}  // namespace lochos
