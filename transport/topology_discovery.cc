// Reads the map of this host from the system, from verbs and from hwloc.
#include <fmt/format.h>
#include <hwloc.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

#include "base/unique_fd.h"
#include "transport/topology.h"

namespace lochos {
namespace {

namespace fs = std::filesystem;

struct DestroyTopology {
  void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
};
using TopologyHandle = std::unique_ptr<hwloc_topology, DestroyTopology>;

struct FreeAddresses {
  void operator()(ifaddrs* list) const { freeifaddrs(list); }
};

int prefix_length(const sockaddr* mask) {
  if (mask == nullptr) return 0;
  const auto* bytes = mask->sa_family == AF_INET
                          ? reinterpret_cast<const std::uint8_t*>(
                                &reinterpret_cast<const sockaddr_in*>(mask)->sin_addr)
                          : reinterpret_cast<const std::uint8_t*>(
                                &reinterpret_cast<const sockaddr_in6*>(mask)->sin6_addr);
  const std::size_t count = mask->sa_family == AF_INET ? 4 : 16;
  int length = 0;
  for (std::size_t i = 0; i < count; ++i)
    length += __builtin_popcount(bytes[i]);
  return length;
}

int interface_mtu(const std::string& name) {
  const UniqueFd socket_fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strncpy(request.ifr_name, name.c_str(), IFNAMSIZ - 1);
  return ioctl(socket_fd.get(), SIOCGIFMTU, &request) == 0 ? request.ifr_mtu : 0;
}

double interface_speed_gbps(const std::string& name) {
  long megabits = 0;
  std::ifstream(fs::path("/sys/class/net") / name / "speed") >> megabits;
  return megabits > 0 ? static_cast<double>(megabits) / 1000 : 0;
}

Result<std::vector<NetworkInterface>> list_interfaces() {
  ifaddrs* raw = nullptr;
  if (getifaddrs(&raw) != 0) return fail(system_error(errno, "listing the network interfaces"));
  const std::unique_ptr<ifaddrs, FreeAddresses> list(raw);
  std::vector<NetworkInterface> interfaces;
  for (const ifaddrs* entry = raw; entry != nullptr; entry = entry->ifa_next) {
    auto found = std::find_if(
        interfaces.begin(), interfaces.end(),
        [&](const NetworkInterface& interface) { return interface.name == entry->ifa_name; });
    if (found == interfaces.end()) {
      NetworkInterface interface;
      interface.name = entry->ifa_name;
      interface.up = (entry->ifa_flags & IFF_UP) != 0 && (entry->ifa_flags & IFF_RUNNING) != 0;
      interface.loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
      interface.mtu = interface_mtu(interface.name);
      interface.speed_gbps = interface_speed_gbps(interface.name);
      found = interfaces.insert(interfaces.end(), std::move(interface));
    }
    const sockaddr* address = entry->ifa_addr;
    if (address == nullptr) continue;
    if (address->sa_family != AF_INET && address->sa_family != AF_INET6) continue;
    found->addresses.emplace_back(address, address->sa_family == AF_INET
                                               ? socklen_t{sizeof(sockaddr_in)}
                                               : socklen_t{sizeof(sockaddr_in6)});
    found->prefix_lengths.push_back(prefix_length(entry->ifa_netmask));
  }
  return interfaces;
}

TopologyHandle load_topology(bool devices) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return nullptr;
  TopologyHandle topology(raw);
  if (devices) hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  // Accelerators are no concern of ours, and asking their run-times can take seconds.
  for (const char* component : {"opencl", "cuda", "nvml", "rsmi", "levelzero", "gl"}) {
    hwloc_topology_set_components(raw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, component);
  }
  if (hwloc_topology_load(raw) != 0) return nullptr;
  return topology;
}

// The node a device hangs on; kAnyNumaNode if hwloc does not know it or it hangs on several.
int node_of_device(hwloc_topology_t topology, const std::string& name) {
  hwloc_obj_t device = nullptr;
  while ((device = hwloc_get_next_osdev(topology, device)) != nullptr) {
    if (device->name == nullptr || name != device->name) continue;
    const hwloc_obj_t parent = hwloc_get_non_io_ancestor_obj(topology, device);
    if (parent == nullptr || hwloc_bitmap_weight(parent->nodeset) != 1) return kAnyNumaNode;
    return hwloc_bitmap_first(parent->nodeset);
  }
  return kAnyNumaNode;
}

// What a virtual interface (VLAN, bond, bridge) sits on; empty for a real one.
std::string lower_interface(const std::string& name) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(fs::path("/sys/class/net") / name, ignored)) {
    const std::string file = entry.path().filename();
    if (file.starts_with("lower_")) return file.substr(6);
  }
  return "";
}

