// The options of `lochos` that can be set in three ways. Values; use anywhere.
//
// Precedence: flag, then LOCHOS_* environment variable, then the TOML file, then the default. Each
// value remembers where it came from, for `lochos info --config` and for error messages.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "directory/messages.h"

namespace lochos {

enum class OptionKind : std::uint8_t { kText, kSize, kDuration, kInteger, kBoolean, kTransport };

// One configurable option. `key` is its place in the TOML file: "socket", or "node.pool" for `pool`
// in the table [node].
struct OptionSpec {
  std::string_view key;
  std::string_view flag;         // "--pool"
  std::string_view environment;  // "LOCHOS_POOL"
  OptionKind kind;
  std::string_view value_name;     // in help texts: "SIZE"
  std::string_view default_value;  // as written by a user; empty: see `default_text`
  std::string_view default_text;   // what an empty default means, for people
  std::string_view help;
};

// All of them, in the order in which `lochos info --config` shows them.
std::span<const OptionSpec> option_catalogue();
// Null if there is no such key.
const OptionSpec* find_option(std::string_view key);

// Where the values of a process come from. Injected, so that tests need no environment.
struct ConfigSources {
  std::map<std::string, std::string, std::less<>> flags;  // by key
  std::string config_file;                                // --config; empty: not given
  // The value of an environment variable, or nothing.
  std::function<std::optional<std::string>(std::string_view)> environment;
  // Files tried in this order when neither --config nor LOCHOS_CONFIG names one; only the first
  // that exists is read.
  std::vector<std::string> default_files;
  // Defaults that depend on the machine, by key.
  std::map<std::string, std::string, std::less<>> computed_defaults;
};

class Config {
 public:
  enum class Origin : std::uint8_t { kFlag, kEnvironment, kFile, kDefault };
  struct Value {
    std::string text;
    Origin origin = Origin::kDefault;
    std::string where;  // "--pool", "LOCHOS_POOL", "/etc/lochos/lochos.toml:7", "default"
  };

  // Reads and checks everything. Errors: kInvalidArgument, naming the flag, variable or file:line
  // and, for an unknown key, the nearest valid one; kNotFound for a named file that is not there.
  static Result<Config> load(const ConfigSources& sources);

  // REQUIRES for all below: `key` is in the catalogue, and of that kind.
  const Value& value(std::string_view key) const;
  const std::string& text(std::string_view key) const { return value(key).text; }
  std::uint64_t size(std::string_view key) const;
  // "none" is kNoTimeout.
  Duration duration(std::string_view key) const;
  int integer(std::string_view key) const;
  bool boolean(std::string_view key) const;
  TransportPolicy transport(std::string_view key) const;

  // The file that was read; empty if none was.
  const std::string& file() const { return file_; }

 private:
  std::map<std::string, Value, std::less<>> values_;
  std::string file_;
};

// Parses one value of an option, as written by a user.
// Errors: kInvalidArgument, saying what is allowed.
Status check_option_value(const OptionSpec& option, std::string_view text);

// The one of `candidates` nearest to `word`, or empty if none is near (more than a third differs).
std::string nearest_word(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace lochos
