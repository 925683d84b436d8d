#include "tools/doctor_checks.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lochos {
namespace {

SocketAddress address(const char* text) {
  return SocketAddress::parse(text, 0).value();
}

// A host with one good RoCE port, on which everything is in order.
HostFacts healthy_host() {
  HostFacts facts;
  facts.pool_bytes = 4ULL << 30;
  facts.provider = "tcp";
  facts.built_with_verbs = facts.built_with_fabric = true;
  facts.fabric_providers = {"tcp", "verbs"};
  facts.locked_limit_bytes = facts.locked_hard_limit_bytes = kUnlimited;
  facts.kernel_rdma_devices = {"mlx5_0"};
  facts.provider_drivers = {"mlx5"};
  facts.has_uverbs_node = facts.has_rdma_cm_node = true;
  NetworkInterface ethernet;
  ethernet.name = "eth0";
  ethernet.up = true;
  ethernet.mtu = 9000;
  ethernet.addresses = {address("10.0.0.1")};
  facts.topology.interfaces = {ethernet};
  RdmaPort rdma;
  rdma.port = {.device = "mlx5_0",
               .port = 1,
               .state = "active",
               .link_layer = "Ethernet",
               .active_mtu = 4096,
               .rate_gbps = 100,
               .interface = "eth0",
               .gids = {{1, "::ffff:10.0.0.1", "RoCE v2", "eth0"}},
               .why_unusable = ""};
  facts.topology.rdma_ports = {rdma};
  facts.host_name = "alpha";
  facts.host_addresses = {address("10.0.0.1")};
  facts.directory_listen = "0.0.0.0:7777";
  facts.available_bytes = 64ULL << 30;
  facts.transparent_huge_pages = "madvise";
  facts.socket = "/run/lochos.sock";
  facts.daemon = NodeStats{};
  return facts;
}

const Finding* find(const std::vector<Finding>& findings, Verdict verdict) {
  const auto found = std::find_if(findings.begin(), findings.end(),
                                  [verdict](const Finding& f) { return f.verdict == verdict; });
  return found == findings.end() ? nullptr : &*found;
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST(Doctor, a_healthy_host_has_nothing_to_look_at) {
  for (const Finding& finding : examine(healthy_host()))
    EXPECT_EQ(finding.verdict, Verdict::kOk) << finding.check << ": " << finding.text;
}

TEST(Doctor, whatever_is_not_ok_comes_with_a_fix) {
  HostFacts sick;  // nothing of anything
  sick.pool_bytes = 1 << 30;
  sick.provider = "tcp";
  sick.host_name_error = "no such name";
  sick.directory = "10.0.0.9:7777";
  sick.directory_error = "refused";
  sick.directory_listen_error = "in use";
  sick.unknown_variables = {{"LOCHOS_POOOL", "LOCHOS_POOL"}};
  std::size_t bad = 0;
  for (const Finding& finding : examine(sick)) {
    if (finding.verdict == Verdict::kOk) continue;
    ++bad;
    EXPECT_FALSE(finding.fix.empty()) << finding.check << ": " << finding.text;
  }
  EXPECT_GE(bad, 9U);
}

TEST(Doctor, locked_memory_names_limit_need_and_fix) {
  HostFacts facts = healthy_host();
  facts.locked_limit_bytes = facts.locked_hard_limit_bytes = 64 * 1024;
  const auto warned = check_locked_memory(facts);
  const Finding* finding = find(warned, Verdict::kWarning);
  ASSERT_NE(finding, nullptr);
  EXPECT_TRUE(contains(finding->text, "64 KiB") && contains(finding->text, "4 GiB"));
  EXPECT_TRUE(contains(finding->fix, "memlock unlimited"));

  facts.transport = TransportPolicy::kVerbs;
  EXPECT_NE(find(check_locked_memory(facts), Verdict::kFailure), nullptr);
  facts.transport = TransportPolicy::kTcp;
  EXPECT_NE(find(check_locked_memory(facts), Verdict::kOk), nullptr);
  facts.transport = TransportPolicy::kVerbs;
  facts.has_ipc_lock = true;
  EXPECT_NE(find(check_locked_memory(facts), Verdict::kOk), nullptr);
}

TEST(Doctor, a_soft_limit_below_a_hard_one_needs_only_ulimit) {
  HostFacts facts = healthy_host();
  facts.locked_limit_bytes = 64 * 1024;
  const auto findings = check_locked_memory(facts);
  EXPECT_TRUE(contains(findings.at(0).fix, "ulimit -l unlimited"));
}

TEST(Doctor, no_rdma_device_offers_soft_roce_on_a_real_interface) {
  HostFacts facts = healthy_host();
  facts.kernel_rdma_devices.clear();
  facts.topology.rdma_ports.clear();
  facts.has_rxe_module = true;
  const auto findings = check_rdma(facts);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].verdict, Verdict::kWarning);
  EXPECT_TRUE(contains(findings[0].fix, "rdma link add rxe0 type rxe netdev eth0"));
  facts.transport = TransportPolicy::kVerbs;
  EXPECT_EQ(check_rdma(facts)[0].verdict, Verdict::kFailure);
}

