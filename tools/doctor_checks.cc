#include "tools/doctor_checks.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"

namespace lochos {
namespace {

Finding ok(std::string check, std::string text) {
  return {Verdict::kOk, std::move(check), std::move(text), ""};
}
Finding warning(std::string check, std::string text, std::string fix) {
  return {Verdict::kWarning, std::move(check), std::move(text), std::move(fix)};
}
Finding failure(std::string check, std::string text, std::string fix) {
  return {Verdict::kFailure, std::move(check), std::move(text), std::move(fix)};
}
// Stops RDMA: that is a failure only for those who insist on it.
Finding no_rdma(const HostFacts& facts, std::string check, std::string text, std::string fix) {
  if (facts.transport == TransportPolicy::kTcp) return ok(std::move(check), text + " (not wanted)");
  if (facts.transport == TransportPolicy::kVerbs)
    return failure(std::move(check), std::move(text), std::move(fix));
  return warning(std::move(check), text + "; TCP will be used", std::move(fix));
}

std::string shown_limit(std::uint64_t bytes) {
  return bytes == kUnlimited ? "unlimited" : format_size(bytes);
}

// The interface on which someone would try Soft-RoCE.
std::string first_ethernet(const HostTopology& topology) {
  for (const NetworkInterface& interface : topology.interfaces) {
    if (interface.up && !interface.loopback && !interface.addresses.empty()) return interface.name;
  }
  return "eth0";
}

bool is_ipv4_mapped(const VerbsGid& gid) {
  return gid.gid.find("ffff:") != std::string::npos && gid.gid.find('.') != std::string::npos;
}

}  // namespace

std::string_view to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
      return "ok";
    case Verdict::kWarning:
      return "warn";
    case Verdict::kFailure:
      return "fail";
  }
  return "unknown";
}

std::vector<Finding> check_build(const HostFacts& facts) {
  std::vector<Finding> findings;
  if (!facts.built_with_verbs) {
    findings.push_back(no_rdma(facts, "RDMA support", "this lochos was built without verbs",
                               "apt-get install libibverbs-dev librdmacm-dev, then build with "
                               "meson configure build -Dverbs=enabled"));
  }
  const auto& providers = facts.fabric_providers;
  if (!facts.built_with_fabric) {
    findings.push_back(failure("TCP transport", "this lochos was built without libfabric",
                               "apt-get install libfabric-dev, then build with meson configure "
                               "build -Dfabric=enabled"));
  } else if (std::find(providers.begin(), providers.end(), facts.provider) == providers.end()) {
    findings.push_back(failure(
        "TCP transport",
        fmt::format("libfabric has no provider '{}' here; it has: {}", facts.provider,
                    providers.empty() ? "none" : fmt::format("{}", fmt::join(providers, ", "))),
        facts.provider == "tcp" ? "apt-get install libfabric1; see fi_info -l"
                                : "take one of these with --provider, or tcp"));
  } else {
    findings.push_back(ok("TCP transport", fmt::format("libfabric provider '{}'", facts.provider)));
  }
  return findings;
}

std::vector<Finding> check_locked_memory(const HostFacts& facts) {
  const std::string limit = shown_limit(facts.locked_limit_bytes);
  const std::string check = "locked memory";
  if (facts.has_ipc_lock)
    return {ok(check, fmt::format("limit {}, but CAP_IPC_LOCK lifts it", limit))};
  if (facts.locked_limit_bytes >= facts.pool_bytes)
    return {ok(check,
               fmt::format("limit {}, the pool needs {}", limit, format_size(facts.pool_bytes)))};
  const std::string raise =
      facts.locked_hard_limit_bytes >= facts.pool_bytes
          ? "ulimit -l unlimited"
          : "add '* - memlock unlimited' to /etc/security/limits.d/lochos.conf and log in again";
  const std::string fix = fmt::format(
      "{}; under systemd LimitMEMLOCK=infinity; in a container --ulimit memlock=-1 or --cap-add "
      "IPC_LOCK; or a smaller --pool",
      raise);
  const std::string text = fmt::format(
      "limit {}, no CAP_IPC_LOCK; RDMA on a pool of {} needs that "
      "much",
      limit, format_size(facts.pool_bytes));
  return {no_rdma(facts, check, text, fix)};
}

