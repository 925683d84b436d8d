// Decisions about rails on machines that we do not have: two sockets with eight ports (a hwloc
// recording), synthetic ones, and lists made by hand.
#include "transport/topology.h"

#include <gtest/gtest.h>
#include <hwloc.h>
#include <sys/mman.h>

#include <memory>

namespace lochos {
namespace {

struct DestroyTopology {
  void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
};
using TopologyHandle = std::unique_ptr<hwloc_topology, DestroyTopology>;

TopologyHandle load_xml(const std::string& file) {
  hwloc_topology_t raw = nullptr;
  hwloc_topology_init(&raw);
  TopologyHandle topology(raw);
  hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_ALL);
  const std::string path = std::string(LOCHOS_TEST_DATA) + "/" + file;
  if (hwloc_topology_set_xml(raw, path.c_str()) != 0 || hwloc_topology_load(raw) != 0) return {};
  return topology;
}

TopologyHandle load_synthetic(const char* description) {
  hwloc_topology_t raw = nullptr;
  hwloc_topology_init(&raw);
  TopologyHandle topology(raw);
  if (hwloc_topology_set_synthetic(raw, description) != 0 || hwloc_topology_load(raw) != 0) {
    return {};
  }
  return topology;
}

NetworkInterface interface(std::string name, std::vector<std::string> addresses,
                           double speed_gbps = 0) {
  NetworkInterface made;
  made.name = std::move(name);
  made.up = true;
  made.loopback = made.name == "lo";
  made.mtu = 1500;
  made.speed_gbps = speed_gbps;
  for (const std::string& text : addresses) {
    made.addresses.push_back(*SocketAddress::parse(text, 0));
    made.prefix_lengths.push_back(24);
  }
  return made;
}

RdmaPort roce_port(std::string device, std::string interface, std::string ip, int gid_index,
                   double rate_gbps = 200) {
  VerbsPort port;
  port.device = std::move(device);
  port.state = "active";
  port.link_layer = "Ethernet";
  port.active_mtu = 4096;
  port.rate_gbps = rate_gbps;
  port.interface = std::move(interface);
  port.gids = {{0, "fe80::1", "RoCE v2", port.interface},
               {gid_index - 1, "::ffff:" + ip, "RoCE v1", port.interface},
               {gid_index, "::ffff:" + ip, "RoCE v2", port.interface}};
  return {.port = std::move(port)};
}

HostTopology plain_host() {
  HostTopology host;
  host.numa_nodes = {NumaNode{.index = 0, .cpus = "0-3", .memory_bytes = 1 << 30}};
  host.allowed_numa_nodes = {0};
  host.interfaces = {interface("lo", {"127.0.0.1", "::1"}),
                     interface("eth0", {"fe80::5", "2001:db8::5", "10.0.0.5"}, 10),
                     interface("eth1", {"10.1.0.5"}, 100)};
  return host;
}

HostTopology eight_ports() {
  HostTopology host;
  host.interfaces.push_back(interface("lo", {"127.0.0.1"}));
  for (int i = 0; i < 8; ++i) {
    const std::string n = std::to_string(i), ip = "10.0." + n + ".1";
    host.interfaces.push_back(interface("eth" + n, {ip}, 200));
    host.rdma_ports.push_back(roce_port("mlx5_" + n, "eth" + n, ip, 3));
  }
  return host;
}

InterfaceFilter filter(std::string_view text) {
  auto parsed = InterfaceFilter::parse(text);
  EXPECT_TRUE(parsed) << parsed.error().to_string();
  return parsed ? *parsed : InterfaceFilter();
}

std::vector<RailChoice> rails_of(const HostTopology& host, std::string_view text = "",
                                 RailPolicy policy = {}) {
  auto rails = choose_rails(host, filter(text), policy);
  EXPECT_TRUE(rails) << rails.error().to_string();
  return rails ? *rails : std::vector<RailChoice>();
}

std::string chosen(const std::vector<RailChoice>& rails) {
  std::string text;
  for (const RailChoice& rail : rails) {
    if (!rail.chosen) continue;
    text += (text.empty() ? "" : " ") + (rail.device.empty() ? rail.interface : rail.device) + "@" +
            rail.address.host();
  }
  return text;
}

std::string reason_of(const std::vector<RailChoice>& rails, std::string_view name) {
  for (const RailChoice& rail : rails) {
    if (rail.interface == name || rail.device == name) return rail.reason;
  }
  return "(no such rail)";
}

TEST(ChooseRails, TakesEveryInterfaceWithItsBestAddressFastestFirst) {
  EXPECT_EQ(chosen(rails_of(plain_host())), "eth1@10.1.0.5 eth0@10.0.0.5");
}

TEST(ChooseRails, PrefersIpv6OverLinkLocalIpv6) {
  HostTopology host = plain_host();
  host.interfaces = {interface("eth0", {"fe80::5", "2001:db8::5"})};
  EXPECT_EQ(chosen(rails_of(host)), "eth0@2001:db8::5");
}

TEST(ChooseRails, LoopbackOnlyWhenNothingElseIsLeft) {
  HostTopology host = plain_host();
  host.interfaces[1].up = host.interfaces[2].up = false;
  const auto rails = rails_of(host);
  EXPECT_EQ(chosen(rails), "lo@127.0.0.1");
  EXPECT_EQ(reason_of(rails, "eth0"), "is down or has no carrier");
  EXPECT_EQ(chosen(rails_of(host, "^lo")), "");
}

TEST(ChooseRails, LeavesOutContainerBridgesUnlessNamed) {
  HostTopology host = plain_host();
  host.interfaces.push_back(interface("docker0", {"172.17.0.1"}));
  host.interfaces.push_back(interface("br-0123456789ab", {"172.18.0.1"}));
  host.interfaces.push_back(interface("br-lan", {"192.168.1.1"}));
  EXPECT_EQ(chosen(rails_of(host)), "eth1@10.1.0.5 eth0@10.0.0.5 br-lan@192.168.1.1");
  EXPECT_EQ(chosen(rails_of(host, "docker0")), "docker0@172.17.0.1");
}

TEST(ChooseRails, FilterByNamePrefixNetworkAndExclusion) {
  const HostTopology host = plain_host();
  EXPECT_EQ(chosen(rails_of(host, "eth0")), "eth0@10.0.0.5");
  EXPECT_EQ(chosen(rails_of(host, "lo,eth1")), "eth1@10.1.0.5 lo@127.0.0.1");
  EXPECT_EQ(chosen(rails_of(host, "10.1.0.0/16")), "eth1@10.1.0.5");
  EXPECT_EQ(chosen(rails_of(host, "2001:db8::/32")), "eth0@2001:db8::5");
  EXPECT_EQ(chosen(rails_of(host, "eth*,^eth1")), "eth0@10.0.0.5");
  EXPECT_EQ(chosen(rails_of(host, "^eth1")), "eth0@10.0.0.5");
  EXPECT_EQ(chosen(rails_of(host, "^eth1,lo")), "eth0@10.0.0.5");
  EXPECT_EQ(chosen(rails_of(host, "eth0,^10.0.0.5")), "eth0@2001:db8::5");
  EXPECT_EQ(reason_of(rails_of(host, "^eth1"), "eth1"), "excluded by the interface filter");
}

TEST(ChooseRails, UnknownNameIsRefusedWithThoseThatExist) {
  auto rails = choose_rails(plain_host(), filter("eth7"));
  ASSERT_FALSE(rails);
  EXPECT_EQ(rails.error().code(), Errc::kInvalidArgument);
  for (const char* name : {"eth7", "eth0", "eth1", "lo", "10.1.0.5"}) {
    EXPECT_NE(rails.error().message().find(name), std::string::npos) << rails.error().message();
  }
  EXPECT_TRUE(choose_rails(plain_host(), filter("^eth7")));  // one configuration, many hosts
}

TEST(InterfaceFilter, RefusesWhatIsNoItem) {
  for (const char* text : {"eth0,,eth1", "10.0.0.0/33", "10.0.0.0/x", "fd00::/129", "^", "eth 0",
                           "eth0/8", "10.0.0.0/", "a/b"}) {
    auto parsed = InterfaceFilter::parse(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code(), Errc::kInvalidArgument);
  }
  for (const char* text : {"", "*", "eth0", " eth0 , eth1 ", "mlx5_0:1", "^eth0", "10.0.0.0/0"}) {
    EXPECT_TRUE(InterfaceFilter::parse(text)) << text;
  }
}

TEST(ChooseRails, VerbsPortGoesByTheAddressOfItsInterface) {
  HostTopology host = plain_host();
  host.rdma_ports = {roce_port("mlx5_0", "eth1", "10.1.0.5", 3)};
  const auto rails = rails_of(host);
  EXPECT_EQ(chosen(rails), "mlx5_0@10.1.0.5 eth1@10.1.0.5 eth0@10.0.0.5");
  EXPECT_EQ(rails[0].kind, TransportKind::kVerbs);
  EXPECT_EQ(rails[0].gid_index, 3);  // RoCE v2, not 2, which is the same address in RoCE v1
  EXPECT_EQ(chosen(rails_of(host, "mlx5_0:1")), "mlx5_0@10.1.0.5");
  EXPECT_EQ(chosen(rails_of(host, "eth0")), "eth0@10.0.0.5");
  EXPECT_EQ(chosen(rails_of(host, "", {.tcp = false, .verbs = true})), "mlx5_0@10.1.0.5");
  EXPECT_EQ(chosen(rails_of(host, "", {.tcp = true, .verbs = false})),
            "eth1@10.1.0.5 eth0@10.0.0.5");
}

TEST(ChooseRails, SaysWhyAPortCannotBeUsed) {
  HostTopology host = plain_host();
  host.rdma_ports = {roce_port("mlx5_0", "eth9", "10.9.0.5", 3),
                     roce_port("mlx5_1", "eth1", "10.1.0.5", 3)};
  host.rdma_ports[1].port.why_unusable = "the port is down";
  const auto rails = rails_of(host);
  EXPECT_EQ(reason_of(rails, "mlx5_0"), "its network interface has no address; give it one");
  EXPECT_EQ(reason_of(rails, "mlx5_1"), "the port is down");
}

TEST(ChooseRails, InfiniBandPortGoesByItsIpoibInterface) {
  HostTopology host = plain_host();
  host.interfaces.push_back(interface("ib0", {"192.168.5.1"}));
  RdmaPort port = roce_port("mlx5_0", "ib0", "0.0.0.0", 1);
  port.port.link_layer = "InfiniBand";
  port.port.gids = {{0, "fe80::506b:4b03:ab:cdef", "IB", ""}};
  host.rdma_ports = {port};
  const auto rails = rails_of(host, "ib0");
  EXPECT_EQ(chosen(rails), "mlx5_0@192.168.5.1 ib0@192.168.5.1");
  EXPECT_EQ(rails[0].gid_index, -1);
}

TEST(Numa, EightPortsOnTwoSocketsKnowTheirNode) {
  HostTopology host = eight_ports();
  const TopologyHandle topology = load_xml("two_sockets_eight_nics.xml");
  ASSERT_TRUE(topology);
  read_numa(topology.get(), host);
  ASSERT_EQ(host.numa_nodes.size(), 2U);
  EXPECT_EQ(host.numa_nodes[1].cpus, "2-3");
  EXPECT_EQ(host.distances, (std::vector<std::vector<int>>{{10, 21}, {21, 10}}));
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(host.rdma_ports[static_cast<std::size_t>(i)].numa_node, i / 4);
    EXPECT_EQ(host.interfaces[static_cast<std::size_t>(i + 1)].numa_node, i / 4);
  }
}

