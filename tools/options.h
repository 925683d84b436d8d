// The few ways in which a subcommand describes its command line. The parser library stays in
// options.cc: its header is expensive to compile. Main thread only.
//
// The targets (`bool&`, `std::string&`, …) are filled while the command line is read, and must live
// until Context::run has returned: keep them in a shared_ptr that the run function holds.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "tools/context.h"

namespace lochos {

// A subcommand of `parent`. `footer` is shown below the options by --help: examples, mostly.
CLI::App& add_command(CLI::App& parent, const std::string& name, const std::string& description,
                      const std::string& footer);
// The same for a subcommand that does nothing by itself: one of its own must be named.
CLI::App& add_command_group(CLI::App& parent, const std::string& name,
                            const std::string& description, const std::string& footer);
// What the subcommand does. Called once the configuration is complete.
void set_run(CLI::App& command, Context& context, std::function<Result<int>()> run);

// "--json" and the like.
void add_switch(CLI::App& command, const std::string& names, bool& target, const std::string& help);
// "--size SIZE"; parsed by parse_size. Pass the default in `target`; it is shown.
void add_size(CLI::App& command, const std::string& names, std::uint64_t& target,
              const std::string& help);
// "--interval DURATION"; parsed by parse_duration.
void add_duration(CLI::App& command, const std::string& names, Duration& target,
                  const std::string& help);
// "--count N", at least `minimum`, at most `maximum`.
void add_integer(CLI::App& command, const std::string& names, std::uint64_t& target,
                 std::uint64_t minimum, std::uint64_t maximum, const std::string& help);
void add_text(CLI::App& command, const std::string& names, const std::string& value_name,
              std::string& target, const std::string& help);
void add_choice(CLI::App& command, const std::string& names, std::string& target,
                const std::vector<std::string>& allowed, const std::string& help);

// Positional arguments, in the order of these calls.
enum class Presence : std::uint8_t { kRequired, kOptional };
void add_positional(CLI::App& command, const std::string& name, std::string& target,
                    Presence presence, const std::string& help);
// One or more; takes all that is left.
void add_positionals(CLI::App& command, const std::string& name, std::vector<std::string>& targets,
                     const std::string& help);

// An option of the catalogue in config.h: takes its flag, help and default from there; the value is
// context.config.…("key") in the run function.
void add_config_option(CLI::App& command, Context& context, std::string_view key);

}  // namespace lochos
