#include "tools/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>

#include "base/check.h"
#include "base/units.h"
#include "node/store.h"
#include "tools/config_file.h"

namespace lochos {
namespace {

using enum OptionKind;

constexpr std::array kCatalogue = {
    OptionSpec{"socket", "--socket", "LOCHOS_SOCKET", kText, "PATH", "",
               "$XDG_RUNTIME_DIR, else /tmp, then /lochos-UID.sock",
               "Unix socket of this host's node"},
    OptionSpec{"timeout", "--timeout", "LOCHOS_TIMEOUT", kDuration, "DURATION", "30s", "",
               "How long a call may take: 250ms, 30s, 5m, none"},
    OptionSpec{"log_level", "--log-level", "LOCHOS_LOG_LEVEL", kText, "LEVEL", "info", "",
               "Least important log lines to show: debug, info, warning, error"},
    OptionSpec{"node.directory", "--directory", "LOCHOS_DIRECTORY", kText, "ADDR:PORT", "",
               "no default",
               "Address of the directory: 10.0.0.1:7777, [fe80::1%eth0]:7777, host:7777"},
    OptionSpec{"node.name", "--name", "LOCHOS_NAME", kText, "NAME", "", "the host name",
               "Name of the node, for people"},
    OptionSpec{"node.pool", "--pool", "LOCHOS_POOL", kSize, "SIZE", "4G", "",
               "Memory for objects, reserved at start: 512M, 4G"},
    OptionSpec{"node.transport", "--transport", "LOCHOS_TRANSPORT", kTransport, "auto|verbs|tcp",
               "auto", "",
               "auto: RDMA where both ends can, else TCP; verbs: RDMA or an error; tcp: TCP only"},
    OptionSpec{"node.interface", "--interface", "LOCHOS_INTERFACE", kText, "LIST", "",
               "all that are up",
               "Network interfaces to use, by name, CIDR or RDMA device, comma-separated; ^ "
               "excludes: eth0,10.0.0.0/8 or mlx5_0:1 or ^docker0"},
    OptionSpec{"node.listen", "--listen", "LOCHOS_NODE_LISTEN", kText, "ADDR:PORT", "",
               "the interfaces' addresses, any free port",
               "Address for data connections from other nodes"},
    OptionSpec{"node.provider", "--provider", "LOCHOS_PROVIDER", kText, "NAME", "tcp", "",
               "libfabric provider of the TCP rail (fi_info -l lists them)"},
    OptionSpec{"node.gid_index", "--gid-index", "LOCHOS_GID_INDEX", kInteger, "N", "-1", "",
               "GID index of RDMA connections; -1: what the connection manager picks"},
    OptionSpec{"node.rdma_mtu", "--rdma-mtu", "LOCHOS_RDMA_MTU", kInteger, "BYTES", "0", "",
               "Packet size of RDMA connections, 256 to 4096; 0: the port's"},
    OptionSpec{"node.service_level", "--service-level", "LOCHOS_SERVICE_LEVEL", kInteger, "N", "-1",
               "", "Service level of RDMA connections, 0 to 15; -1: the fabric's choice"},
    OptionSpec{"node.traffic_class", "--traffic-class", "LOCHOS_TRAFFIC_CLASS", kInteger, "N", "-1",
               "",
               "Traffic class (type of service) of RDMA connections, 0 to 255; -1: the "
               "system's"},
    OptionSpec{"node.huge_pages", "--huge-pages", "LOCHOS_HUGE_PAGES", kBoolean, "yes|no", "yes",
               "", "Use huge pages for the pool if the system has any"},
    OptionSpec{"directory.listen", "--listen", "LOCHOS_DIRECTORY_LISTEN", kText, "ADDR:PORT",
               "0.0.0.0:7777", "", "Address to serve on; port 0 takes a free one and prints it"},
    OptionSpec{"directory.heartbeat", "--heartbeat", "LOCHOS_HEARTBEAT", kDuration, "DURATION",
               "250ms", "", "How often nodes say that they live"},
    OptionSpec{"directory.dead_after", "--dead-after", "LOCHOS_DEAD_AFTER", kDuration, "DURATION",
               "5s", "", "A node that is silent for this long is declared dead"},
};

// Levenshtein distance; words here are short.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, change});
    }
  }
  return row.back();
}

std::optional<bool> parse_boolean(std::string_view text) {
  for (std::string_view yes : {"yes", "true", "on", "1"}) {
    if (text == yes) return true;
  }
  for (std::string_view no : {"no", "false", "off", "0"}) {
    if (text == no) return false;
  }
  return std::nullopt;
}

std::optional<TransportPolicy> parse_transport(std::string_view text) {
  if (text == "auto") return TransportPolicy::kAuto;
  if (text == "verbs") return TransportPolicy::kVerbs;
  if (text == "tcp") return TransportPolicy::kTcp;
  return std::nullopt;
}

