// One directory and some nodes on loopback, as processes of their own, for `lochos demo`. One
// thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "node/store.h"
#include "tools/child_process.h"

namespace lochos {

struct DemoNode {
  std::string name;
  ChildProcess process;
  Store store;
};

class DemoCluster {
 public:
  // Returns when every node has joined. Sockets and logs go to `folder`. Errors: what the child
  // said last, kTimedOut.
  static Result<DemoCluster> start(const std::string& folder, std::size_t node_count,
                                   std::uint64_t pool_bytes, Duration timeout);

  std::vector<DemoNode>& nodes() { return nodes_; }
  // Ends everything with SIGTERM. Errors: one that did not end in time, or not with status 0
  // (those that were killed before do not count).
  Status stop(Duration timeout);
  // SIGKILL; stop() then expects nothing of it.
  void kill(std::size_t index);
  bool is_killed(std::size_t index) const { return killed_[index]; }

 private:
  explicit DemoCluster(ChildProcess directory) : directory_(std::move(directory)) {}

  ChildProcess directory_;
  std::vector<DemoNode> nodes_;
  std::vector<bool> killed_;
};

}  // namespace lochos
