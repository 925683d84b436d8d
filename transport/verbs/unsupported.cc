// Stands in for the backend in a build without the RDMA libraries.
#include "transport/verbs/verbs_transport.h"

namespace lochos {
namespace {

Error built_without() {
  return Error(Errc::kUnsupported, "this lochos was built without verbs")
      .with_fix("install libibverbs-dev and librdmacm-dev, and build with -Dverbs=enabled");
}

}  // namespace

Result<std::vector<VerbsPort>> list_verbs_ports() {
  return fail(built_without());
}

Result<std::unique_ptr<Transport>> open_verbs_transport(const VerbsOptions&) {
  return fail(built_without());
}

}  // namespace lochos
