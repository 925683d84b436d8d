#include "tools/host_facts.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/unique_fd.h"
#include "tools/fabric_providers.h"

namespace lochos {
namespace {

namespace fs = std::filesystem;

constexpr Duration kAnswerTimeout =
    std::chrono::seconds(1);  // of a daemon, before it counts as dead

std::string read_file(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  std::string out = text.str();
  while (!out.empty() && (out.back() == '\n' || out.back() == ' '))
    out.pop_back();
  return out;
}

std::optional<std::uint64_t> read_number(const fs::path& path) {
  const std::string text = read_file(path);
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  return number;
}

std::vector<std::string> list_folder(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (auto it = fs::directory_iterator(folder, error); !error && it != fs::directory_iterator();
       it.increment(error))
    names.push_back(it->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

bool path_exists(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// "Name:   1234 kB" lines of /proc files. Bytes; 0 if the name is not there.
std::uint64_t proc_kilobytes(const std::string& text, std::string_view name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name)) continue;
    const std::size_t digit = line.find_first_of("0123456789", name.size());
    if (digit == std::string::npos) return 0;
    std::uint64_t number = 0;
    std::from_chars(line.data() + digit, line.data() + line.size(), number);
    return number * 1024;
  }
  return 0;
}

bool has_capability(int number) {
  std::istringstream lines(read_file("/proc/self/status"));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("CapEff:")) continue;
    const std::string digits = line.substr(line.find_last_of(" \t") + 1);
    std::uint64_t mask = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), mask, 16);
    return (mask >> number & 1) != 0;
  }
  return false;
}

void gather_limits(HostFacts& facts) {
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  const auto bytes = [](rlim_t v) { return v == RLIM_INFINITY ? kUnlimited : std::uint64_t{v}; };
  facts.locked_limit_bytes = bytes(limit.rlim_cur);
  facts.locked_hard_limit_bytes = bytes(limit.rlim_max);
  constexpr int kCapIpcLock = 14;
  facts.has_ipc_lock = has_capability(kCapIpcLock);
}

void gather_rdma(HostFacts& facts) {
  facts.kernel_rdma_devices = list_folder("/sys/class/infiniband");
  facts.has_rdma_cm_node = path_exists("/dev/infiniband/rdma_cm");
  for (const std::string& name : list_folder("/dev/infiniband"))
    facts.has_uverbs_node = facts.has_uverbs_node || name.starts_with("uverbs");
  for (const std::string& name : list_folder("/etc/libibverbs.d"))
    facts.provider_drivers.push_back(name.substr(0, name.find('.')));
  utsname system{};
  ::uname(&system);
  facts.has_rxe_module =
      path_exists("/sys/module/rdma_rxe") ||
      path_exists(fmt::format("/lib/modules/{}/kernel/drivers/infiniband/sw/rxe", system.release));
}

void gather_memory(HostFacts& facts) {
  facts.available_bytes = proc_kilobytes(read_file("/proc/meminfo"), "MemAvailable:");
  for (const char* path :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    if (auto limit = read_number(path); limit && *limit < (1ULL << 60))
      facts.cgroup_limit_bytes = *limit;
  }
  const fs::path huge = "/sys/kernel/mm/hugepages";
  for (const std::string& name : list_folder(huge)) {
    const std::size_t dash = name.find('-');
    if (dash == std::string::npos) continue;
    facts.huge_pages.push_back({proc_kilobytes(name, name.substr(0, dash + 1)),
                                read_number(huge / name / "nr_hugepages").value_or(0),
                                read_number(huge / name / "free_hugepages").value_or(0)});
  }
  const std::string transparent = read_file("/sys/kernel/mm/transparent_hugepage/enabled");
  if (const std::size_t open = transparent.find('['); open != std::string::npos)
    facts.transparent_huge_pages = transparent.substr(open + 1, transparent.find(']') - open - 1);
  const UniqueFd memory(::memfd_create("lochos-doctor", MFD_CLOEXEC));
  if (!memory) facts.memfd_error = system_error(errno, "memfd_create").message();
}

