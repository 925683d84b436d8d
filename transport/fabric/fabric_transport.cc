#include "transport/fabric/fabric_transport.h"

#include "transport/fabric/rail.h"

namespace lochos {

Result<std::unique_ptr<Transport>> open_fabric_transport(const FabricOptions& options) {
  return fabric::Rail::open(options);
}

}  // namespace lochos
