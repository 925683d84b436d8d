// Connections to peers and the transfers over them.
#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/log.h"
#include "node/engine_impl.h"

namespace lochos {
namespace {

// Requests handed to an endpoint in one call.
constexpr std::size_t kBurst = 16;

// How long a parent may take to confirm that it has stopped writing. Then the connection is closed,
// which makes the buffer safe as well but costs the other transfers on it.
constexpr Duration kStopTimeout = std::chrono::seconds(5);

// A parent that fails without having moved a byte is not asked for again at once: first delay, and
// longest.
constexpr Duration kFirstRetryDelay = std::chrono::milliseconds(20);
constexpr Duration kLongestRetryDelay = std::chrono::seconds(1);

// Pulls kept for what is not here yet; a bound on what peers can make this node remember.
constexpr std::size_t kMaxParkedPulls = 4096;

std::uint32_t bit(TransportKind kind) {
  return 1U << static_cast<unsigned>(kind);
}

std::uint64_t context_of(OutgoingEdge& edge) {
  return reinterpret_cast<std::uintptr_t>(&edge);
}

}  // namespace

bool EngineImpl::poll_rail(std::size_t rail) {
  Transport& transport = *rails_[rail].transport;
  const std::size_t events = transport.poll_connections(now_, connection_events_);
  for (std::size_t i = 0; i < events; ++i)
    on_connection_event(rail, connection_events_[i]);
  const std::size_t count = transport.poll(completions_);
  for (std::size_t i = 0; i < count; ++i)
    on_completion(completions_[i]);
  return events + count > 0;
}

// ---- connections ----

void EngineImpl::on_connection_event(std::size_t rail, ConnectionEvent& event) {
  auto* connection = static_cast<Connection*>(event.endpoint->user);
  switch (event.kind) {
    case ConnectionEvent::Kind::kEstablished: {
      if (event.incoming) {
        links_.accept(event.endpoint, rail, event.peer.node);
        return;
      }
      links_.established(*connection, event.peer.node);
      links_.send(*connection, PingMessage{now_.time_since_epoch().count()});
      const std::vector<IncomingEdge*> waiting = connection->incoming;
      for (IncomingEdge* edge : waiting) {
        if (edge->state == IncomingEdge::State::kConnecting) send_pull(*edge);
      }
      return;
    }
    case ConnectionEvent::Kind::kFailed:
    case ConnectionEvent::Kind::kClosed:
      if (connection != nullptr) lose_connection(*connection, event.error);
      return;
  }
}

// The endpoint is drained: no write through it can land any more, so slots and buffers are free.
void EngineImpl::lose_connection(Connection& connection, const Error& error) {
  const bool ours_to_close = connection.closing;
  if (!ours_to_close) {
    links_.note_failure(connection, now_);
    if (!connection.incoming.empty() || !connection.outgoing.empty()) {
      log_warning("connection to {} over {} lost: {}", connection.peer.to_string(),
                  to_string(connection.kind), error.to_string());
    }
  }
  unpark_all(connection);
  const std::vector<OutgoingEdge*> outgoing = std::exchange(connection.outgoing, {});
  for (OutgoingEdge* edge : outgoing) {
    LOCHOS_CHECK(edge->in_flight_count ==
                 0);  // the transport's promise: completions come before kClosed
    destroy_outgoing(*edge);
  }

  const std::vector<IncomingEdge*> incoming = std::exchange(connection.incoming, {});
  for (IncomingEdge* edge : incoming) {
    edge->connection = nullptr;
    const bool never_connected = edge->state == IncomingEdge::State::kConnecting;
    if (never_connected) {
      connect_edge(*edge);  // over another kind, if there is one
      continue;
    }
    if (edge->state == IncomingEdge::State::kPulling) {
      edge->seek_another = true;
      edge->reason = Errc::kConnectionLost;
    }
    end_incoming(*edge);
  }
  links_.remove(connection);
}

void EngineImpl::close_connection(Connection& connection) {
  if (std::exchange(connection.closing, true)) return;
  connection.endpoint->close();
}

void EngineImpl::on_completion(const Completion& completion) {
  auto* connection = static_cast<Connection*>(completion.endpoint->user);
  switch (completion.kind) {
    case Completion::Kind::kImmediate:
      if (connection != nullptr) on_chunk(*connection, completion.immediate);
      return;
    case Completion::Kind::kMessage:
      if (connection != nullptr) on_peer_message(*connection, completion.message);
      return;
    case Completion::Kind::kRequest:
      break;
  }
  if (completion.context != 0) {
    auto& edge = *reinterpret_cast<OutgoingEdge*>(static_cast<std::uintptr_t>(completion.context));
    const std::uint64_t length = std::min(edge.chunk, edge.object->size - edge.acknowledged);
    edge.acknowledged += length;
    --edge.in_flight_count;
    if (completion.status == Completion::Status::kDone) bytes_sent_ += length;
    if (edge.ended && edge.in_flight_count == 0 && edge.connection != nullptr) {
      destroy_outgoing(edge);
    } else {
      make_ready(edge);
    }
  }
  // The endpoint has room again: for queued messages first, then for whoever was refused.
  if (connection == nullptr || connection->closing) return;
  if (!connection->outbox.empty()) links_.flush(*connection);
  for (OutgoingEdge* other : connection->outgoing) {
    if (std::exchange(other->starved, false)) make_ready(*other);
  }
}

void EngineImpl::on_peer_message(Connection& connection, std::span<const std::byte> bytes) {
  const auto message = decode_peer_message(bytes);
  if (!message) {
    log_warning("peer {} sent nonsense, closing the connection: {}", connection.peer.to_string(),
                message.error().to_string());
    close_connection(connection);
    return;
  }
  std::visit([&](const auto& m) { on_peer(connection, m); }, *message);
}

void EngineImpl::on_peer(Connection& connection, const PingMessage& m) {
  links_.send(connection, PongMessage{m.time});
}

void EngineImpl::on_peer(Connection& connection, const PongMessage& m) {
  const Duration elapsed = now_.time_since_epoch() - Duration(m.time);
  if (elapsed > Duration::zero() && elapsed < std::chrono::minutes(1))
    connection.round_trip = elapsed;
}

// ---- as the child ----

std::size_t EngineImpl::find_slot() {
  if (free_slots_.empty()) {
    slots_.emplace_back();
    return slots_.size() - 1;
  }
  const std::uint32_t slot = free_slots_.back();
  free_slots_.pop_back();
  return slot;
}

void EngineImpl::start_edge(LocalObject& object, const Assign& assignment) {
  const std::size_t slot = find_slot();
  slots_[slot] = std::make_unique<IncomingEdge>();
  IncomingEdge& edge = *slots_[slot];
  edge.slot = static_cast<std::uint32_t>(slot);
  edge.number = assignment.edge;
  edge.assigned_to = node_;
  edge.object = &object;
  edge.parent = assignment.parent;
  edge.rails = assignment.rails;
  edge.parent_policy = assignment.parent_policy;
  edge.chunk = assignment.chunk_bytes;
  edge.expected = assignment.uncommitted;  // its maker may hear of it after us
  edge.first = object.valid;
  edge.started = now_;
  object.incoming = &edge;
  index_.add_reference(object);
  ++edges_started_;
  connect_edge(edge);
}

void EngineImpl::connect_edge(IncomingEdge& edge) {
  auto reached =
      links_.reach({edge.parent, &edge.rails, edge.parent_policy}, edge.tried_kinds, now_);
  if (!reached) {
    if (reached.error().code() == Errc::kUnsupported && edge.object->feeds == nullptr) {
      // No other parent can help with a policy that excludes everybody: the readers must know.
      LocalObject& object = *edge.object;
      const Error error = reached.error();
      edge.seek_another = false;
      end_incoming(edge);
      withdraw(object, error);
      return;
    }
    edge.seek_another = true;
    edge.reason = reached.error().code();
    end_incoming(edge);
    return;
  }
  Connection& connection = **reached;
  edge.connection = &connection;
  edge.state = IncomingEdge::State::kConnecting;
  edge.tried_kinds |= bit(connection.kind);
  connection.incoming.push_back(&edge);
  if (connection.established) send_pull(edge);
}

void EngineImpl::send_pull(IncomingEdge& edge) {
  LocalObject& object = *edge.object;
  Connection& connection = *edge.connection;
  const Region& region = region_of(object, connection.rail);
  // A chunk is one write. Both sides must cut alike: the child says how.
  const std::uint64_t limit = rails_[connection.rail].transport->limits().max_transfer_bytes;
  edge.chunk = std::min(edge.chunk, limit);
  edge.state = IncomingEdge::State::kPulling;
  edge.first = object.valid;
  links_.send(
      connection,
      PullMessage{edge.slot, edge.number, object.id, object.generation, edge.first, edge.chunk,
                  region.remote_address(index_.data(object)), region.remote_key(), edge.expected});
}

void EngineImpl::on_chunk(Connection& connection, std::uint32_t slot) {
  IncomingEdge* edge = slot < slots_.size() ? slots_[slot].get() : nullptr;
  if (edge == nullptr || edge->connection != &connection ||
      edge->state == IncomingEdge::State::kConnecting) {
    log_warning("peer {} wrote to a transfer that is not its own, closing the connection",
                connection.peer.to_string());
    close_connection(connection);
    return;
  }
  LocalObject& object = *edge->object;
  const std::uint64_t arrived = std::min(edge->chunk, object.size - object.valid);
  bytes_received_ += arrived;
  if (edge->state == IncomingEdge::State::kStopping && !edge->seek_another) {
    return;  // nobody wants it; the buffer is kept until the parent has stopped
  }
  advance(object, object.valid + arrived);
  if (object.valid == object.size) end_incoming(*edge);
}

void EngineImpl::stop_edge(IncomingEdge& edge, bool seek_another, Errc reason) {
  edge.seek_another = seek_another;
  edge.reason = reason;
  Connection& connection = *edge.connection;
  if (edge.state == IncomingEdge::State::kStopping) {
    if (reason == Errc::kConnectionLost) close_connection(connection);
    return;
  }
  if (edge.state == IncomingEdge::State::kConnecting) {
    // Nothing was asked for yet: nothing can arrive.
    std::erase(connection.incoming, &edge);
    edge.connection = nullptr;
    end_incoming(edge);
    return;
  }
  edge.state = IncomingEdge::State::kStopping;
  if (reason == Errc::kConnectionLost) {
    // The directory declared the parent dead: it will not answer. Only the end of the connection
    // makes the buffer safe.
    close_connection(connection);
  } else {
    links_.send(connection, CancelPullMessage{edge.slot, edge.number});
    timers_.emplace(now_ + kStopTimeout, Timer{std::nullopt, edge.slot, edge.number});
  }
}

void EngineImpl::on_peer(Connection& connection, const PullEndMessage& m) {
  IncomingEdge* edge = m.slot < slots_.size() ? slots_[m.slot].get() : nullptr;
  if (edge == nullptr || edge->connection != &connection || edge->number != m.edge)
    return;  // already over
  if (edge->state == IncomingEdge::State::kPulling) {
    edge->seek_another = true;
    edge->reason = m.reason;
  }
  std::erase(connection.incoming, edge);
  edge->connection = nullptr;
  end_incoming(*edge);
}

void EngineImpl::end_incoming(IncomingEdge& edge) {
  LocalObject& object = *edge.object;
  Duration round_trip{0};
  if (edge.connection != nullptr) {
    round_trip = edge.connection->round_trip;
    std::erase(edge.connection->incoming, &edge);
  }
  object.incoming = nullptr;
  const std::unique_ptr<IncomingEdge> owner = std::move(slots_[edge.slot]);
  free_slots_.push_back(edge.slot);

  const bool alive = object.state == State::kFetching;
  if (object.feeds != nullptr) {
    if (edge.seek_another && object.valid < object.size) on_stream_failure(object, edge);
  } else if (alive && object.valid == object.size) {
    outstanding_.erase(std::exchange(object.directory_request, 0));
    if (edge.assigned_to == node_) {
      directory_->send(EdgeDone{edge.number, object.id, object.generation, object.size - edge.first,
                                now_ - edge.started, Duration{0}, round_trip});
    } else if (object.into == 0) {
      directory_->send(
          Hold{object.id, object.generation, object.name, object.size, true, object.origin, {}});
    }
    if (object.into != 0) {
      complete_into(object);
    } else if (!object.uncommitted) {  // else Committed will come
      complete(object);
    }
  } else if (alive && edge.seek_another) {
    ++edges_failed_;
    ask_again(object, edge);
  } else if (object.into != 0) {
    answer_held_back(object);
  }
  index_.drop_reference(object);
}

// The first failure is reported at once; failures without progress in between ever later, so that a
// parent that cannot be reached is not tried in a tight loop until the directory has found out.
void EngineImpl::ask_again(LocalObject& object, const IncomingEdge& edge) {
  object.failed_edge = {edge.number, edge.assigned_to, edge.reason};
  object.fruitless = object.valid > edge.first ? 0 : object.fruitless + 1;
  if (object.fruitless <= 1) {
    report_failed_edge(object);
    return;
  }
  const auto doublings = std::min<std::uint32_t>(object.fruitless - 2, 6);
  object.ask_at = now_ + std::min(kFirstRetryDelay * (1 << doublings), kLongestRetryDelay);
  timers_.emplace(object.ask_at, Timer{object.id, 0, 0});
}

void EngineImpl::report_failed_edge(LocalObject& object) {
  object.ask_at = kNever;
  const FailedEdge& failed = object.failed_edge;
  if (failed.assigned_to != node_ || object.directory_request == 0) {
    request_object(object);  // this directory has never heard of the edge
    return;
  }
  directory_->send(EdgeFailed{object.directory_request, failed.number, object.id, object.generation,
                              object.valid, failed.reason});
}

void EngineImpl::advance(LocalObject& object, std::uint64_t valid) {
  object.valid = valid;
  for (OutgoingEdge* edge : object.outgoing)
    make_ready(*edge);
  for (ReduceWork* work : object.consumers)
    make_ready(*work);
  if (!object.waiters.empty()) progressed_.insert(&object);
}

// ---- as the parent ----

void EngineImpl::on_peer(Connection& connection, const PullMessage& m) {
  LocalObject* object = index_.find(m.id);
  const auto refuse = [&](Errc reason) {
    links_.send(connection, PullEndMessage{m.slot, m.edge, reason});
  };
  const bool have = object != nullptr && object->into == 0 &&
                    (object->state == State::kComplete || object->state == State::kFetching ||
                     object->state == State::kFilling);
  if (!have || object->generation != m.generation) {
    const bool may_come =
        object == nullptr || object->state == State::kWanted || object->generation < m.generation;
    if (m.expected && may_come && parked_.size() < kMaxParkedPulls) {
      park(connection, m);
    } else {
      refuse(Errc::kNotFound);
    }
    return;
  }
  const std::uint64_t limit = rails_[connection.rail].transport->limits().max_transfer_bytes;
  if (m.chunk == 0 || m.chunk > limit || m.first >= object->size) {
    refuse(Errc::kInvalidArgument);
    return;
  }
  auto owner = std::make_unique<OutgoingEdge>();
  OutgoingEdge& edge = *owner;
  edge.number = m.edge;
  edge.slot = m.slot;
  edge.object = object;
  edge.connection = &connection;
  edge.next = m.first;
  edge.acknowledged = m.first;
  edge.chunk = m.chunk;
  edge.remote_address = m.address;
  edge.remote_key = m.key;
  outgoing_.emplace(&edge, std::move(owner));
  object->outgoing.push_back(&edge);
  connection.outgoing.push_back(&edge);
  index_.add_reference(*object);
  make_ready(edge);
}

void EngineImpl::on_peer(Connection& connection, const CancelPullMessage& m) {
  for (OutgoingEdge* edge : connection.outgoing) {
    if (edge->slot != m.slot || edge->number != m.edge) continue;
    end_outgoing(*edge, Errc::kCancelled);
    return;
  }
  // It is parked, or has ended by itself; the child may still wait for the word.
  unpark(connection, m.slot, m.edge);
  links_.send(connection, PullEndMessage{m.slot, m.edge, Errc::kCancelled});
}

void EngineImpl::make_ready(OutgoingEdge& edge) {
  if (edge.ready || edge.ended) return;
  edge.ready = true;
  ready_edges_.push_back(&edge);
}

// Round-robin: each edge that can go on posts one burst, until none can.
void EngineImpl::pump() {
  while (!ready_edges_.empty()) {
    std::swap(ready_edges_, pumping_);
    for (OutgoingEdge* edge : pumping_) {
      if (edge == nullptr) continue;
      edge->ready = false;
      if (pump_edge(*edge)) make_ready(*edge);
    }
    pumping_.clear();
  }
}

// Returns whether the edge could go on at once.
bool EngineImpl::pump_edge(OutgoingEdge& edge) {
  Connection& connection = *edge.connection;
  LocalObject& object = *edge.object;
  if (edge.ended || connection.closing) return false;
  if (!connection.outbox.empty()) {
    edge.starved = true;  // the queue is full; messages go first when it has room
    return false;
  }
  const Region& region = region_of(object, connection.rail);
  std::byte* const data = index_.data(object);

  std::array<WorkRequest, kBurst> requests;
  std::size_t count = 0;
  std::uint64_t next = edge.next;
  std::uint64_t in_flight = edge.next - edge.acknowledged;
  while (count < kBurst && next < object.size) {
    const std::uint64_t length = std::min(edge.chunk, object.size - next);
    if (next + length > object.valid) break;  // not there yet
    if (in_flight > 0 && in_flight + length > options_.edge_window_bytes)
      break;  // one chunk is always allowed
    WorkRequest& request = requests[count++];
    request.opcode = Opcode::kWriteImmediate;
    request.immediate = edge.slot;
    request.local = data + next;
    request.length = length;
    request.region = &region;
    request.remote_address = edge.remote_address + next;
    request.remote_key = edge.remote_key;
    request.context = context_of(edge);
    next += length;
    in_flight += length;
  }
  if (count == 0) return false;
  const std::size_t accepted = connection.endpoint->post({requests.data(), count});
  for (std::size_t i = 0; i < accepted; ++i) {
    edge.next += requests[i].length;
    ++edge.in_flight_count;
  }
  if (edge.next == object.size) {
    end_outgoing(edge, std::nullopt);  // all posted; the child counts for itself
    return false;
  }
  if (accepted < count) {
    edge.starved = true;
    return false;
  }
  return count == kBurst;
}

// Nothing more will be posted. The word to the child comes after the last write on the same
// connection.
void EngineImpl::end_outgoing(OutgoingEdge& edge, std::optional<Errc> tell_child) {
  if (edge.ended) return;
  edge.ended = true;
  if (tell_child)
    links_.send(*edge.connection, PullEndMessage{edge.slot, edge.number, *tell_child});
  if (edge.in_flight_count == 0) destroy_outgoing(edge);
}

void EngineImpl::destroy_outgoing(OutgoingEdge& edge) {
  if (edge.connection != nullptr) std::erase(edge.connection->outgoing, &edge);
  if (edge.ready) {
    std::replace(ready_edges_.begin(), ready_edges_.end(), &edge,
                 static_cast<OutgoingEdge*>(nullptr));
    std::replace(pumping_.begin(), pumping_.end(), &edge, static_cast<OutgoingEdge*>(nullptr));
  }
  LocalObject& object = *edge.object;
  std::erase(object.outgoing, &edge);
  outgoing_.erase(&edge);
  stop_if_unwanted(object);
  index_.drop_reference(object);
}

}  // namespace lochos