void gather_host_name(HostFacts& facts) {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  facts.host_name = name;
  if (auto addresses = resolve(facts.host_name, 0)) {
    // One entry per address, not one per socket type.
    for (const SocketAddress& address : *addresses) {
      if (std::find(facts.host_addresses.begin(), facts.host_addresses.end(), address) ==
          facts.host_addresses.end())
        facts.host_addresses.push_back(address);
    }
  } else {
    facts.host_name_error = addresses.error().message();
  }
}

// Empty if a server could bind there now.
std::string bind_error(const std::string& text) {
  auto addresses = resolve(text);
  if (!addresses) return addresses.error().message();
  const SocketAddress& address = addresses->front();
  const UniqueFd socket(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (::bind(socket.get(), address.get(), address.length()) != 0 || ::listen(socket.get(), 1) != 0)
    return system_error(errno, address.to_string()).message();
  return "";
}

// Empty if somebody accepts connections there.
std::string connect_error(const std::string& text) {
  auto addresses = resolve(text);
  if (!addresses) return addresses.error().message();
  std::string why;
  for (const SocketAddress& address : *addresses) {
    const UniqueFd socket(
        ::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (::connect(socket.get(), address.get(), address.length()) == 0) return "";
    int error = errno;
    if (error == EINPROGRESS) {
      pollfd waiting{socket.get(), POLLOUT, 0};
      constexpr int kTimeoutMs = 1000;
      socklen_t length = sizeof error;
      error = ETIMEDOUT;
      if (::poll(&waiting, 1, kTimeoutMs) == 1)
        ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    }
    if (error == 0) return "";
    why = system_error(error, address.to_string()).message();
  }
  return why;
}

void gather_daemons(HostFacts& facts) {
  auto store = Store::connect(facts.socket, kAnswerTimeout);
  if (!store) {
    facts.daemon_error = store.error().message();
    return;
  }
  if (auto stats = store->stats(kAnswerTimeout)) {
    facts.daemon = std::move(*stats);
  } else {
    facts.daemon_error = stats.error().message();
  }
}

}  // namespace

std::map<std::string, std::string> unknown_variables(const std::vector<std::string>& names) {
  constexpr std::string_view kPrefix = "LOCHOS_";
  std::vector<std::string_view> known = {"CONFIG"};
  for (const OptionSpec& option : option_catalogue())
    known.push_back(option.environment.substr(kPrefix.size()));
  std::map<std::string, std::string> unknown;
  for (const std::string& name : names) {
    if (!name.starts_with(kPrefix)) continue;
    const std::string_view word = std::string_view(name).substr(kPrefix.size());
    if (std::find(known.begin(), known.end(), word) != known.end()) continue;
    // A slip of the fingers is named; anything else may be another program's.
    const std::string near = nearest_word(word, known);
    if (!near.empty()) unknown[name] = std::string(kPrefix) + near;
  }
  return unknown;
}

Result<HostFacts> gather_host_facts(const Config& config,
                                    const std::vector<std::string>& environment_names) {
  HostFacts facts;
  auto topology = discover_topology();
  if (!topology) return fail(topology.error());
  facts.topology = std::move(*topology);
  facts.pool_bytes = config.size("node.pool");
  facts.transport = config.transport("node.transport");
  facts.provider = config.text("node.provider");
  facts.wants_huge_pages = config.boolean("node.huge_pages");
#ifdef LOCHOS_HAVE_VERBS
  facts.built_with_verbs = true;
#endif
#ifdef LOCHOS_HAVE_FABRIC
  facts.built_with_fabric = true;
#endif
  facts.fabric_providers = fabric_providers();
  gather_limits(facts);
  gather_rdma(facts);
  gather_memory(facts);
  gather_host_name(facts);
  facts.directory_listen = config.text("directory.listen");
  facts.directory_listen_error = bind_error(facts.directory_listen);
  facts.socket = config.text("socket");
  gather_daemons(facts);
  facts.directory = config.text("node.directory");
  if (facts.directory.empty() && facts.daemon) facts.directory = facts.daemon->directory;
  if (!facts.directory.empty()) facts.directory_error = connect_error(facts.directory);
  facts.unknown_variables = unknown_variables(environment_names);
  return facts;
}

}  // namespace lochos
