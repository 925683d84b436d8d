#include "node/pool_limits.h"

#include <charconv>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>

namespace lochos {
namespace {

constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

std::optional<std::uint64_t> parse(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return std::nullopt;
  return value;
}

// The number that a file starts with ("max" is no number).
std::optional<std::uint64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  if (!(file >> word)) return std::nullopt;
  return parse(word);
}

// The number that follows `key` in a file of lines "key number".
std::optional<std::uint64_t> read_field(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string name;
    std::string value;
    if (words >> name >> value && name == key) return parse(value);
  }
  return std::nullopt;
}

void lower(MemoryLeft& left, std::uint64_t bytes, const std::string& limited_by) {
  if (bytes >= left.bytes) return;
  left.bytes = bytes;
  left.limited_by = limited_by;
}

// The names that the two versions of control groups give to the same things.
struct GroupFiles {
  const char* mount;
  const char* limit;
  const char* usage;
  const char* reclaimable;  // in memory.stat
};
constexpr GroupFiles kVersion1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                  "memory.usage_in_bytes", "total_inactive_file"};
constexpr GroupFiles kVersion2 = {"/sys/fs/cgroup", "memory.max", "memory.current",
                                  "inactive_file"};

// One group and all above it: each may have a limit of its own.
void lower_by_groups(MemoryLeft& left, const std::string& root, const GroupFiles& files,
                     std::string group) {
  for (;;) {
    if (group == "/") group.clear();
    const std::string folder = root + files.mount + group + "/";
    const auto limit = read_number(folder + files.limit);
    const auto usage = read_number(folder + files.usage);
    if (limit && usage) {
      const std::uint64_t cache = read_field(folder + "memory.stat", files.reclaimable).value_or(0);
      const std::uint64_t taken = *usage - std::min(*usage, cache);
      lower(left, *limit - std::min(*limit, taken), folder + files.limit);
    }
    if (group.empty()) return;
    group.resize(group.rfind('/'));
  }
}

}  // namespace

MemoryLeft memory_left(const std::string& root) {
  MemoryLeft left{kUnlimited, ""};
  if (const auto kib = read_field(root + "/proc/meminfo", "MemAvailable:")) {
    lower(left, *kib * 1024, "memory of this machine");
  }
  std::ifstream groups(root + "/proc/self/cgroup");
  std::string line;  // "number:controllers:path"
  while (std::getline(groups, line)) {
    const auto first = line.find(':');
    const auto second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string group = line.substr(second + 1);
    if (group.empty() || group[0] != '/') continue;
    if (controllers == ",,") lower_by_groups(left, root, kVersion2, group);
    if (controllers.find(",memory,") != std::string::npos) {
      lower_by_groups(left, root, kVersion1, group);
    }
  }
  return left;
}

std::uint64_t free_huge_page_bytes(const std::string& root) {
  const std::string folder = root + "/sys/kernel/mm/hugepages/hugepages-2048kB/";
  const std::uint64_t free = read_number(folder + "free_hugepages").value_or(0);
  const std::uint64_t promised = read_number(folder + "resv_hugepages").value_or(0);
  return (free - std::min(free, promised)) * (2ULL << 20);
}

}  // namespace lochos
