// A node of the cluster inside this process: an engine on a thread of its own, with its pool, rails
// and (if asked for) the Unix socket for other processes of this host. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "directory/messages.h"
#include "node/store.h"

namespace lochos {

struct NodeOptions {
  std::string directory;  // "host:port"
  std::string name;       // for people; default: host name
  std::uint64_t pool_bytes = 4ULL << 30;
  TransportPolicy transport = TransportPolicy::kAuto;
  std::string interface;         // names or CIDRs, comma-separated, '^' excludes; empty: automatic
  std::string socket_path;       // empty: no socket
  std::string listen;            // "ADDR:PORT" of the data rails; empty: chosen addresses, any port
  std::string provider = "tcp";  // libfabric's, for the TCP rail
  // Of RDMA connections; as in VerbsOptions.
  int gid_index = -1;
  int rdma_mtu = 0;
  int service_level = -1;
  int traffic_class = -1;
  bool huge_pages = true;
};

class Node {
 public:
  // Opens the pool and rails and starts the engine. Does not wait for the directory (calls on the
  // store do, up to their deadlines). Errors: kInvalidArgument, kAddressInUse, kNoSpace,
  // kPermission, kUnsupported.
  static Result<std::unique_ptr<Node>> start(const NodeOptions& options);
  // Leaves the cluster and stops the engine. Stores on this node fail with kClosed from then on.
  virtual ~Node() = default;

  virtual Store store() = 0;
  // Blocks until the directory has accepted this node. Errors: kTimedOut, naming the address and
  // last reason.
  virtual Status wait_until_joined(Duration timeout) = 0;
  // The real addresses of the data rails: "tcp=10.0.0.1:40123", "verbs=…".
  virtual std::vector<std::string> rail_addresses() const = 0;
};

}  // namespace lochos