std::vector<Finding> check_rdma(const HostFacts& facts) {
  const std::string check = "RDMA device";
  const HostTopology& host = facts.topology;
  if (facts.kernel_rdma_devices.empty() && host.rdma_ports.empty()) {
    const std::string soft =
        fmt::format("rdma link add rxe0 type rxe netdev {}", first_ethernet(host));
    const std::string fix =
        facts.has_rxe_module
            ? fmt::format("without an RDMA NIC, Soft-RoCE: modprobe rdma_rxe && {}", soft)
            : fmt::format(
                  "load the NIC's driver (mlx5_ib, irdma, …); without an RDMA NIC, Soft-RoCE "
                  "needs a kernel with CONFIG_RDMA_RXE: modprobe rdma_rxe && {}",
                  soft);
    return {no_rdma(facts, check, "the kernel shows no RDMA device", fix)};
  }
  std::vector<Finding> findings;
  const std::string devices = fmt::format("{}", fmt::join(facts.kernel_rdma_devices, ", "));
  if (!facts.has_uverbs_node) {
    findings.push_back(no_rdma(facts, "uverbs", "there is no /dev/infiniband/uverbs*",
                               "modprobe ib_uverbs; in a container --device=/dev/infiniband"));
  }
  if (!facts.has_rdma_cm_node) {
    findings.push_back(no_rdma(facts, "rdma_cm", "there is no /dev/infiniband/rdma_cm",
                               "modprobe rdma_ucm; in a container --device=/dev/infiniband"));
  }
  if (facts.provider_drivers.empty()) {
    findings.push_back(no_rdma(facts, "provider library",
                               fmt::format("no user-space driver for {}", devices),
                               "apt-get install ibverbs-providers"));
  } else if (host.rdma_ports.empty()) {
    findings.push_back(no_rdma(
        facts, "provider library",
        fmt::format("the kernel has {}, but libibverbs does not: {}", devices, host.no_rdma_reason),
        "apt-get install ibverbs-providers; check the rights of /dev/infiniband"));
  }
  for (const RdmaPort& port : host.rdma_ports) {
    auto more = check_rdma_port(facts, port);
    findings.insert(findings.end(), more.begin(), more.end());
  }
  return findings;
}

std::vector<Finding> check_rdma_port(const HostFacts& facts, const RdmaPort& rdma) {
  const VerbsPort& port = rdma.port;
  const std::string check = fmt::format("port {}/{}", port.device, port.port);
  const std::string interface = port.interface.empty() ? "INTERFACE" : port.interface;
  const bool ethernet = port.link_layer == "Ethernet";
  if (port.state != "active") {
    const std::string fix =
        ethernet ? fmt::format("ip link set dev {} up; check the cable and the switch", interface)
                 : "check the cable; a subnet manager must run: systemctl start opensm";
    return {no_rdma(facts, check, fmt::format("its state is '{}'", port.state), fix)};
  }
  std::vector<Finding> findings;
  if (port.gids.empty()) {
    findings.push_back(no_rdma(facts, check, "it has no GID",
                               fmt::format("ip addr add ADDRESS/PREFIX dev {}", interface)));
  } else if (ethernet && std::none_of(port.gids.begin(), port.gids.end(), is_ipv4_mapped)) {
    findings.push_back(warning(check,
                               "it has link-local or IPv6 GIDs only; connections by IPv4 cannot "
                               "use it",
                               fmt::format("ip addr add ADDRESS/PREFIX dev {}", interface)));
  }
  if (ethernet && port.active_mtu > 0 && port.active_mtu < 4096) {
    findings.push_back(warning(
        check,
        fmt::format("RDMA MTU {} because the MTU of {} is small; 4096 moves more for less work",
                    port.active_mtu, interface),
        fmt::format("ip link set dev {} mtu 9000 (and on the switch and every other host); 4200 is "
                    "enough",
                    interface)));
  }
  if (!port.why_unusable.empty() && findings.empty())
    findings.push_back(no_rdma(facts, check, port.why_unusable, "see lochos info"));
  if (findings.empty()) {
    findings.push_back(ok(check, fmt::format("active, {}, MTU {}, {} GIDs, {}", port.link_layer,
                                             port.active_mtu, port.gids.size(), interface)));
  }
  return findings;
}