TEST(Doctor, a_device_without_provider_library_names_the_package) {
  HostFacts facts = healthy_host();
  facts.topology.rdma_ports.clear();
  facts.provider_drivers.clear();
  const auto findings = check_rdma(facts);
  ASSERT_FALSE(findings.empty());
  EXPECT_TRUE(contains(findings[0].fix, "apt-get install ibverbs-providers"));
  EXPECT_TRUE(contains(findings[0].text, "mlx5_0"));
}

TEST(Doctor, missing_device_nodes_name_their_module) {
  HostFacts facts = healthy_host();
  facts.has_uverbs_node = facts.has_rdma_cm_node = false;
  const auto findings = check_rdma(facts);
  ASSERT_GE(findings.size(), 2U);
  EXPECT_TRUE(contains(findings[0].fix, "modprobe ib_uverbs"));
  EXPECT_TRUE(contains(findings[1].fix, "modprobe rdma_ucm"));
}

TEST(Doctor, ports_are_judged_by_state_gids_and_mtu) {
  HostFacts facts = healthy_host();
  RdmaPort port = facts.topology.rdma_ports[0];
  port.port.state = "down";
  EXPECT_TRUE(contains(check_rdma_port(facts, port)[0].fix, "ip link set dev eth0 up"));
  port.port.link_layer = "InfiniBand";
  EXPECT_TRUE(contains(check_rdma_port(facts, port)[0].fix, "opensm"));

  port = facts.topology.rdma_ports[0];
  port.port.gids = {{0, "fe80::1", "RoCE v2", "eth0"}};
  EXPECT_TRUE(contains(check_rdma_port(facts, port)[0].fix, "ip addr add"));

  port = facts.topology.rdma_ports[0];
  port.port.active_mtu = 1024;
  const auto findings = check_rdma_port(facts, port);
  EXPECT_TRUE(contains(findings[0].text, "1024"));
  EXPECT_TRUE(contains(findings[0].fix, "ip link set dev eth0 mtu"));
}

TEST(Doctor, a_host_name_on_loopback_is_explained) {
  HostFacts facts = healthy_host();
  facts.host_addresses = {address("127.0.1.1")};
  const auto findings = check_host_name(facts);
  EXPECT_EQ(findings[0].verdict, Verdict::kWarning);
  EXPECT_TRUE(contains(findings[0].text, "127.0.1.1"));
  EXPECT_TRUE(contains(findings[0].fix, "/etc/hosts"));
  facts.host_addresses = {address("127.0.1.1"), address("10.0.0.1")};
  EXPECT_EQ(check_host_name(facts)[0].verdict, Verdict::kOk);
}

TEST(Doctor, a_missing_provider_lists_those_there_are) {
  HostFacts facts = healthy_host();
  facts.provider = "efa";
  const auto findings = check_build(facts);
  EXPECT_EQ(findings[0].verdict, Verdict::kFailure);
  EXPECT_TRUE(contains(findings[0].text, "tcp, verbs"));
}

TEST(Doctor, a_pool_larger_than_memory_fails_with_one_that_fits) {
  HostFacts facts = healthy_host();
  facts.daemon.reset();
  facts.available_bytes = 2ULL << 30;
  auto findings = check_memory(facts);
  EXPECT_EQ(findings[0].verdict, Verdict::kFailure);
  EXPECT_TRUE(contains(findings[0].fix, "--pool 1024M"));
  facts.available_bytes = 64ULL << 30;
  facts.cgroup_limit_bytes = 1ULL << 30;
  findings = check_memory(facts);
  EXPECT_EQ(findings[0].verdict, Verdict::kFailure);
  EXPECT_TRUE(contains(findings[0].text, "control group"));
}

TEST(Doctor, a_port_in_use_is_named) {
  HostFacts facts = healthy_host();
  facts.directory_listen_error = "address in use";
  const auto findings = check_ports(facts);
  EXPECT_EQ(findings[0].verdict, Verdict::kWarning);
  EXPECT_TRUE(contains(findings[0].fix, "':7777'"));
}

TEST(Doctor, huge_pages_count_reserved_and_transparent_ones) {
  HostFacts facts = healthy_host();
  facts.transparent_huge_pages = "never";
  EXPECT_EQ(check_huge_pages(facts)[0].verdict, Verdict::kWarning);
  EXPECT_TRUE(contains(check_huge_pages(facts)[0].fix, "vm.nr_hugepages=2049"));
  facts.huge_pages = {{2ULL << 20, 4096, 4096}};
  EXPECT_EQ(check_huge_pages(facts)[0].verdict, Verdict::kOk);
}

TEST(Doctor, unknown_variables_are_those_that_look_like_known_ones) {
  const auto unknown =
      unknown_variables({"LOCHOS_POOL", "LOCHOS_POOOL", "LOCHOS_TIMOUT", "LOCHOS_LAB_RANK",
                         "LOCHOS_JOBS", "LOCHOS_CONFIG", "HOME"});
  ASSERT_EQ(unknown.size(), 2U);
  EXPECT_EQ(unknown.at("LOCHOS_TIMOUT"), "LOCHOS_TIMEOUT");
  EXPECT_EQ(unknown.at("LOCHOS_POOOL"), "LOCHOS_POOL");
}

}  // namespace
}  // namespace lochos
