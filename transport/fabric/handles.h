// libfabric objects as unique_ptr aliases. Each must be destroyed before what it was made from:
// members are declared in the order fabric, domain, event queue, completion queue, endpoint.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_rma.h>

#include <memory>

namespace lochos::fabric {

struct CloseFid {
  template <class T>
  void operator()(T* object) const {
    fi_close(&object->fid);
  }
};

struct FreeInfo {
  void operator()(fi_info* info) const { fi_freeinfo(info); }
};

using InfoHandle = std::unique_ptr<fi_info, FreeInfo>;
using FabricHandle = std::unique_ptr<fid_fabric, CloseFid>;
using DomainHandle = std::unique_ptr<fid_domain, CloseFid>;
using EventQueueHandle = std::unique_ptr<fid_eq, CloseFid>;
using CompletionQueueHandle = std::unique_ptr<fid_cq, CloseFid>;
using EndpointHandle = std::unique_ptr<fid_ep, CloseFid>;
using PassiveEndpointHandle = std::unique_ptr<fid_pep, CloseFid>;
using MemoryHandle = std::unique_ptr<fid_mr, CloseFid>;

}  // namespace lochos::fabric