int node_of_interface(hwloc_topology_t topology, std::string name) {
  constexpr int kMaxStack = 4;  // a VLAN on a bond on a port, and one to spare
  for (int depth = 0; depth < kMaxStack && !name.empty(); ++depth) {
    const int node = node_of_device(topology, name);
    if (node != kAnyNumaNode || !hwloc_topology_is_thissystem(topology)) return node;
    name = lower_interface(name);
  }
  return kAnyNumaNode;
}

std::string list_text(hwloc_const_bitmap_t set) {
  char* text = nullptr;
  hwloc_bitmap_list_asprintf(&text, set);
  const std::unique_ptr<char, decltype(&std::free)> owner(text, &std::free);
  return text == nullptr ? "" : text;
}

std::vector<NumaNode> numa_nodes(hwloc_topology_t topology) {
  std::vector<NumaNode> nodes;
  hwloc_obj_t node = nullptr;
  while ((node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr) {
    nodes.push_back({.index = static_cast<int>(node->os_index),
                     .cpus = list_text(node->cpuset),
                     .memory_bytes = node->attr->numanode.local_memory});
  }
  return nodes;
}

std::vector<std::vector<int>> node_distances(hwloc_topology_t topology,
                                             const std::vector<NumaNode>& nodes) {
  unsigned count = 1;
  hwloc_distances_s* matrix = nullptr;
  if (hwloc_distances_get_by_type(topology, HWLOC_OBJ_NUMANODE, &count, &matrix,
                                  HWLOC_DISTANCES_KIND_MEANS_LATENCY, 0) != 0 ||
      count == 0 || matrix == nullptr) {
    return {};
  }
  std::vector<std::vector<int>> distances(nodes.size(), std::vector<int>(nodes.size(), 0));
  const auto position = [&](hwloc_obj_t object) {
    const auto found = std::find_if(nodes.begin(), nodes.end(), [&](const NumaNode& node) {
      return object != nullptr && node.index == static_cast<int>(object->os_index);
    });
    return static_cast<std::size_t>(found - nodes.begin());
  };
  for (unsigned i = 0; i < matrix->nbobjs; ++i) {
    for (unsigned j = 0; j < matrix->nbobjs; ++j) {
      const std::size_t row = position(matrix->objs[i]), column = position(matrix->objs[j]);
      if (row >= nodes.size() || column >= nodes.size()) continue;
      distances[row][column] = static_cast<int>(matrix->values[i * matrix->nbobjs + j]);
    }
  }
  hwloc_distances_release(topology, matrix);
  return distances;
}

std::vector<int> allowed_nodes(hwloc_topology_t topology, const std::vector<NumaNode>& nodes) {
  std::vector<int> allowed;
  const std::unique_ptr<hwloc_bitmap_s, decltype(&hwloc_bitmap_free)> mask(hwloc_bitmap_alloc(),
                                                                           &hwloc_bitmap_free);
  const bool known = hwloc_topology_is_thissystem(topology) &&
                     hwloc_get_cpubind(topology, mask.get(), HWLOC_CPUBIND_PROCESS) == 0;
  for (const NumaNode& node : nodes) {
    const hwloc_obj_t object =
        hwloc_get_numanode_obj_by_os_index(topology, static_cast<unsigned>(node.index));
    if (!known || hwloc_bitmap_intersects(object->cpuset, mask.get())) {
      allowed.push_back(node.index);
    }
  }
  return allowed;
}

// The node to bind to in a topology of this system, or null and the reason.
hwloc_obj_t node_to_bind(hwloc_topology_t topology, int numa_node, std::string& reason) {
  if (topology == nullptr) {
    reason = "hwloc cannot read this machine";
  } else if (hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE) < 2) {
    reason = "this machine has one NUMA node";
  } else if (numa_node == kAnyNumaNode) {
    reason = "no NUMA node is nearer to the network than another";
  } else if (hwloc_obj_t node =
                 hwloc_get_numanode_obj_by_os_index(topology, static_cast<unsigned>(numa_node))) {
    return node;
  } else {
    reason = fmt::format("there is no NUMA node {}", numa_node);
  }
  return nullptr;
}

}  // namespace

