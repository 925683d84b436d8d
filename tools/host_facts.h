// What is true of this host and matters to Lochos, gathered once and judged elsewhere (see
// doctor_checks.h), so that judgements can be tested on hosts that we do not have. Values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "directory/messages.h"
#include "node/store.h"
#include "tools/config.h"
#include "transport/topology.h"

namespace lochos {

inline constexpr std::uint64_t kUnlimited = UINT64_MAX;

struct HugePageSize {
  std::uint64_t page_bytes = 0;
  std::uint64_t total = 0;  // pages
  std::uint64_t free = 0;
};

struct HostFacts {
  // What is asked for.
  std::uint64_t pool_bytes = 0;
  TransportPolicy transport = TransportPolicy::kAuto;
  std::string provider;
  bool wants_huge_pages = true;

  // This build.
  bool built_with_verbs = false;
  bool built_with_fabric = false;
  std::vector<std::string> fabric_providers;  // that libfabric offers here

  // Locked memory.
  std::uint64_t locked_limit_bytes = 0;  // RLIMIT_MEMLOCK, soft
  std::uint64_t locked_hard_limit_bytes = 0;
  bool has_ipc_lock = false;  // CAP_IPC_LOCK: the limit does not count

  // RDMA.
  HostTopology topology;
  std::vector<std::string> kernel_rdma_devices;  // /sys/class/infiniband
  std::vector<std::string> provider_drivers;     // user-space drivers that libibverbs would load
  bool has_uverbs_node = false;                  // /dev/infiniband/uverbs*
  bool has_rdma_cm_node = false;                 // /dev/infiniband/rdma_cm
  bool has_rxe_module = false;                   // loaded, or there to be loaded

  // Names and ports.
  std::string host_name;
  std::vector<SocketAddress> host_addresses;  // what the host name resolves to
  std::string host_name_error;                // why it does not
  std::string directory_listen;               // the port a directory here would take
  std::string directory_listen_error;         // why it cannot; empty: it is free
  std::string directory;                      // address of the cluster's directory; may be empty
  std::string directory_error;                // why it cannot be reached; empty: it can

  // Memory.
  std::uint64_t available_bytes = 0;                // MemAvailable
  std::optional<std::uint64_t> cgroup_limit_bytes;  // of the control group, if it has one
  std::vector<HugePageSize> huge_pages;
  std::string transparent_huge_pages;  // "always", "madvise", "never", empty: none
  std::string memfd_error;             // why no shared memory can be had

  // The node of this host.
  std::string socket;
  std::string daemon_error;  // why it cannot be reached; empty: it can
  std::optional<NodeStats> daemon;

  // Variables that look like a misspelt LOCHOS_* option, and that option.
  std::map<std::string, std::string> unknown_variables;
};

// Asks the system; waits at most about two seconds for daemons that do not answer. Errors: as
// discover_topology().
Result<HostFacts> gather_host_facts(const Config& config,
                                    const std::vector<std::string>& environment_names);

// Those of `names` that begin with LOCHOS_, are no option, and look like one: with that one.
std::map<std::string, std::string> unknown_variables(const std::vector<std::string>& names);

}  // namespace lochos