std::vector<Finding> check_interfaces(const HostFacts& facts) {
  std::vector<std::string> usable, down;
  for (const NetworkInterface& interface : facts.topology.interfaces) {
    if (interface.loopback) continue;
    if (interface.up && !interface.addresses.empty()) {
      usable.push_back(fmt::format("{} ({})", interface.name, interface.addresses[0].host()));
    } else {
      down.push_back(interface.name);
    }
  }
  if (!usable.empty()) return {ok("network", fmt::format("{}", fmt::join(usable, ", ")))};
  if (down.empty()) {
    return {warning("network", "there is only loopback; other hosts cannot be reached",
                    "attach a network interface")};
  }
  return {
      warning("network",
              fmt::format("{} without carrier or address; other hosts cannot be reached",
                          fmt::join(down, ", ")),
              fmt::format("ip link set dev {0} up; ip addr add ADDRESS/PREFIX dev {0}", down[0]))};
}

std::vector<Finding> check_host_name(const HostFacts& facts) {
  const std::string& name = facts.host_name;
  if (!facts.host_name_error.empty() || facts.host_addresses.empty()) {
    return {warning("host name",
                    fmt::format("'{}' does not resolve ({})", name, facts.host_name_error),
                    fmt::format("add 'ADDRESS {}' to /etc/hosts, or use IP addresses", name))};
  }
  std::vector<std::string> shown;
  bool all_loopback = true;
  for (const SocketAddress& address : facts.host_addresses) {
    shown.push_back(address.host());
    all_loopback = all_loopback && address.is_loopback();
  }
  if (all_loopback) {
    return {warning(
        "host name",
        fmt::format("'{}' resolves to {} here: whoever is told this name connects to itself", name,
                    fmt::join(shown, ", ")),
        fmt::format("in /etc/hosts give '{}' the address that others see, or use IP addresses in "
                    "--listen and --directory",
                    name))};
  }
  return {ok("host name", fmt::format("'{}' is {}", name, fmt::join(shown, ", ")))};
}

std::vector<Finding> check_ports(const HostFacts& facts) {
  if (facts.directory_listen_error.empty())
    return {ok("port", fmt::format("{} is free for a directory", facts.directory_listen))};
  return {
      warning("port",
              fmt::format("a directory cannot take {}: {}", facts.directory_listen,
                          facts.directory_listen_error),
              fmt::format("fine if one runs here; else see who has it: ss -ltnp | grep ':{}'; "
                          "or choose another with --listen",
                          facts.directory_listen.substr(facts.directory_listen.rfind(':') + 1)))};
}

std::vector<Finding> check_memory(const HostFacts& facts) {
  const std::string check = "pool memory";
  if (!facts.memfd_error.empty()) {
    return {failure(check, fmt::format("no shared memory: {}", facts.memfd_error),
                    "allow memfd_create (the container's seccomp profile may forbid it)")};
  }
  // With a running node the pool is already taken from what is available.
  if (facts.daemon) return {ok(check, "a node runs here and has its pool")};
  std::uint64_t room = facts.available_bytes;
  std::string from = "free memory";
  if (facts.cgroup_limit_bytes && *facts.cgroup_limit_bytes < room) {
    room = *facts.cgroup_limit_bytes;
    from = "the control group's limit";
  }
  if (facts.pool_bytes > room) {
    return {
        failure(check,
                fmt::format("a pool of {} does not fit: {} is {}", format_size(facts.pool_bytes),
                            from, format_size(room)),
                fmt::format("--pool {}M, or more memory (a container: --memory)", room / 2 >> 20))};
  }
  return {ok(check, fmt::format("a pool of {} fits: {} is {}", format_size(facts.pool_bytes), from,
                                format_size(room)))};
}

