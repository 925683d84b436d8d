// The `lochos` command: reads the command line and configuration, runs one subcommand.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "tools/commands.h"
#include "tools/context.h"
#include "tools/options.h"

namespace lochos {
namespace {

constexpr const char* kFooter =
    "Exit status: 0 done, 1 the operation failed, 2 wrong usage.\n"
    "Every option can also be set by its environment variable (shown in brackets) or in a TOML\n"
    "file; `lochos info --config` shows each value and where it came from.\n\n"
    "Try it on this machine:   lochos demo\n"
    "What stops RDMA here:     lochos doctor";

std::optional<std::string> environment(std::string_view name) {
  const char* value = std::getenv(std::string(name).c_str());
  if (value == nullptr) return std::nullopt;
  return value;
}

std::string default_socket_path() {
  const std::string folder = environment("XDG_RUNTIME_DIR").value_or("");
  return fmt::format("{}/lochos-{}.sock", folder.empty() ? "/tmp" : folder, getuid());
}

ConfigSources config_sources(const Context& context) {
  ConfigSources sources;
  sources.flags = context.flags;
  sources.config_file = context.config_file;
  sources.environment = environment;
  const std::string home = environment("HOME").value_or("");
  const std::string config_home = environment("XDG_CONFIG_HOME").value_or("");
  if (!config_home.empty()) {
    sources.default_files.push_back(config_home + "/lochos/lochos.toml");
  } else if (!home.empty()) {
    sources.default_files.push_back(home + "/.config/lochos/lochos.toml");
  }
  sources.default_files.emplace_back("/etc/lochos/lochos.toml");
  sources.computed_defaults["socket"] = default_socket_path();
  return sources;
}

// One line, whatever the error's text holds.
int report(const std::string& text, int status) {
  std::string line = "lochos: " + text;
  for (char& c : line) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  line += '\n';
  std::fputs(line.c_str(), stderr);
  return status;
}

int report(const Error& error) {
  return report(error.to_string(),
                error.code() == Errc::kInvalidArgument ? kExitUsage : kExitFailed);
}

// The innermost subcommand that was named: its --help is the one to point to.
std::string command_path(const CLI::App& app) {
  std::string path = app.get_name();
  for (const CLI::App* at = &app; !at->get_subcommands().empty();) {
    at = at->get_subcommands().front();
    path += " " + at->get_name();
  }
  return path;
}

int run(int argc, char** argv) {
  Context context;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view variable = *entry;
    context.environment_names.emplace_back(variable.substr(0, variable.find('=')));
  }
  CLI::App app("Lochos moves immutable objects between machines at the speed of the wire.",
               "lochos");
  app.footer(kFooter);
  app.set_version_flag("--version", "lochos " LOCHOS_VERSION);
  app.add_option("--config", context.config_file, "TOML file with options (LOCHOS_CONFIG)")
      ->type_name("FILE");
  app.fallthrough();
  add_all_commands(app, context);

  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help_or_version) {
    return app.exit(help_or_version) == 0 ? kExitDone : kExitFailed;
  } catch (const CLI::ParseError& error) {
    return report(fmt::format("{} (see '{} --help')", error.what(), command_path(app)), kExitUsage);
  }

  if (!context.run)
    return report(fmt::format("say what to do: put, get, … (see '{} --help')", command_path(app)),
                  kExitUsage);

  auto config = Config::load(config_sources(context));
  if (!config) return report(config.error().to_string(), kExitUsage);
  context.config = std::move(*config);
  auto status = context.run();
  if (!status) return report(status.error());
  if (std::fflush(stdout) != 0) return report("cannot write to standard output", kExitFailed);
  return *status;
}

}  // namespace
}  // namespace lochos

int main(int argc, char** argv) {
  // A reader that goes away is an error of write(), not the end of the process.
  std::signal(SIGPIPE, SIG_IGN);
  try {
    return lochos::run(argc, argv);
  } catch (const std::exception& error) {  // memory exhausted, or a library's surprise
    return lochos::report(error.what(), lochos::kExitFailed);
  }
}
