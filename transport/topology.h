// The map of this host as seen by its network: interfaces, RDMA ports, and how far each is from the
// processor's memory. `lochos info` prints it; `choose_rails` decides from it.
//
// Discovery (asks the system) and decision (pure functions of values) are apart, so that decisions
// are tested on machines that we do not have. Everything here is a value; thread-safe.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "transport/address.h"
#include "transport/transport.h"
#include "transport/verbs/verbs_transport.h"

struct hwloc_topology;

namespace lochos {

inline constexpr int kAnyNumaNode = -1;  // a device that belongs to no node, or to all of them

struct NumaNode {
  int index = 0;     // the system's number
  std::string cpus;  // "0-15,32-47"
  std::uint64_t memory_bytes = 0;
};

struct NetworkInterface {
  std::string name;
  bool up = false;  // administratively up, with a carrier
  bool loopback = false;
  int mtu = 0;
  double speed_gbps = 0;  // 0: unknown (virtual interfaces often do not say)
  int numa_node = kAnyNumaNode;
  std::vector<SocketAddress> addresses;  // with port 0, in the system's order
  std::vector<int> prefix_lengths;       // one for each address
};

struct RdmaPort {
  VerbsPort port;
  int numa_node = kAnyNumaNode;
};

struct HostTopology {
  std::vector<NumaNode> numa_nodes;  // at least one
  // distances[i][j] between numa_nodes[i] and numa_nodes[j]; 10 is local. Empty if unknown.
  std::vector<std::vector<int>> distances;
  std::vector<NetworkInterface> interfaces;
  std::vector<RdmaPort> rdma_ports;
  std::string no_rdma_reason;  // why rdma_ports is empty; empty if it is not
  // The nodes whose processors this process may use (its affinity mask): indices as in NumaNode.
  std::vector<int> allowed_numa_nodes;
};

// Looks at this host. Errors: kSystem if not even the interfaces can be listed.
Result<HostTopology> discover_topology();

// The part of discover_topology() that hwloc knows: NUMA nodes, their distances, and the nodes of
// the interfaces and RDMA ports that `host` has already. `topology` is loaded, with I/O devices.
void read_numa(hwloc_topology* topology, HostTopology& host);

// Which interfaces may be used, as people write it (`--interface`):
//
//   filter  = "" | ["^"] item { "," ["^"] item }
//   item    = interface name | name prefix "*" | RDMA device | RDMA device ":" port
//           | IP address | IP address "/" prefix length
//
// An item with "^" excludes, and excluding wins. A "^" at the very beginning excludes the whole
// list, as MPI and NCCL users write it ("^docker0,lo"). With only excluding items the rest is
// chosen automatically; with an including item nothing else is used. Examples: "eth0",
// "10.0.0.0/8,fd00::/8", "mlx5_0:1", "ib*,^ib3", "^docker0".
class InterfaceFilter {
 public:
  InterfaceFilter() = default;  // everything, chosen automatically
  // Errors: kInvalidArgument, with the offending item and the grammar.
  static Result<InterfaceFilter> parse(std::string_view text);

  // Errors: kInvalidArgument for an including item that names no interface, device or address of
  // `host`; the message lists those that exist. Excluding what is not there is fine: one
  // configuration serves many hosts.
  Status check(const HostTopology& host) const;

  // A rail that is judged; strings may be empty where they do not apply.
  struct Candidate {
    std::string_view interface;
    std::string_view device;
    int port = 0;
    const SocketAddress* address = nullptr;
  };
  bool excludes(const Candidate& candidate) const;
  // Whether an including item names it. False for a filter without including items.
  bool names(const Candidate& candidate) const;
  bool has_including_items() const;

 private:
  struct Item {
    bool exclude = false;
    std::string text;        // a name, a prefix of names, or a device with its port
    bool prefix = false;     // `text` is followed by anything
    SocketAddress network;   // for addresses
    int prefix_length = -1;  // -1: `text` counts, not `network`
    bool matches(const Candidate& candidate) const;
  };
  std::vector<Item> items_;
};

// One way out of this host that was considered.
struct RailChoice {
  TransportKind kind = TransportKind::kTcp;
  std::string interface;
  SocketAddress address;  // port 0; what to listen on, and to connect from
  std::string device;     // verbs only
  int port = 0;           // verbs only
  int gid_index = -1;     // verbs only: the GID that belongs to `address`
  double speed_gbps = 0;
  int numa_node = kAnyNumaNode;
  int distance = 0;  // from home_numa_node(); 10 is local, 0 is unknown
  bool chosen = false;
  std::string reason;  // why it was chosen, or why not
};

struct RailPolicy {
  bool tcp = true;
  bool verbs = true;
};

// All candidates, chosen ones first: verbs before TCP, then near before far, fast before slow.
//   TCP: every interface that is up and not loopback, with one address each (IPv4 before IPv6
//   before link-local); bridges of container runtimes only when named; loopback only when there is
//   nothing else or when named. Verbs: every active port whose network interface has an address.
// Errors: those of InterfaceFilter::check.
Result<std::vector<RailChoice>> choose_rails(const HostTopology& host,
                                             const InterfaceFilter& filter, RailPolicy policy = {});

// The NUMA node where the pool and the engine thread should be: that of the first chosen rail, if
// this process may run there. kAnyNumaNode if it makes no difference.
int home_numa_node(const HostTopology& host, std::span<const RailChoice> rails);

// What binding did. Not bound is no error: on a machine with one node there is nothing to do.
struct Binding {
  bool bound = false;
  std::string reason;
};

// Pages of `memory` that are not touched yet will come from `numa_node`.
// REQUIRES: `memory` begins on a page.
Binding bind_memory(std::span<std::byte> memory, int numa_node);

// The calling thread will run on processors of `numa_node` (of those its affinity mask allows).
Binding bind_thread(int numa_node);

}  // namespace lochos
