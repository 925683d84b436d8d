// The second part of `lochos demo`: the nodes that are left contribute to one sum, and one of those
// that go in is killed in the middle. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "tools/demo_cluster.h"
#include "tools/json.h"
#include "tools/stop_signals.h"

namespace lochos {

// Bytes of one contribution. A node's pool must have room for four.
inline constexpr std::uint64_t kDemoPartBytes = 16ULL << 20;

struct DemoReduceRow {
  std::string name;  // of the node
  std::string role;
  bool included = false;  // its contribution is in the sum
  double seconds = 0;     // until it held the whole sum, since the beginning
  std::string sha256;     // of its copy of the sum
  std::string error;      // why it has none
};

struct DemoReduceOutcome {
  std::vector<DemoReduceRow> rows;  // one a node that was alive
  std::size_t sources = 0;          // that go into the sum, of rows.size()
  double killed_at = 0;             // share of the stream into the victim that had arrived
  std::string sha256;               // of the sum of those that should be in it
  std::vector<std::string> wrong;   // what is wrong with the outcome; empty if nothing is
};

// REQUIRES: at least four nodes are alive. Errors: what keeps it from being run at all; kCancelled
// after a stop signal.
Result<DemoReduceOutcome> run_demo_reduce(DemoCluster& cluster, const StopSignals& signals);

void print_demo_reduce(const DemoReduceOutcome& outcome);
void write_demo_reduce(JsonWriter& json, const DemoReduceOutcome& outcome);

}  // namespace lochos
