// From a node's options to its rails: which interfaces and devices, opened and listening.
// Used while a node starts, on the starting thread.
#pragma once

#include <vector>

#include "node/engine.h"
#include "node/node.h"
#include "transport/topology.h"

namespace lochos {

struct RailPlan {
  std::vector<RailChoice> choices;  // chosen ones only, best first
  int numa_node = kAnyNumaNode;
};

// Errors: kInvalidArgument (interface filter, listen address), kUnsupported (policy verbs, and no
// verbs here: says why).
Result<RailPlan> plan_rails(const NodeOptions& options);

// Opens and listens. With policy auto a verbs rail that cannot be opened is left out with one
// warning. Errors: those of the factories and of Transport::listen.
Result<std::vector<Rail>> open_rails(const NodeOptions& options, const RailPlan& plan);

}  // namespace lochos
