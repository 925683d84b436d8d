// Which rails to use: pure decisions on a map of the host.
#include "transport/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <tuple>

namespace lochos {
namespace {

// Bridges and tunnels of container runtimes and hypervisors: they have the same address on every
// host, so that a peer who was told of one would talk to himself.
constexpr std::array<std::string_view, 9> kContainerPrefixes = {
    "docker", "virbr", "cni", "podman", "lxcbr", "lxdbr", "flannel", "cali", "kube-"};

bool is_container_bridge(std::string_view name) {
  // Docker's own networks: "br-" and twelve hexadecimal digits.
  if (name.size() == 15 && name.starts_with("br-") &&
      name.find_first_not_of("0123456789abcdef", 3) == std::string_view::npos) {
    return true;
  }
  return std::any_of(kContainerPrefixes.begin(), kContainerPrefixes.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

// Which of an interface's addresses to give to peers: smaller is better.
int address_rank(const SocketAddress& address) {
  if (address.family() == AF_INET) {
    return address.host().starts_with("169.254.") ? 2 : 0;
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6*>(address.get())->sin6_addr;
  return IN6_IS_ADDR_LINKLOCAL(&v6) ? 3 : 1;
}

const NetworkInterface* find_interface(const HostTopology& host, std::string_view name) {
  for (const NetworkInterface& interface : host.interfaces) {
    if (interface.name == name) return &interface;
  }
  return nullptr;
}

InterfaceFilter::Candidate candidate_of(const RailChoice& rail) {
  return {.interface = rail.interface,
          .device = rail.device,
          .port = rail.port,
          .address = rail.address.is_unspecified() ? nullptr : &rail.address};
}

// Why the filter does not let a rail pass; empty if it does.
std::string filtered_out(const InterfaceFilter& filter, const RailChoice& rail) {
  if (filter.excludes(candidate_of(rail))) return "excluded by the interface filter";
  if (filter.has_including_items() && !filter.names(candidate_of(rail))) {
    return "not named by the interface filter";
  }
  return "";
}

// Of several rails over one interface or port, keeps the one with the best address.
void choose_best_address(std::vector<RailChoice>& rails, std::string_view owner) {
  auto best = rails.end();
  for (auto rail = rails.begin(); rail != rails.end(); ++rail) {
    if (!rail->chosen) continue;
    if (best == rails.end() || address_rank(rail->address) < address_rank(best->address)) {
      best = rail;
    }
  }
  for (auto rail = rails.begin(); rail != rails.end(); ++rail) {
    if (!rail->chosen || rail == best) continue;
    rail->chosen = false;
    rail->reason = fmt::format("{} is used at {}", owner, best->address.host());
  }
}

std::vector<RailChoice> judge_interface(const NetworkInterface& interface,
                                        const InterfaceFilter& filter) {
  RailChoice base;
  base.kind = TransportKind::kTcp;
  base.interface = interface.name;
  base.speed_gbps = interface.speed_gbps;
  base.numa_node = interface.numa_node;
  std::vector<RailChoice> rails(std::max<std::size_t>(interface.addresses.size(), 1), base);
  for (std::size_t i = 0; i < rails.size(); ++i) {
    RailChoice& rail = rails[i];
    if (i < interface.addresses.size()) rail.address = interface.addresses[i];
    const bool named = filter.names(candidate_of(rail));
    rail.reason = filtered_out(filter, rail);
    if (!rail.reason.empty()) continue;
    if (interface.addresses.empty()) {
      rail.reason = "has no address";
    } else if (!interface.up) {
      rail.reason = "is down or has no carrier";
    } else if (interface.loopback && !named) {
      rail.reason = "loopback reaches no other host";
    } else if (is_container_bridge(interface.name) && !named) {
      rail.reason = "bridge of a container runtime; name it to use it";
    } else {
      rail.chosen = true;
      rail.reason = named ? "named by the interface filter" : "is up";
    }
  }
  choose_best_address(rails, "the interface");
  return rails;
}

// Loopback is used when nothing else is left, so that one machine alone works too.
void fall_back_to_loopback(const HostTopology& host, const InterfaceFilter& filter,
                           std::vector<RailChoice>& rails) {
  const auto tcp = [](const RailChoice& rail) { return rail.kind == TransportKind::kTcp; };
  if (std::any_of(rails.begin(), rails.end(),
                  [&](const RailChoice& rail) { return tcp(rail) && rail.chosen; })) {
    return;
  }
  RailChoice* best = nullptr;
  for (RailChoice& rail : rails) {
    const NetworkInterface* interface = find_interface(host, rail.interface);
    if (!tcp(rail) || !interface->loopback || !interface->up || interface->addresses.empty() ||
        !filtered_out(filter, rail).empty()) {
      continue;
    }
    if (best == nullptr || address_rank(rail.address) < address_rank(best->address)) best = &rail;
  }
  if (best == nullptr) return;
  best->chosen = true;
  best->reason = "no other interface can be used";
}

// The addresses through which a port can be used, each as a rail. RoCE: those in its GID table that
// its interfaces have. InfiniBand: those of its IPoIB interface.
std::vector<RailChoice> addresses_of_port(const HostTopology& host, const RailChoice& base,
                                          const VerbsPort& port) {
  std::vector<RailChoice> rails;
  const auto add = [&](const NetworkInterface& interface, const SocketAddress& address,
                       int gid_index) {
    RailChoice rail = base;
    rail.interface = interface.name;
    rail.address = address;
    rail.gid_index = gid_index;
    rails.push_back(std::move(rail));
  };
  if (port.link_layer != "Ethernet") {
    if (const auto* interface = find_interface(host, port.interface)) {
      for (const SocketAddress& address : interface->addresses)
        add(*interface, address, -1);
    }
    return rails;
  }
  for (const NetworkInterface& interface : host.interfaces) {
    for (const SocketAddress& address : interface.addresses) {
      const std::string ip = address.host();
      const std::string gid =
          address.family() == AF_INET ? "::ffff:" + ip : ip.substr(0, ip.find('%'));
      const VerbsGid* found = nullptr;
      for (const VerbsGid& entry : port.gids) {
        if (entry.gid != gid || (!entry.interface.empty() && entry.interface != interface.name)) {
          continue;
        }
        if (found == nullptr || entry.type == "RoCE v2") found = &entry;
      }
      if (found != nullptr) add(interface, address, found->index);
    }
  }
  return rails;
}

std::vector<RailChoice> judge_port(const HostTopology& host, const RdmaPort& rdma,
                                   const InterfaceFilter& filter) {
  RailChoice base;
  base.kind = TransportKind::kVerbs;
  base.interface = rdma.port.interface;
  base.device = rdma.port.device;
  base.port = rdma.port.port;
  base.speed_gbps = rdma.port.rate_gbps;
  base.numa_node = rdma.numa_node;
  std::vector<RailChoice> rails = addresses_of_port(host, base, rdma.port);
  if (rails.empty()) {
    base.reason = !rdma.port.why_unusable.empty() ? rdma.port.why_unusable
                  : rdma.port.interface.empty()
                      ? "no network interface belongs to the port"
                      : "its network interface has no address; give it one";
    return {base};
  }
  for (RailChoice& rail : rails) {
    rail.reason = filtered_out(filter, rail);
    if (!rail.reason.empty()) continue;
    if (!rdma.port.why_unusable.empty()) {
      rail.reason = rdma.port.why_unusable;
    } else {
      rail.chosen = true;
      rail.reason =
          filter.has_including_items() ? "named by the interface filter" : "the port is active";
    }
  }
  choose_best_address(rails, "the port");
  return rails;
}

bool may_run_on(const HostTopology& host, int node) {
  return std::find(host.allowed_numa_nodes.begin(), host.allowed_numa_nodes.end(), node) !=
         host.allowed_numa_nodes.end();
}

int distance_between(const HostTopology& host, int from, int to) {
  const auto position = [&](int node) {
    const auto found = std::find_if(host.numa_nodes.begin(), host.numa_nodes.end(),
                                    [&](const NumaNode& n) { return n.index == node; });
    return static_cast<std::size_t>(found - host.numa_nodes.begin());
  };
  const std::size_t row = position(from), column = position(to);
  if (row < host.distances.size() && column < host.distances[row].size()) {
    return host.distances[row][column];
  }
  constexpr int kLocal = 10;
  return from == to && from != kAnyNumaNode ? kLocal : 0;
}

}  // namespace

Result<std::vector<RailChoice>> choose_rails(const HostTopology& host,
                                             const InterfaceFilter& filter, RailPolicy policy) {
  if (auto known = filter.check(host); !known) return fail(std::move(known.error()));
  std::vector<RailChoice> rails;
  const auto add = [&rails](std::vector<RailChoice> more, bool allowed) {
    for (RailChoice& rail : more) {
      if (!allowed) {
        rail.chosen = false;
        rail.reason = "this transport is switched off";
      }
      rails.push_back(std::move(rail));
    }
  };
  for (const NetworkInterface& interface : host.interfaces) {
    add(judge_interface(interface, filter), policy.tcp);
  }
  if (policy.tcp) fall_back_to_loopback(host, filter, rails);
  for (const RdmaPort& rdma : host.rdma_ports) {
    add(judge_port(host, rdma, filter), policy.verbs);
  }

  const auto order = [&](auto key) {
    std::stable_sort(rails.begin(), rails.end(),
                     [&](const RailChoice& a, const RailChoice& b) { return key(a) < key(b); });
  };
  const auto is_tcp = [](const RailChoice& rail) { return rail.kind == TransportKind::kTcp; };
  order([&](const RailChoice& rail) {
    return std::tuple(!rail.chosen, is_tcp(rail), !may_run_on(host, rail.numa_node),
                      -rail.speed_gbps);
  });
  const int home = home_numa_node(host, rails);
  for (RailChoice& rail : rails)
    rail.distance = distance_between(host, home, rail.numa_node);
  order([&](const RailChoice& rail) {
    return std::tuple(!rail.chosen, is_tcp(rail), rail.distance, -rail.speed_gbps);
  });
  return rails;
}

int home_numa_node(const HostTopology& host, std::span<const RailChoice> rails) {
  if (host.numa_nodes.size() < 2 || rails.empty() || !rails.front().chosen) return kAnyNumaNode;
  const int node = rails.front().numa_node;
  return may_run_on(host, node) ? node : kAnyNumaNode;
}

}  // namespace lochos
