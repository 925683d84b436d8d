// Owners of verbs and rdma_cm objects: unique_ptr aliases whose deleter calls the library's own
// destroy function. Engine thread only.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <memory>

namespace lochos::verbs {

template <auto destroy>
struct Destroy {
  template <class T>
  void operator()(T* handle) const {
    destroy(handle);
  }
};

using ContextHandle = std::unique_ptr<ibv_context, Destroy<&ibv_close_device>>;
using DomainHandle = std::unique_ptr<ibv_pd, Destroy<&ibv_dealloc_pd>>;
using MemoryHandle = std::unique_ptr<ibv_mr, Destroy<&ibv_dereg_mr>>;
using CompletionChannelHandle =
    std::unique_ptr<ibv_comp_channel, Destroy<&ibv_destroy_comp_channel>>;
using CompletionQueueHandle = std::unique_ptr<ibv_cq, Destroy<&ibv_destroy_cq>>;
using ReceiveQueueHandle = std::unique_ptr<ibv_srq, Destroy<&ibv_destroy_srq>>;
using QueuePairHandle = std::unique_ptr<ibv_qp, Destroy<&ibv_destroy_qp>>;

// Destroying an id waits until its events are acknowledged: acknowledge first, act afterwards.
using IdHandle = std::unique_ptr<rdma_cm_id, Destroy<&rdma_destroy_id>>;
using EventChannelHandle =
    std::unique_ptr<rdma_event_channel, Destroy<&rdma_destroy_event_channel>>;

}  // namespace lochos::verbs
