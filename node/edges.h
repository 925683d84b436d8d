// One transfer of one object from a parent to a child, seen from either end. Engine thread only.
// Plain data.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "base/clock.h"
#include "base/node_id.h"
#include "directory/messages.h"
#include "node/local_object.h"
#include "transport/transport.h"

namespace lochos {

struct Connection;

// We are the child.
struct IncomingEdge {
  enum class State : std::uint8_t {
    kConnecting,
    kPulling,
    kStopping,  // CancelPull sent or connection closing; the slot and the buffer are not free
                // before it is over
  };
  std::uint32_t slot = 0;  // the immediate of its chunks
  EdgeNumber number = 0;
  NodeId assigned_to;  // who we were then; after a re-join the directory does not know this edge
  LocalObject* object = nullptr;  // referenced
  NodeId parent;
  std::vector<RailAddress> rails;
  TransportPolicy parent_policy = TransportPolicy::kAuto;
  Connection* connection = nullptr;
  State state = State::kConnecting;
  std::uint64_t first = 0;  // where this edge began
  std::uint64_t chunk = 0;
  bool expected = false;  // the parent may get the object only after our pull
  Instant started{};
  std::uint32_t tried_kinds = 0;  // bit per TransportKind
  bool seek_another = false;      // kStopping: ask the directory for another parent when it is over
  Errc reason = Errc::kConnectionLost;
};

// We are the parent.
struct OutgoingEdge {
  EdgeNumber number = 0;
  std::uint32_t slot = 0;         // the child's
  LocalObject* object = nullptr;  // referenced
  Connection* connection = nullptr;
  std::uint64_t next = 0;  // first byte not yet posted
  std::uint64_t chunk = 0;
  std::uint64_t remote_address = 0;
  std::uint64_t remote_key = 0;
  std::uint64_t acknowledged = 0;     // first byte whose write has not completed
  std::uint32_t in_flight_count = 0;  // requests posted and not completed
  bool ready = false;                 // in the list of edges to pump
  bool starved = false;               // the endpoint's queue was full
  bool ended = false;                 // posts nothing more; destroyed when nothing is in flight
};

// A connection to a peer: ours or theirs; edges of both directions share it. `Endpoint::user`
// points to it.
struct Connection {
  Endpoint* endpoint = nullptr;
  std::size_t rail = 0;
  TransportKind kind = TransportKind::kTcp;
  NodeId peer;  // as it introduced itself, or as we looked for it
  bool established = false;
  bool closing = false;
  Duration round_trip{0};  // measured at set-up; 0: not yet
  std::vector<IncomingEdge*> incoming;
  std::vector<OutgoingEdge*> outgoing;
  std::deque<std::vector<std::byte>> outbox;  // control messages the endpoint had no room for
};

}  // namespace lochos
