// The public face of the verbs backend: one factory, and the list of devices it could use.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/transport.h"

namespace lochos {

struct VerbsOptions : TransportOptions {
  // An address of the port's network interface; connections are made and accepted through it.
  SocketAddress local;
  int gid_index = -1;      // -1: what the connection manager picks for `local`
  int mtu = 0;             // bytes, 256 … 4096; 0: the port's
  int service_level = -1;  // -1: default
  int traffic_class = -1;  // -1: default
  // Bounds how long a dead peer goes unnoticed on an active connection. 7 means "never give up" on
  // some devices and is refused.
  int retry_count = 3;
};

struct VerbsGid {
  int index = 0;
  std::string gid;        // "::ffff:10.0.0.1"
  std::string type;       // "IB", "RoCE v1", "RoCE v2"
  std::string interface;  // network interface it belongs to, may be empty
};

struct VerbsPort {
  std::string device;  // "mlx5_0"
  int port = 1;
  std::string state;       // "active", "down", …
  std::string link_layer;  // "InfiniBand", "Ethernet"
  int active_mtu = 0;      // bytes
  double rate_gbps = 0;
  std::string interface;  // the network interface behind it, may be empty
  std::vector<VerbsGid> gids;
  std::string why_unusable;  // empty if it can be used
};

// Every port of every device. Errors: kUnsupported when there is no RDMA here, with the reason (no
// kernel support, no device, no provider library).
Result<std::vector<VerbsPort>> list_verbs_ports();

// Errors: kUnsupported (no device has `local`), kInvalidArgument (GID index not valid: the message
// has the table of valid ones), kPermission.
Result<std::unique_ptr<Transport>> open_verbs_transport(const VerbsOptions& options);

}  // namespace lochos
