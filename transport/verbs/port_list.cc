// The list of RDMA ports for people and for the choice of rails.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "transport/verbs/device.h"

namespace lochos {
namespace {

namespace fs = std::filesystem;
using verbs::ContextHandle;

// Lanes and signalling rate as the specification encodes them, in Gbit/s of data.
double rate_gbps(const ibv_port_attr& port) {
  const auto lanes = [&] {
    switch (port.active_width) {
      case 1:
        return 1.0;
      case 2:
        return 4.0;
      case 4:
        return 8.0;
      case 8:
        return 12.0;
      case 16:
        return 2.0;
      default:
        return 0.0;
    }
  }();
  const auto lane_rate = [&] {
    switch (port.active_speed) {
      case 1:
        return 2.0;  // SDR
      case 2:
        return 4.0;  // DDR
      case 4:
        return 8.0;  // QDR
      case 8:
        return 10.0;  // FDR10
      case 16:
        return 13.64;  // FDR
      case 32:
        return 25.0;  // EDR
      case 64:
        return 50.0;  // HDR
      case 128:
        return 100.0;  // NDR
      default:
        return 0.0;
    }
  }();
  return lanes * lane_rate;
}

std::string_view state_name(ibv_port_state state) {
  switch (state) {
    case IBV_PORT_ACTIVE:
      return "active";
    case IBV_PORT_DOWN:
      return "down";
    case IBV_PORT_INIT:
      return "initializing";
    case IBV_PORT_ARMED:
      return "armed";
    case IBV_PORT_ACTIVE_DEFER:
      return "active (deferred)";
    default:
      return "unknown";
  }
}

std::string_view link_layer_name(std::uint8_t layer) {
  switch (layer) {
    case IBV_LINK_LAYER_ETHERNET:
      return "Ethernet";
    case IBV_LINK_LAYER_INFINIBAND:
      return "InfiniBand";
    default:
      return "unspecified";
  }
}

// The network interface behind a port. RoCE: it is in the GID table, and known to software devices
// as their parent. InfiniBand: the IPoIB interface of the same function.
std::string find_interface(const std::string& device, int port, std::span<const VerbsGid> gids) {
  for (const VerbsGid& gid : gids) {
    if (!gid.interface.empty()) return gid.interface;
  }
  const fs::path base = fs::path("/sys/class/infiniband") / device;
  std::string name;
  if (std::ifstream(base / "parent") >> name) return name;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(base / "device" / "net", ignored)) {
    int index = 0;
    std::ifstream(entry.path() / "dev_port") >> index;
    if (index == port - 1) return entry.path().filename();
  }
  return "";
}

VerbsPort describe_port(ibv_context* context, const std::string& device, int number) {
  VerbsPort port;
  port.device = device;
  port.port = number;
  ibv_port_attr attributes{};
  if (ibv_query_port(context, static_cast<std::uint8_t>(number), &attributes) != 0) {
    port.state = "unknown";
    port.why_unusable = "the port does not answer to a query";
    return port;
  }
  port.state = state_name(attributes.state);
  port.link_layer = link_layer_name(attributes.link_layer);
  port.active_mtu = verbs::mtu_bytes(attributes.active_mtu);
  port.rate_gbps = rate_gbps(attributes);
  port.gids = verbs::list_gids(context, number);
  port.interface = find_interface(device, number, port.gids);
  if (attributes.state != IBV_PORT_ACTIVE) {
    port.why_unusable = fmt::format("the port is {}", port.state);
  } else if (port.gids.empty()) {
    port.why_unusable = "its GID table is empty";
  }
  return port;
}

// Why there is no device, as far as the system tells.
Error no_device_error() {
  std::error_code ignored;
  const fs::path devices = "/sys/class/infiniband";
  if (!fs::exists(devices, ignored) || fs::is_empty(devices, ignored)) {
    return Error(Errc::kUnsupported, "there is no RDMA device on this machine")
        .with_fix(
            "with an RDMA card: load its driver; without one, Soft-RoCE: modprobe rdma_rxe; "
            "rdma link add rxe0 type rxe netdev eth0");
  }
  std::string names;
  for (const auto& entry : fs::directory_iterator(devices, ignored)) {
    names += (names.empty() ? "" : ", ") + entry.path().filename().string();
  }
  if (!fs::exists("/dev/infiniband", ignored)) {
    return Error(Errc::kUnsupported,
                 fmt::format("the kernel has RDMA devices ({}) and this process cannot see "
                             "/dev/infiniband",
                             names))
        .with_fix("modprobe ib_uverbs; in a container: --device=/dev/infiniband");
  }
  return Error(Errc::kUnsupported,
               fmt::format("the kernel has RDMA devices ({}) and no provider library knows them",
                           names))
      .with_fix("install the package ibverbs-providers (or your vendor's)");
}

}  // namespace

Result<std::vector<VerbsPort>> list_verbs_ports() {
  int count = 0;
  std::unique_ptr<ibv_device*, verbs::Destroy<&ibv_free_device_list>> list(
      ibv_get_device_list(&count));
  if (!list || count <= 0) return fail(no_device_error());
  std::vector<VerbsPort> ports;
  for (ibv_device* device : std::span(list.get(), static_cast<std::size_t>(count))) {
    const std::string name = ibv_get_device_name(device);
    ContextHandle context(ibv_open_device(device));
    ibv_device_attr attributes{};
    if (!context || ibv_query_device(context.get(), &attributes) != 0) {
      VerbsPort port;
      port.device = name;
      port.state = "unknown";
      port.why_unusable = "the device cannot be opened (permissions of /dev/infiniband?)";
      ports.push_back(std::move(port));
      continue;
    }
    for (int number = 1; number <= attributes.phys_port_cnt; ++number) {
      ports.push_back(describe_port(context.get(), name, number));
    }
  }
  return ports;
}

}  // namespace lochos
