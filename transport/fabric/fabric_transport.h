// The public face of the libfabric backend: one factory.
#pragma once

#include <memory>
#include <string>

#include "transport/transport.h"

namespace lochos {

struct FabricOptions : TransportOptions {
  std::string provider = "tcp";  // any provider with FI_EP_MSG and FI_RMA
  // The local address to send from and listen on; unspecified: whatever routes to the peer.
  SocketAddress local;
};

// Errors: kUnsupported if libfabric has no such provider (the message lists those it has).
Result<std::unique_ptr<Transport>> open_fabric_transport(const FabricOptions& options);

}  // namespace lochos