std::optional<int> parse_integer(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

Status invalid(std::string message) {
  return fail(Errc::kInvalidArgument, std::move(message));
}

// The file to read: named ones must exist.
struct ChosenFile {
  std::string path;
  bool required = false;
};

ChosenFile choose_file(const ConfigSources& sources) {
  if (!sources.config_file.empty()) return {sources.config_file, true};
  if (auto named = sources.environment("LOCHOS_CONFIG"); named && !named->empty())
    return {*named, true};
  for (const std::string& candidate : sources.default_files) {
    if (file_exists(candidate)) return {candidate, true};
  }
  return {};
}

Error unknown_key(const ConfigFileEntry& entry) {
  std::vector<std::string_view> keys;
  for (const OptionSpec& option : kCatalogue)
    keys.push_back(option.key);
  const std::string near = nearest_word(entry.key, keys);
  Error error(Errc::kInvalidArgument, fmt::format("{}: unknown key '{}'", entry.where, entry.key));
  if (near.empty()) return std::move(error).with_fix("'lochos info --config' lists the keys");
  return std::move(error).with_fix(fmt::format("did you mean '{}'?", near));
}

Error in_place(const Error& error, std::string_view where) {
  return Error(error.code(), fmt::format("{}: {}", where, error.message()));
}

// Values are parsed when they are set; what is wrong is refused there.
template <class Parsed>
auto checked_before(Parsed parsed) {
  LOCHOS_CHECK(parsed.has_value());
  return *parsed;
}

}  // namespace

std::span<const OptionSpec> option_catalogue() {
  return kCatalogue;
}

const OptionSpec* find_option(std::string_view key) {
  const auto* found = std::find_if(kCatalogue.begin(), kCatalogue.end(),
                                   [key](const OptionSpec& o) { return o.key == key; });
  return found == kCatalogue.end() ? nullptr : found;
}

std::string nearest_word(std::string_view word, std::span<const std::string_view> candidates) {
  std::string_view best;
  std::size_t best_distance = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (std::string_view candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return std::string(best);
}

Status check_option_value(const OptionSpec& option, std::string_view text) {
  const auto shown = text.substr(0, 64);
  switch (option.kind) {
    case kText:
      if (text.find('\0') != std::string_view::npos) return invalid("the value holds a NUL byte");
      if (option.key == "log_level" && text != "debug" && text != "info" && text != "warning" &&
          text != "error")
        return invalid(fmt::format("'{}' is no level; write debug, info, warning or error", shown));
      return {};
    case kSize:
      if (auto size = parse_size(text); !size) return fail(size.error());
      return {};
    case kDuration:
      if (text == "none") return {};
      if (auto duration = parse_duration(text); !duration) return fail(duration.error());
      return {};
    case kInteger:
      if (parse_integer(text)) return {};
      return invalid(fmt::format("'{}' is no whole number", shown));
    case kBoolean:
      if (parse_boolean(text)) return {};
      return invalid(fmt::format("'{}' is neither yes nor no", shown));
    case kTransport:
      if (parse_transport(text)) return {};
      return invalid(fmt::format("'{}' is no transport policy; write auto, verbs or tcp", shown));
  }
  return {};
}

Result<Config> Config::load(const ConfigSources& sources) {
  Config config;
  for (const OptionSpec& option : kCatalogue) {
    const auto computed = sources.computed_defaults.find(option.key);
    config.values_[std::string(option.key)] =
        Value{computed == sources.computed_defaults.end() ? std::string(option.default_value)
                                                          : computed->second,
              Origin::kDefault, "default"};
  }
  if (const ChosenFile chosen = choose_file(sources); chosen.required) {
    auto entries = read_config_file(chosen.path);
    if (!entries) return fail(entries.error());
    for (const ConfigFileEntry& entry : *entries) {
      const OptionSpec* option = find_option(entry.key);
      if (option == nullptr) return fail(unknown_key(entry));
      if (auto ok = check_option_value(*option, entry.text); !ok)
        return fail(in_place(ok.error(), entry.where));
      config.values_[entry.key] = Value{entry.text, Origin::kFile, entry.where};
    }
    config.file_ = chosen.path;
  }
  for (const OptionSpec& option : kCatalogue) {
    const auto text = sources.environment(option.environment);
    if (!text || text->empty()) continue;
    if (auto ok = check_option_value(option, *text); !ok)
      return fail(in_place(ok.error(), fmt::format("environment variable {}", option.environment)));
    config.values_[std::string(option.key)] =
        Value{*text, Origin::kEnvironment, std::string(option.environment)};
  }
  for (const auto& [key, text] : sources.flags) {
    const OptionSpec* option = find_option(key);
    LOCHOS_CHECK(option != nullptr);
    if (auto ok = check_option_value(*option, text); !ok)
      return fail(in_place(ok.error(), option->flag));
    config.values_[key] = Value{text, Origin::kFlag, std::string(option->flag)};
  }
  return config;
}

const Config::Value& Config::value(std::string_view key) const {
  const auto found = values_.find(key);
  LOCHOS_CHECK(found != values_.end());
  return found->second;
}

std::uint64_t Config::size(std::string_view key) const {
  return checked_before(parse_size(text(key)));
}

Duration Config::duration(std::string_view key) const {
  if (text(key) == "none") return kNoTimeout;
  return checked_before(parse_duration(text(key)));
}

int Config::integer(std::string_view key) const {
  return checked_before(parse_integer(text(key)));
}

bool Config::boolean(std::string_view key) const {
  return checked_before(parse_boolean(text(key)));
}

TransportPolicy Config::transport(std::string_view key) const {
  return checked_before(parse_transport(text(key)));
}

}  // namespace lochos