TEST(Numa, NearRailsComeFirstAndHomeIsTheirNode) {
  HostTopology host = eight_ports();
  const TopologyHandle topology = load_xml("two_sockets_eight_nics.xml");
  ASSERT_TRUE(topology);
  read_numa(topology.get(), host);
  auto rails = rails_of(host);
  EXPECT_EQ(home_numa_node(host, rails), 0);
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(rails[i].kind, TransportKind::kVerbs);
    EXPECT_EQ(rails[i].numa_node, i < 4 ? 0 : 1);
    EXPECT_EQ(rails[i].distance, i < 4 ? 10 : 21);
  }

  rails = rails_of(host, "mlx5_2,mlx5_6,mlx5_7");
  EXPECT_EQ(chosen(rails), "mlx5_2@10.0.2.1 mlx5_6@10.0.6.1 mlx5_7@10.0.7.1");
  rails = rails_of(host, "mlx5_5");
  EXPECT_EQ(home_numa_node(host, rails), 1);
  EXPECT_EQ(rails[0].distance, 10);

  // A faster port on the other socket is worth moving to.
  host.rdma_ports[6].port.rate_gbps = 400;
  rails = rails_of(host);
  EXPECT_EQ(home_numa_node(host, rails), 1);
  EXPECT_EQ(rails[0].device, "mlx5_6");
}

