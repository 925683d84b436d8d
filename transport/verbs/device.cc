#include "transport/verbs/device.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <net/if.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/units.h"
#include "transport/verbs/errors.h"

namespace lochos::verbs {
namespace {

constexpr std::uint64_t kCapabilityIpcLock = 14;

// The value behind `key` in the status of this thread (capabilities belong to threads), as text.
std::string own_status(std::string_view key) {
  std::ifstream file("/proc/thread-self/status");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const std::size_t start = line.find_first_not_of(": \t", key.size());
    return start == std::string::npos ? "" : line.substr(start);
  }
  return "";
}

bool may_lock_without_limit() {
  const std::string mask = own_status("CapEff");
  return !mask.empty() && ((std::strtoull(mask.c_str(), nullptr, 16) >> kCapabilityIpcLock) & 1);
}

std::string gid_text(const ibv_gid& gid) {
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(AF_INET6, gid.raw, text, sizeof text);
  return text;
}

std::string interface_name(unsigned index) {
  char name[IF_NAMESIZE] = "";
  return index != 0 && if_indextoname(index, name) != nullptr ? name : "";
}

std::string_view gid_type_name(std::uint32_t type) {
  switch (type) {
    case IBV_GID_TYPE_ROCE_V1:
      return "RoCE v1";
    case IBV_GID_TYPE_ROCE_V2:
      return "RoCE v2";
    default:
      return "IB";
  }
}

}  // namespace

Result<std::shared_ptr<Device>> Device::open(const std::string& name, int port) {
  int count = 0;
  std::unique_ptr<ibv_device*, Destroy<&ibv_free_device_list>> list(ibv_get_device_list(&count));
  const std::span<ibv_device*> devices(list.get(), static_cast<std::size_t>(std::max(count, 0)));
  const auto found = std::find_if(devices.begin(), devices.end(),
                                  [&](ibv_device* d) { return ibv_get_device_name(d) == name; });
  if (!list || found == devices.end()) {
    return fail(Errc::kUnsupported, fmt::format("there is no RDMA device '{}'", name));
  }
  std::shared_ptr<Device> device(new Device);
  device->name_ = name;
  device->port_ = port;
  auto context = check_null<ContextHandle>(ibv_open_device(*found),
                                           fmt::format("opening RDMA device {}", name));
  if (!context) return fail(std::move(context.error()));
  device->context_ = std::move(*context);
  auto domain = check_null<DomainHandle>(ibv_alloc_pd(device->context()), "ibv_alloc_pd");
  if (!domain) return fail(std::move(domain.error()));
  device->domain_ = std::move(*domain);
  if (auto done = check_errno_returned(ibv_query_device(device->context(), &device->attributes_),
                                       "ibv_query_device");
      !done) {
    return fail(std::move(done.error()));
  }
  if (auto done =
          check_errno_returned(ibv_query_port(device->context(), static_cast<std::uint8_t>(port),
                                              &device->port_attributes_),
                               "ibv_query_port");
      !done) {
    return fail(std::move(done.error()));
  }
  return device;
}

VerbsRegion::VerbsRegion(std::shared_ptr<Device> device, MemoryHandle handle,
                         std::span<std::byte> memory)
    : Region(memory, reinterpret_cast<std::uint64_t>(memory.data()), handle->rkey),
      device_(std::move(device)),
      handle_(std::move(handle)) {}

Result<std::unique_ptr<VerbsRegion>> VerbsRegion::open(std::shared_ptr<Device> device,
                                                       std::span<std::byte> memory) {
  MemoryHandle handle(
      ibv_reg_mr(device->domain(), memory.data(), memory.size(),
                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ));
  if (!handle) {
    const int cause = errno;
    return fail(pinning_error(cause, "registering memory", memory.size())
                    .with_transport("verbs")
                    .with_nic(device->name()));
  }
  return std::unique_ptr<VerbsRegion>(
      new VerbsRegion(std::move(device), std::move(handle), memory));
}

Error pinning_error(int errno_value, std::string_view what, std::uint64_t need_bytes) {
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  const bool limited = limit.rlim_cur != RLIM_INFINITY && !may_lock_without_limit();
  if (!limited || (errno_value != ENOMEM && errno_value != EPERM && errno_value != EAGAIN)) {
    return system_error(errno_value, fmt::format("{} ({})", what, format_size(need_bytes)));
  }
  const std::string pinned = own_status("VmPin");
  return Error(Errc::kPermission,
               fmt::format("{} needs to lock {}, and this process may lock only {}{}", what,
                           format_size(need_bytes), format_size(limit.rlim_cur),
                           pinned.empty() ? "" : fmt::format(" (locked now: {})", pinned)))
      .with_cause("RLIMIT_MEMLOCK is too low and the process has no CAP_IPC_LOCK")
      .with_fix(
          "in a shell: ulimit -l unlimited; for a systemd service: LimitMEMLOCK=infinity; for "
          "users: '* - memlock unlimited' in /etc/security/limits.conf; or give the program the "
          "capability: setcap cap_ipc_lock+ep");
}

std::vector<VerbsGid> list_gids(ibv_context* context, int port) {
  // The whole device's table; a port of today's devices has at most 256 entries.
  std::vector<ibv_gid_entry> entries(1024);
  const ssize_t count = ibv_query_gid_table(context, entries.data(), entries.size(), 0);
  entries.resize(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  std::vector<VerbsGid> gids;
  for (const ibv_gid_entry& entry : entries) {
    if (entry.port_num != static_cast<std::uint32_t>(port)) continue;
    gids.push_back({.index = static_cast<int>(entry.gid_index),
                    .gid = gid_text(entry.gid),
                    .type = std::string(gid_type_name(entry.gid_type)),
                    .interface = interface_name(entry.ndev_ifindex)});
  }
  return gids;
}

std::string gid_table(std::span<const VerbsGid> gids) {
  if (gids.empty()) return "none (the table is empty)";
  std::string text;
  for (const VerbsGid& gid : gids) {
    text += fmt::format("{}{} = {} ({}{}{})", text.empty() ? "" : "; ", gid.index, gid.gid,
                        gid.type, gid.interface.empty() ? "" : ", ", gid.interface);
  }
  return text;
}

SocketAddress gid_address(const VerbsGid& gid) {
  in6_addr raw{};
  inet_pton(AF_INET6, gid.gid.c_str(), &raw);
  if (IN6_IS_ADDR_V4MAPPED(&raw)) {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    std::memcpy(&v4.sin_addr, raw.s6_addr + 12, sizeof v4.sin_addr);
    return {reinterpret_cast<sockaddr*>(&v4), sizeof v4};
  }
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_addr = raw;
  if (IN6_IS_ADDR_LINKLOCAL(&raw)) v6.sin6_scope_id = if_nametoindex(gid.interface.c_str());
  return {reinterpret_cast<sockaddr*>(&v6), sizeof v6};
}

int mtu_bytes(ibv_mtu mtu) {
  return 128 << static_cast<int>(mtu);  // the enumeration counts 256, 512, … from 1
}

std::optional<ibv_mtu> mtu_from_bytes(int bytes) {
  for (const ibv_mtu mtu : {IBV_MTU_256, IBV_MTU_512, IBV_MTU_1024, IBV_MTU_2048, IBV_MTU_4096}) {
    if (mtu_bytes(mtu) == bytes) return mtu;
  }
  return std::nullopt;
}

}  // namespace lochos::verbs
