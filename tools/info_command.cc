#include "tools/info_command.h"

#include <fmt/format.h>

#include <memory>

#include "base/units.h"
#include "tools/host_facts.h"
#include "tools/json.h"
#include "tools/options.h"

namespace lochos {
namespace {

constexpr const char* kFooter =
    "Shows the map of this host (interfaces, RDMA ports with state, GIDs, MTU, distance), which "
    "way\n"
    "out a node would take and why, what this build can do, and the node that runs here.\n\n"
    "  lochos info\n"
    "  lochos info --interface ^docker0 --transport tcp\n"
    "  lochos info --config      each option, its value, and where it came from";

struct InfoArguments {
  bool config = false;
  bool json = false;
};

std::string_view origin_word(Config::Origin origin) {
  switch (origin) {
    case Config::Origin::kFlag:
      return "flag";
    case Config::Origin::kEnvironment:
      return "environment";
    case Config::Origin::kFile:
      return "file";
    case Config::Origin::kDefault:
      return "default";
  }
  return "unknown";
}

int print_config(const Config& config, bool as_json) {
  if (as_json) {
    JsonWriter json;
    json.begin_object().field("file", config.file()).key("options").begin_array();
    for (const OptionSpec& option : option_catalogue()) {
      const Config::Value& value = config.value(option.key);
      json.begin_object()
          .field("key", option.key)
          .field("value", value.text)
          .field("origin", origin_word(value.origin))
          .field("where", value.where)
          .field("flag", option.flag)
          .field("environment", option.environment)
          .end_object();
    }
    fmt::print("{}", json.end_array().end_object().text());
    return kExitDone;
  }
  fmt::print("{:<22}  {:<32}  {}\n", "KEY", "VALUE", "FROM");
  for (const OptionSpec& option : option_catalogue()) {
    const Config::Value& value = config.value(option.key);
    const std::string shown =
        value.text.empty() ? fmt::format("({})", option.default_text) : value.text;
    fmt::print("{:<22}  {:<32}  {}\n", option.key, shown, value.where);
  }
  fmt::print("\nfile: {}\n", config.file().empty() ? "none read" : config.file());
  return kExitDone;
}

std::string numa_text(int node) {
  return node == kAnyNumaNode ? "any" : fmt::format("{}", node);
}
std::string speed_text(double gbps) {
  return gbps > 0 ? fmt::format("{:g} Gb/s", gbps) : "speed unknown";
}

void print_interfaces(const HostTopology& host) {
  fmt::print("\nnetwork interfaces\n");
  for (const NetworkInterface& interface : host.interfaces) {
    std::vector<std::string> addresses;
    for (const SocketAddress& address : interface.addresses)
      addresses.push_back(address.host());
    fmt::print("  {:<12} {:<5} MTU {:<6} {:<14} NUMA {:<4} {}\n", interface.name,
               interface.up ? "up" : "down", interface.mtu, speed_text(interface.speed_gbps),
               numa_text(interface.numa_node), fmt::join(addresses, " "));
  }
}

void print_rdma(const HostTopology& host) {
  fmt::print("\nRDMA ports\n");
  if (host.rdma_ports.empty()) fmt::print("  none: {}\n", host.no_rdma_reason);
  for (const RdmaPort& rdma : host.rdma_ports) {
    const VerbsPort& port = rdma.port;
    fmt::print("  {}/{}  {}  {}  MTU {}  {}  NUMA {}  {}{}\n", port.device, port.port, port.state,
               port.link_layer, port.active_mtu, speed_text(port.rate_gbps),
               numa_text(rdma.numa_node), port.interface,
               port.why_unusable.empty() ? "" : "  unusable: " + port.why_unusable);
    for (const VerbsGid& gid : port.gids)
      fmt::print("    GID {:<3} {:<40} {:<8} {}\n", gid.index, gid.gid, gid.type, gid.interface);
  }
}

std::string rail_name(const RailChoice& rail) {
  return rail.device.empty() ? rail.interface : fmt::format("{}/{} ({})", rail.device, rail.port, rail.interface);
}

void print_rails(const std::vector<RailChoice>& rails) {
  fmt::print("\nways out of this host\n");
  if (rails.empty()) fmt::print("  none\n");
  for (const RailChoice& rail : rails) {
    fmt::print("  {:<7} {:<6} {:<22} {:<28} {}{}\n", rail.chosen ? "chosen" : "not",
               to_string(rail.kind), rail_name(rail), rail.address.host(),
               rail.gid_index >= 0 ? fmt::format("GID {}  ", rail.gid_index) : "", rail.reason);
  }
}

void print_daemon(const HostFacts& facts) {
  fmt::print("\nnode on {}\n", facts.socket);
  if (!facts.daemon) {
    fmt::print("  none: {}\n", facts.daemon_error);
    return;
  }
  const NodeStats& node = *facts.daemon;
  fmt::print("  {} '{}', directory {}\n", node.node.to_string(), node.node_name, node.directory);
  for (const std::string& rail : node.rails)
    fmt::print("  rail {}\n", rail);
  fmt::print("  pool {} used of {}, {} in huge pages, {} objects, {} pinned, {} evicted\n",
             format_size(node.pool_used_bytes), format_size(node.pool_bytes),
             format_size(node.huge_page_bytes), node.objects, node.pinned, node.evictions);
  fmt::print("  sent {}, received {}, {} transfers, {} failed, {} pairs fell back to TCP\n",
             format_size(node.bytes_sent), format_size(node.bytes_received), node.edges_started,
             node.edges_failed, node.transport_fallbacks);
}

void print_info(const HostFacts& facts, const std::vector<RailChoice>& rails) {
  const HostTopology& host = facts.topology;
  fmt::print("lochos {}: verbs {}, libfabric {} (providers: {})\n", LOCHOS_VERSION,
             facts.built_with_verbs ? "yes" : "no", facts.built_with_fabric ? "yes" : "no",
             facts.fabric_providers.empty()
                 ? "none"
                 : fmt::format("{}", fmt::join(facts.fabric_providers, ", ")));
  fmt::print("\nNUMA nodes\n");
  for (const NumaNode& node : host.numa_nodes)
    fmt::print("  {}  processors {}  {}\n", node.index, node.cpus, format_size(node.memory_bytes));
  print_interfaces(host);
  print_rdma(host);
  print_rails(rails);
  const int home = home_numa_node(host, rails);
  fmt::print("  the pool and the engine thread would be on NUMA node {}\n", numa_text(home));
  print_daemon(facts);
}

void write_topology(JsonWriter& json, const HostTopology& host) {
  json.key("numa_nodes").begin_array();
  for (const NumaNode& node : host.numa_nodes) {
    json.begin_object()
        .field("index", node.index)
        .field("cpus", node.cpus)
        .field("memory_bytes", node.memory_bytes)
        .end_object();
  }
  json.end_array().key("interfaces").begin_array();
  for (const NetworkInterface& interface : host.interfaces) {
    json.begin_object()
        .field("name", interface.name)
        .field("up", interface.up)
        .field("loopback", interface.loopback)
        .field("mtu", interface.mtu)
        .field("speed_gbps", interface.speed_gbps)
        .field("numa_node", interface.numa_node)
        .key("addresses")
        .begin_array();
    for (const SocketAddress& address : interface.addresses)
      json.value(address.host());
    json.end_array().end_object();
  }
  json.end_array().field("no_rdma_reason", host.no_rdma_reason).key("rdma_ports").begin_array();
  for (const RdmaPort& rdma : host.rdma_ports) {
    json.begin_object()
        .field("device", rdma.port.device)
        .field("port", rdma.port.port)
        .field("state", rdma.port.state)
        .field("link_layer", rdma.port.link_layer)
        .field("mtu", rdma.port.active_mtu)
        .field("rate_gbps", rdma.port.rate_gbps)
        .field("interface", rdma.port.interface)
        .field("numa_node", rdma.numa_node)
        .field("why_unusable", rdma.port.why_unusable)
        .key("gids")
        .begin_array();
    for (const VerbsGid& gid : rdma.port.gids) {
      json.begin_object()
          .field("index", gid.index)
          .field("gid", gid.gid)
          .field("type", gid.type)
          .field("interface", gid.interface)
          .end_object();
    }
    json.end_array().end_object();
  }
  json.end_array();
}

void write_rails(JsonWriter& json, const std::vector<RailChoice>& rails) {
  json.key("rails").begin_array();
  for (const RailChoice& rail : rails) {
    json.begin_object()
        .field("transport", to_string(rail.kind))
        .field("chosen", rail.chosen)
        .field("interface", rail.interface)
        .field("address", rail.address.host())
        .field("device", rail.device)
        .field("port", rail.port)
        .field("gid_index", rail.gid_index)
        .field("speed_gbps", rail.speed_gbps)
        .field("numa_node", rail.numa_node)
        .field("distance", rail.distance)
        .field("reason", rail.reason)
        .end_object();
  }
  json.end_array();
}

void write_daemon(JsonWriter& json, const HostFacts& facts) {
  json.field("socket", facts.socket).key("node");
  if (!facts.daemon) {
    json.null().field("node_error", facts.daemon_error);
    return;
  }
  const NodeStats& node = *facts.daemon;
  json.begin_object()
      .field("node", node.node.to_string())
      .field("name", node.node_name)
      .field("directory", node.directory)
      .field("pool_bytes", node.pool_bytes)
      .field("pool_used_bytes", node.pool_used_bytes)
      .field("huge_page_bytes", node.huge_page_bytes)
      .field("objects", node.objects)
      .field("pinned", node.pinned)
      .field("evictions", node.evictions)
      .field("bytes_sent", node.bytes_sent)
      .field("bytes_received", node.bytes_received)
      .field("edges_started", node.edges_started)
      .field("edges_failed", node.edges_failed)
      .field("transport_fallbacks", node.transport_fallbacks)
      .key("rails")
      .begin_array();
  for (const std::string& rail : node.rails)
    json.value(rail);
  json.end_array().end_object();
}

void print_info_json(const HostFacts& facts, const std::vector<RailChoice>& rails) {
  JsonWriter json;
  json.begin_object()
      .field("version", LOCHOS_VERSION)
      .field("verbs", facts.built_with_verbs)
      .field("fabric", facts.built_with_fabric)
      .key("fabric_providers")
      .begin_array();
  for (const std::string& provider : facts.fabric_providers)
    json.value(provider);
  json.end_array();
  write_topology(json, facts.topology);
  write_rails(json, rails);
  json.field("home_numa_node", home_numa_node(facts.topology, rails));
  write_daemon(json, facts);
  fmt::print("{}", json.end_object().text());
}

Result<int> run_info(const Context& context, const InfoArguments& arguments) {
  const Config& config = context.config;
  if (arguments.config) return print_config(config, arguments.json);
  auto filter = InterfaceFilter::parse(config.text("node.interface"));
  if (!filter) return fail(filter.error());
  auto facts = gather_host_facts(config, context.environment_names);
  if (!facts) return fail(facts.error());
  const TransportPolicy policy = config.transport("node.transport");
  auto rails = choose_rails(
      facts->topology, *filter,
      {.tcp = policy != TransportPolicy::kVerbs, .verbs = policy != TransportPolicy::kTcp});
  if (!rails) return fail(rails.error());
  arguments.json ? print_info_json(*facts, *rails) : print_info(*facts, *rails);
  return kExitDone;
}

}  // namespace

void add_info_command(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<InfoArguments>();
  CLI::App& command =
      add_command(app, "info", "Show this host's devices, options and node", kFooter);
  add_switch(command, "--json", arguments->json, "Print a JSON object");
  // Every option may be given, so that --config shows what it would do.
  add_switch(command, "--config", arguments->config,
             "Show each option, its value, and where it came from");
  for (const OptionSpec& option : option_catalogue()) {
    if (option.key != "directory.listen") add_config_option(command, context, option.key);
  }
  set_run(command, context, [&context, arguments] { return run_info(context, *arguments); });
}

}  // namespace lochos