// A process that was bound to one socket stays there and takes that socket's ports first.
TEST(Numa, BindingOfTheProcessDecides) {
  HostTopology host = eight_ports();
  const TopologyHandle topology = load_xml("two_sockets_eight_nics.xml");
  ASSERT_TRUE(topology);
  read_numa(topology.get(), host);
  host.allowed_numa_nodes = {1};
  const auto rails = rails_of(host);
  EXPECT_EQ(home_numa_node(host, rails), 1);
  EXPECT_EQ(rails[0].device, "mlx5_4");
  EXPECT_EQ(home_numa_node(host, rails_of(host, "mlx5_0")), kAnyNumaNode);
}

TEST(Numa, SyntheticMachines) {
  HostTopology one = plain_host();
  const TopologyHandle single = load_synthetic("pack:1 core:4 pu:2");
  ASSERT_TRUE(single);
  read_numa(single.get(), one);
  EXPECT_EQ(one.numa_nodes.size(), 1U);
  EXPECT_EQ(home_numa_node(one, rails_of(one)), kAnyNumaNode);

  HostTopology four = plain_host();
  const TopologyHandle quad = load_synthetic("pack:4 [numa(memory=1GB)] core:2 pu:1");
  ASSERT_TRUE(quad);
  read_numa(quad.get(), four);
  ASSERT_EQ(four.numa_nodes.size(), 4U);
  EXPECT_EQ(four.numa_nodes[3].cpus, "6-7");
  EXPECT_EQ(four.numa_nodes[3].memory_bytes, 1'000'000'000U);
  EXPECT_EQ(four.interfaces[1].numa_node, kAnyNumaNode);  // hwloc knows no devices here
  EXPECT_EQ(home_numa_node(four, rails_of(four)), kAnyNumaNode);
}

TEST(Topology, ThisHostHasLoopbackAndAMemoryNode) {
  auto host = discover_topology();
  ASSERT_TRUE(host) << host.error().to_string();
  EXPECT_FALSE(host->numa_nodes.empty());
  EXPECT_FALSE(host->allowed_numa_nodes.empty());
  bool loopback = false;
  for (const NetworkInterface& found : host->interfaces) {
    EXPECT_EQ(found.addresses.size(), found.prefix_lengths.size());
    EXPECT_GT(found.mtu, 0) << found.name;
    loopback = loopback || found.loopback;
  }
  EXPECT_TRUE(loopback);
  EXPECT_EQ(host->rdma_ports.empty(), !host->no_rdma_reason.empty());
}

TEST(Binding, SaysWhyItDidNothing) {
  const std::size_t bytes = 1 << 16;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const std::span<std::byte> pages(static_cast<std::byte*>(memory), bytes);
  for (const Binding& binding : {bind_memory(pages, kAnyNumaNode), bind_thread(kAnyNumaNode),
                                 bind_memory(pages, 1000), bind_thread(1000)}) {
    EXPECT_FALSE(binding.bound);
    EXPECT_FALSE(binding.reason.empty());
  }
  const Binding near = bind_memory(pages, 0);
  auto host = discover_topology();
  ASSERT_TRUE(host);
  EXPECT_EQ(near.bound, host->numa_nodes.size() > 1 && host->numa_nodes[0].index == 0)
      << near.reason;
  munmap(memory, bytes);
}

}  // namespace
}  // namespace lochos