std::vector<Finding> check_huge_pages(const HostFacts& facts) {
  const std::string check = "huge pages";
  if (!facts.wants_huge_pages) return {ok(check, "not wanted (huge_pages = no)")};
  std::uint64_t free_bytes = 0;
  for (const HugePageSize& size : facts.huge_pages)
    free_bytes += size.page_bytes * size.free;
  if (facts.daemon && facts.daemon->huge_page_bytes > 0)
    return {ok(check, fmt::format("the node's pool has {} of them",
                                  format_size(facts.daemon->huge_page_bytes)))};
  if (free_bytes >= facts.pool_bytes)
    return {ok(check, fmt::format("{} free, enough for the pool", format_size(free_bytes)))};
  const std::string reserve =
      fmt::format("sysctl -w vm.nr_hugepages={}", (facts.pool_bytes >> 21) + 1);
  if (facts.transparent_huge_pages == "always" || facts.transparent_huge_pages == "madvise") {
    return {ok(check, fmt::format("{} reserved and free; transparent ones ({}) will be used",
                                  format_size(free_bytes), facts.transparent_huge_pages))};
  }
  return {warning(check,
                  fmt::format("{} free, and transparent huge pages are {}: large transfers cost "
                              "more CPU",
                              format_size(free_bytes),
                              facts.transparent_huge_pages.empty() ? "not in this kernel"
                                                                   : facts.transparent_huge_pages),
                  fmt::format("{}; or echo madvise > "
                              "/sys/kernel/mm/transparent_hugepage/enabled",
                              reserve))};
}

std::vector<Finding> check_daemons(const HostFacts& facts) {
  std::vector<Finding> findings;
  if (facts.daemon) {
    findings.push_back(
        ok("node", fmt::format("{} '{}' answers on {}", facts.daemon->node.to_string(),
                               facts.daemon->node_name, facts.socket)));
  } else {
    findings.push_back(
        warning("node", fmt::format("none answers on {}: {}", facts.socket, facts.daemon_error),
                "lochos node --directory ADDR:PORT (or say where with --socket)"));
  }
  if (facts.directory.empty()) return findings;
  if (facts.directory_error.empty()) {
    findings.push_back(ok("directory", fmt::format("{} accepts connections", facts.directory)));
  } else {
    findings.push_back(failure(
        "directory",
        fmt::format("{} cannot be reached: {}", facts.directory, facts.directory_error),
        "start it there (lochos directory --listen ADDR:PORT) and let its port through firewalls"));
  }
  return findings;
}

std::vector<Finding> check_variables(const HostFacts& facts) {
  std::vector<Finding> findings;
  for (const auto& [name, near] : facts.unknown_variables) {
    findings.push_back(warning("environment", fmt::format("{} means nothing to lochos", name),
                               fmt::format("did you mean {}?", near)));
  }
  return findings;
}

std::vector<Finding> examine(const HostFacts& facts) {
  std::vector<Finding> all;
  for (const auto group :
       {check_build, check_rdma, check_locked_memory, check_interfaces, check_host_name,
        check_ports, check_memory, check_huge_pages, check_daemons, check_variables}) {
    auto findings = group(facts);
    all.insert(all.end(), std::make_move_iterator(findings.begin()),
               std::make_move_iterator(findings.end()));
  }
  return all;
}

}  // namespace lochos
