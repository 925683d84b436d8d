#include "tools/config_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <toml++/toml.h>
#include <algorithm>
#include <array>
#include <cerrno>

#include "base/unique_fd.h"

namespace lochos {
namespace {

constexpr std::size_t kMaxConfigBytes = 1024 * 1024;  // larger is surely another file

Result<std::string> read_text(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return fail(system_error(errno, fmt::format("cannot open configuration file {}", path)));
  std::string text;
  std::array<char, 8192> block;
  for (;;) {
    const ssize_t got = ::read(fd.get(), block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      return fail(system_error(errno, fmt::format("cannot read configuration file {}", path)));
    if (got == 0) return text;
    text.append(block.data(), static_cast<std::size_t>(got));
    if (text.size() > kMaxConfigBytes)
      return fail(Errc::kInvalidArgument, fmt::format("{}: longer than 1 MiB", path));
  }
}

// The value as a user would write it on the command line; nothing for arrays, tables and dates.
std::optional<std::string> value_text(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return fmt::format("{}", number->get());
  if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
  if (const auto* boolean = node.as_boolean()) return boolean->get() ? "yes" : "no";
  return std::nullopt;
}

struct Flattener {
  const std::string& path;
  std::vector<std::pair<std::uint32_t, ConfigFileEntry>> entries;

  std::string where(const toml::node& node) const {
    return fmt::format("{}:{}", path, node.source().begin.line);
  }

  Status add(const std::string& prefix, const toml::table& table) {
    for (const auto& [name, node] : table) {
      const std::string key =
          prefix.empty() ? std::string(name.str()) : fmt::format("{}.{}", prefix, name.str());
      if (const toml::table* inner = node.as_table()) {
        if (auto ok = add(key, *inner); !ok) return ok;
        continue;
      }
      auto text = value_text(node);
      if (!text) {
        return fail(Errc::kInvalidArgument,
                    fmt::format("{}: the value of '{}' must be text, a number or true/false",
                                where(node), key));
      }
      entries.emplace_back(node.source().begin.line,
                           ConfigFileEntry{key, std::move(*text), where(node)});
    }
    return {};
  }
};

}  // namespace

bool file_exists(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0;
}

Result<std::vector<ConfigFileEntry>> read_config_file(const std::string& path) {
  auto text = read_text(path);
  if (!text) return fail(text.error());
  toml::table table;
  try {
    table = toml::parse(*text, path);
  } catch (const toml::parse_error& error) {
    return fail(Errc::kInvalidArgument,
                fmt::format("{}:{}: {}", path, error.source().begin.line, error.description()));
  }
  Flattener flattener{path, {}};
  if (auto ok = flattener.add("", table); !ok) return fail(ok.error());
  std::stable_sort(flattener.entries.begin(), flattener.entries.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<ConfigFileEntry> entries;
  for (auto& [line, entry] : flattener.entries)
    entries.push_back(std::move(entry));
  return entries;
}

}  // namespace lochos
