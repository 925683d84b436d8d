#include "tools/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>

#include "base/check.h"
#include "base/units.h"

namespace lochos {
namespace {

// The parser library reports errors by exceptions; they end in main.cc.
[[noreturn]] void refuse(const std::string& option, const std::string& why) {
  throw CLI::ValidationError(option, why);
}

std::string first_long_name(const std::string& names) {
  const std::size_t dashes = names.find("--");
  return dashes == std::string::npos ? names
                                     : names.substr(dashes, names.find(',', dashes) - dashes);
}

std::uint64_t parse_integer(const std::string& text, std::uint64_t minimum, std::uint64_t maximum,
                            const std::string& option) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < minimum ||
      number > maximum) {
    refuse(option, fmt::format("'{}' is no whole number from {} to {}", text.substr(0, 64), minimum,
                               maximum));
  }
  return number;
}

// An option whose text `parse` turns into a value or an error.
template <class T, class Parse>
void add_parsed(CLI::App& command, const std::string& names, T& target, Parse parse,
                const std::string& type_name, const std::string& help) {
  const std::string option = first_long_name(names);
  command
      .add_option_function<std::string>(
          names,
          [&target, parse, option](const std::string& text) {
            auto value = parse(text);
            if (!value) refuse(option, value.error().message());
            target = *value;
          },
          help)
      ->type_name(type_name);
}

}  // namespace

CLI::App& add_command(CLI::App& parent, const std::string& name, const std::string& description,
                      const std::string& footer) {
  CLI::App* command = parent.add_subcommand(name, description);
  command->footer(footer);
  return *command;
}

CLI::App& add_command_group(CLI::App& parent, const std::string& name,
                            const std::string& description, const std::string& footer) {
  CLI::App& group = add_command(parent, name, description, footer);
  group.require_subcommand(1);
  return group;
}

void set_run(CLI::App& command, Context& context, std::function<Result<int>()> run) {
  command.callback([&context, run = std::move(run)] { context.run = run; });
}

void add_switch(CLI::App& command, const std::string& names, bool& target,
                const std::string& help) {
  command.add_flag(names, target, help);
}

void add_size(CLI::App& command, const std::string& names, std::uint64_t& target,
              const std::string& help) {
  add_parsed(command, names, target, parse_size, "SIZE",
             fmt::format("{} [{}]", help, format_size(target)));
}

void add_duration(CLI::App& command, const std::string& names, Duration& target,
                  const std::string& help) {
  add_parsed(command, names, target, parse_duration, "DURATION",
             fmt::format("{} [{}]", help, format_duration(target)));
}

void add_integer(CLI::App& command, const std::string& names, std::uint64_t& target,
                 std::uint64_t minimum, std::uint64_t maximum, const std::string& help) {
  const std::string option = first_long_name(names);
  command
      .add_option_function<std::string>(
          names,
          [&target, minimum, maximum, option](const std::string& text) {
            target = parse_integer(text, minimum, maximum, option);
          },
          help)
      ->type_name("N");
}

void add_text(CLI::App& command, const std::string& names, const std::string& value_name,
              std::string& target, const std::string& help) {
  command.add_option(names, target, help)->type_name(value_name);
}

void add_choice(CLI::App& command, const std::string& names, std::string& target,
                const std::vector<std::string>& allowed, const std::string& help) {
  const std::string option = first_long_name(names);
  const std::string list = fmt::format("{}", fmt::join(allowed, "|"));
  command
      .add_option_function<std::string>(
          names,
          [&target, allowed, option, list](const std::string& text) {
            if (std::find(allowed.begin(), allowed.end(), text) == allowed.end())
              refuse(option, fmt::format("'{}' is none of {}", text.substr(0, 64), list));
            target = text;
          },
          target.empty() ? help : fmt::format("{} [{}]", help, target))
      ->type_name(list);
}

void add_positional(CLI::App& command, const std::string& name, std::string& target,
                    Presence presence, const std::string& help) {
  CLI::Option* option = command.add_option(name, target, help)->type_name("");
  if (presence == Presence::kRequired) option->required();
}

void add_positionals(CLI::App& command, const std::string& name, std::vector<std::string>& targets,
                     const std::string& help) {
  command.add_option(name, targets, help)->type_name("")->required();
}

void add_config_option(CLI::App& command, Context& context, std::string_view key) {
  const OptionSpec* spec = find_option(key);
  LOCHOS_CHECK(spec != nullptr);
  const std::string_view shown =
      spec->default_value.empty() ? spec->default_text : spec->default_value;
  std::string help(spec->help);
  if (!shown.empty()) help += fmt::format(" [{}]", shown);
  help += fmt::format(" ({})", spec->environment);
  command
      .add_option_function<std::string>(
          std::string(spec->flag),
          [&context, spec](const std::string& text) {
            if (auto checked = check_option_value(*spec, text); !checked)
              refuse(std::string(spec->flag), checked.error().message());
            context.flags[std::string(spec->key)] = text;
          },
          help)
      ->type_name(std::string(spec->value_name));
}

}  // namespace lochos
