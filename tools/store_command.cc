#include "tools/store_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "tools/options.h"
#include "tools/progress.h"

namespace lochos {
namespace {

// What is read at once, and then published: small enough that readers follow closely.
constexpr std::size_t kPublishBytes = 1024 * 1024;

// How long a command waits for a node that does not answer at its socket yet, and how often it
// asks.
constexpr Duration kNodeStart = std::chrono::seconds(2);
constexpr Duration kNodeRetry = std::chrono::milliseconds(50);

Status fill(ObjectWriter& writer, const std::string& name, InputFile& file) {
  const std::span<std::byte> bytes = writer.bytes();
  ProgressBar bar("put " + printable(name), bytes.size());
  std::size_t done = 0;
  while (done < bytes.size()) {
    const std::size_t want = std::min(kPublishBytes, bytes.size() - done);
    auto got = file.read(bytes.subspan(done, want));
    if (!got) return fail(got.error());
    done += *got;
    if (*got < want) {
      return fail(
          Error(Errc::kAborted, fmt::format("{} became shorter while it was read", file.name()))
              .with_operation("put")
              .with_object(name)
              .with_bytes(done, bytes.size()));
    }
    writer.publish(done);
    bar.update(done);
  }
  return {};
}

Result<std::uint64_t> put_to_end(Store& store, const std::string& name, InputFile& file,
                                 const Deadline& deadline) {
  const Duration left = deadline.remaining();
  ProgressBar bar("read " + printable(name), 0);
  auto bytes = file.read_all([&bar](std::uint64_t done) { bar.update(done); });
  if (!bytes) return fail(bytes.error());
  if (auto put = store.put(name, *bytes, left); !put) return fail(put.error());
  return bytes->size();
}

}  // namespace

Result<std::uint64_t> put_file(Store& store, const std::string& name, InputFile& file,
                               const Deadline& deadline) {
  if (!file.size()) return put_to_end(store, name, file, deadline);
  auto writer = store.create(name, *file.size(), deadline.remaining());
  if (!writer) return fail(writer.error());
  const Duration left = deadline.remaining();
  if (auto filled = fill(*writer, name, file); !filled) return fail(filled.error());
  if (auto sealed = writer->seal(left); !sealed) return fail(sealed.error());
  return *file.size();
}

void add_store_options(CLI::App& command, Context& context) {
  add_config_option(command, context, "socket");
  add_config_option(command, context, "timeout");
}

Result<Store> open_store(const Context& context, const Deadline& deadline) {
  const std::string& socket = context.config.text("socket");
  auto store = Store::connect(socket, deadline.remaining());
  // A node that was started together with this command is given a moment to be there.
  const Instant patience = SteadyClock().now() + std::min(kNodeStart, deadline.remaining());
  while (!store && store.error().code() == Errc::kUnreachable && SteadyClock().now() < patience) {
    std::this_thread::sleep_for(kNodeRetry);
    store = Store::connect(socket, deadline.remaining());
  }
  if (store) return store;
  Error error = store.error();
  if (error.code() != Errc::kUnreachable && error.code() != Errc::kNotFound) return store;
  return fail(std::move(error).with_fix(
      "start one with 'lochos node --directory ADDR:PORT', or say where it is with --socket"));
}

std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace lochos
