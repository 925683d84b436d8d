// Built in the place of the libfabric backend where the library is missing.
#include "transport/fabric/fabric_transport.h"

namespace lochos {

Result<std::unique_ptr<Transport>> open_fabric_transport(const FabricOptions&) {
  return fail(Error(Errc::kUnsupported, "this build has no libfabric, and so no TCP transport")
                  .with_fix("install libfabric-dev and build again"));
}

}  // namespace lochos
