// The state that one verbs transport shares with its endpoints and its listener. Engine thread
// only.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "transport/transport.h"
#include "transport/verbs/device.h"
#include "transport/verbs/handles.h"
#include "transport/verbs/queues.h"
#include "transport/verbs/verbs_transport.h"

namespace lochos::verbs {

class VerbsEndpoint;

// Requests handed to the device in one call. The last one of each burst is signalled, so this also
// bounds how many completions one queue entry stands for.
inline constexpr std::size_t kBurst = 16;

struct VerbsRail {
  // Constant after construction.
  VerbsOptions options;
  std::shared_ptr<Device> device;
  SocketAddress local;  // with port 0
  VerbsGid gid;         // what belongs to `local`
  ibv_mtu mtu{};        // the largest packet this side takes
  Limits limits;

  // Order matters: queues outlive the queue pairs of endpoints, the channel outlives all ids.
  EventChannelHandle channel;
  std::unique_ptr<CompletionQueue> completions;
  std::unique_ptr<ReceiveQueue> receives;

  Instant now{};                       // of the latest poll_connections()
  std::deque<ConnectionEvent> events;  // not yet returned by poll_connections()
  std::unordered_map<std::uint32_t, VerbsEndpoint*> by_queue_pair;
  std::size_t outstanding = 0;              // requests of all endpoints
  std::size_t outstanding_lazy = 0;         // those that nobody's memory depends on
  std::vector<VerbsEndpoint*> deliverable;  // have completions that poll() can return
  std::vector<VerbsEndpoint*> draining;     // end once their queue pair is empty

  // Built once and refilled for each burst.
  std::array<ibv_send_wr, kBurst> send_requests{};
  std::array<ibv_sge, kBurst> send_elements{};

  std::string describe() const;
};

}  // namespace lochos::verbs
