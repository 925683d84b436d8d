// The RDMA libraries report failure in three ways; there is one wrapper for each, and a call is
// wrapped by the one that its manual page names. Mixing them up makes checks that never fire.
#pragma once

#include <cerrno>
#include <string_view>

#include "base/error.h"

namespace lochos::verbs {

// Calls that return a positive errno value: ibv_modify_qp, ibv_query_*, ibv_post_*,
// ibv_req_notify_cq, ibv_resize_cq.
inline Status check_errno_returned(int returned, std::string_view what) {
  if (returned == 0) return {};
  return fail(system_error(returned, what));
}

// Calls that return -1 and set errno: rdma_*, ibv_get_cq_event.
inline Status check_minus_one(int returned, std::string_view what) {
  if (returned == 0) return {};
  return fail(system_error(errno, what));
}

// Calls that return a null pointer and set errno: ibv_open_device, ibv_alloc_pd, ibv_create_*,
// ibv_reg_mr, rdma_create_event_channel.
template <class Handle>
Result<Handle> check_null(typename Handle::pointer returned, std::string_view what) {
  if (returned != nullptr) return Handle(returned);
  return fail(system_error(errno, what));
}

}  // namespace lochos::verbs
