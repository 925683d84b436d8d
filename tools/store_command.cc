#include "tools/store_command.h"

#include <fmt/format.h>

#include "tools/options.h"

namespace lochos {

void add_store_options(CLI::App& command, Context& context) {
  add_config_option(command, context, "socket");
  add_config_option(command, context, "timeout");
}

Result<Store> open_store(const Context& context, const Deadline& deadline) {
  const std::string& socket = context.config.text("socket");
  auto store = Store::connect(socket, deadline.remaining());
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
