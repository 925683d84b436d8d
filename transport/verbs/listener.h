// Accepts connections for one verbs transport, and refuses whoever is no compatible peer before
// anything is allocated for him. Engine thread only.
#pragma once

#include <memory>

#include "base/clock.h"
#include "base/error.h"
#include "transport/address.h"
#include "transport/verbs/connection_manager.h"
#include "transport/verbs/endpoint.h"
#include "transport/verbs/handles.h"
#include "transport/verbs/rail.h"

namespace lochos::verbs {

class Listener {
 public:
  // An unspecified address means the rail's own. Errors: kAddressInUse (names the port),
  // kPermission, kUnreachable (the address is not one of this rail's device).
  static Result<std::unique_ptr<Listener>> open(VerbsRail& rail, const SocketAddress& address);

  const SocketAddress& address() const { return address_; }
  bool is(const rdma_cm_id* id) const { return id == id_.get(); }

  // Judges a connect request. Null: it was refused (logged).
  std::unique_ptr<VerbsEndpoint> judge(const CmEvent& request);

 private:
  Listener(VerbsRail& rail, IdHandle id, SocketAddress address);
  void refuse(rdma_cm_id* id, const Error& reason);

  VerbsRail& rail_;
  const IdHandle id_;
  const SocketAddress address_;
};

}  // namespace lochos::verbs
