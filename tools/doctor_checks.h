// What `lochos doctor` says about a host: pure functions of HostFacts. Use anywhere.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tools/host_facts.h"

namespace lochos {

enum class Verdict : std::uint8_t { kOk, kWarning, kFailure };
std::string_view to_string(Verdict verdict);

struct Finding {
  Verdict verdict = Verdict::kOk;
  std::string check;  // "locked memory"
  std::string text;   // what is so
  std::string fix;    // exact commands or lines; empty if nothing is to be done
};

// All of them, in the order in which a person should deal with them.
std::vector<Finding> examine(const HostFacts& facts);

// The single groups, for tests.
std::vector<Finding> check_build(const HostFacts& facts);
std::vector<Finding> check_locked_memory(const HostFacts& facts);
std::vector<Finding> check_rdma(const HostFacts& facts);
std::vector<Finding> check_rdma_port(const HostFacts& facts, const RdmaPort& port);
std::vector<Finding> check_interfaces(const HostFacts& facts);
std::vector<Finding> check_host_name(const HostFacts& facts);
std::vector<Finding> check_ports(const HostFacts& facts);
std::vector<Finding> check_memory(const HostFacts& facts);
std::vector<Finding> check_huge_pages(const HostFacts& facts);
std::vector<Finding> check_daemons(const HostFacts& facts);
std::vector<Finding> check_variables(const HostFacts& facts);

}  // namespace lochos