void read_numa(hwloc_topology* topology, HostTopology& host) {
  host.numa_nodes = numa_nodes(topology);
  host.distances = node_distances(topology, host.numa_nodes);
  host.allowed_numa_nodes = allowed_nodes(topology, host.numa_nodes);
  for (NetworkInterface& interface : host.interfaces) {
    interface.numa_node = node_of_interface(topology, interface.name);
  }
  for (RdmaPort& rdma : host.rdma_ports) {
    rdma.numa_node = node_of_device(topology, rdma.port.device);
    if (rdma.numa_node == kAnyNumaNode) {  // Soft-RoCE is where its interface is
      rdma.numa_node = node_of_interface(topology, rdma.port.interface);
    }
  }
}

Result<HostTopology> discover_topology() {
  HostTopology host;
  auto interfaces = list_interfaces();
  if (!interfaces) return fail(std::move(interfaces.error()));
  host.interfaces = std::move(*interfaces);
  if (auto ports = list_verbs_ports()) {
    for (VerbsPort& port : *ports)
      host.rdma_ports.push_back({.port = std::move(port)});
  } else {
    host.no_rdma_reason = ports.error().message();
    if (!ports.error().fix().empty()) {
      host.no_rdma_reason += fmt::format(" (to fix: {})", ports.error().fix());
    }
  }
  if (const TopologyHandle topology = load_topology(true)) {
    read_numa(topology.get(), host);
  } else {
    host.numa_nodes = {NumaNode{}};
    host.allowed_numa_nodes = {0};
  }
  return host;
}

Binding bind_memory(std::span<std::byte> memory, int numa_node) {
  const TopologyHandle topology = load_topology(false);
  Binding result;
  const hwloc_obj_t node = node_to_bind(topology.get(), numa_node, result.reason);
  if (node == nullptr) return result;
  // Without the STRICT flag the node is preferred: when it is full, pages come from elsewhere
  // instead of the process being killed.
  if (hwloc_set_area_membind(topology.get(), memory.data(), memory.size(), node->nodeset,
                             HWLOC_MEMBIND_BIND,
                             HWLOC_MEMBIND_BYNODESET | HWLOC_MEMBIND_NOCPUBIND) != 0) {
    result.reason =
        system_error(errno, fmt::format("binding memory to NUMA node {}", numa_node)).message();
    return result;
  }
  return {.bound = true, .reason = fmt::format("memory is on NUMA node {}", numa_node)};
}

Binding bind_thread(int numa_node) {
  const TopologyHandle topology = load_topology(false);
  Binding result;
  const hwloc_obj_t node = node_to_bind(topology.get(), numa_node, result.reason);
  if (node == nullptr) return result;
  const std::unique_ptr<hwloc_bitmap_s, decltype(&hwloc_bitmap_free)> cpus(hwloc_bitmap_alloc(),
                                                                           &hwloc_bitmap_free);
  hwloc_get_cpubind(topology.get(), cpus.get(), HWLOC_CPUBIND_THREAD);
  hwloc_bitmap_and(cpus.get(), cpus.get(), node->cpuset);
  if (hwloc_bitmap_iszero(cpus.get())) {
    result.reason = fmt::format("this thread may not run on NUMA node {}", numa_node);
    return result;
  }
  if (hwloc_set_cpubind(topology.get(), cpus.get(), HWLOC_CPUBIND_THREAD) != 0) {
    result.reason =
        system_error(errno, fmt::format("binding a thread to NUMA node {}", numa_node)).message();
    return result;
  }
  return {.bound = true, .reason = fmt::format("the thread runs on NUMA node {}", numa_node)};
}

}  // namespace lochos
