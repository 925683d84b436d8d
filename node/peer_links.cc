#include "node/peer_links.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/log.h"
#include "scheduler/rail_choice.h"

namespace lochos {
namespace {

// How long a kind that failed with a peer is tried last. Long enough that not every get waits for
// the same timeout, short enough that a repaired link is used again soon.
constexpr Duration kAvoidAfterFailure = std::chrono::seconds(10);

std::uint32_t bit(TransportKind kind) {
  return 1U << static_cast<unsigned>(kind);
}

}  // namespace

PeerLinks::PeerLinks(std::vector<Rail>& rails, TransportPolicy policy, Duration connect_timeout)
    : rails_(rails), policy_(policy), connect_timeout_(connect_timeout) {}

Result<Connection*> PeerLinks::reach(const Target& target, std::uint32_t tried_kinds, Instant now) {
  const auto known = by_node_.find(target.node);
  if (known != by_node_.end()) {
    for (Connection* connection : known->second) {
      if (!connection->closing && (tried_kinds & bit(connection->kind)) == 0) return connection;
    }
  }
  auto pairs = choose_rail_pairs(own_rails(), policy_, *target.rails, target.policy);
  if (!pairs) return fail(pairs.error());
  std::erase_if(*pairs, [&](const RailPair& pair) { return (tried_kinds & bit(pair.kind)) != 0; });
  if (pairs->empty()) {
    return fail(
        Error(Errc::kUnreachable, "every transport was tried").with_peer(target.node.to_string()));
  }
  std::stable_partition(pairs->begin(), pairs->end(), [&](const RailPair& pair) {
    return !failed_lately(target.node, pair.kind, now);
  });
  const RailPair& chosen = pairs->front();
  const auto address = SocketAddress::parse((*target.rails)[chosen.peer].address);
  LOCHOS_CHECK(address.has_value());  // choose_rail_pairs has parsed it

  if (chosen.kind == TransportKind::kTcp) {
    if ((tried_kinds & bit(TransportKind::kVerbs)) != 0 ||
        failed_lately(target.node, TransportKind::kVerbs, now)) {
      note_fallback(target, "verbs did not work");
    } else if (falls_back_to_tcp(own_rails(), policy_, *target.rails, target.policy)) {
      note_fallback(target, "only one side has verbs");
    }
  }

  auto owner = std::make_unique<Connection>();
  Connection* connection = owner.get();
  connection->rail = chosen.own;
  connection->kind = chosen.kind;
  connection->peer = target.node;
  connection->endpoint =
      rails_[chosen.own].transport->connect(*address, saturating_add(now, connect_timeout_));
  connection->endpoint->user = connection;
  connections_.emplace(connection, std::move(owner));
  by_node_[target.node].push_back(connection);
  return connection;
}

Connection& PeerLinks::accept(Endpoint* endpoint, std::size_t rail, const NodeId& peer) {
  auto owner = std::make_unique<Connection>();
  Connection& connection = *owner;
  connection.endpoint = endpoint;
  connection.rail = rail;
  connection.kind = rails_[rail].transport->kind();
  connection.peer = peer;
  connection.established = true;
  endpoint->user = &connection;
  connections_.emplace(&connection, std::move(owner));
  // A peer that has not joined yet has no number; its connection serves its pulls only.
  if (peer) by_node_[peer].push_back(&connection);
  return connection;
}

void PeerLinks::established(Connection& connection, const NodeId& peer) {
  connection.established = true;
  failed_until_.erase({connection.peer, connection.kind});
  if (peer != connection.peer && peer) {
    log_debug("peer {} introduces itself as {}", connection.peer.to_string(), peer.to_string());
  }
  flush(connection);
}

void PeerLinks::remove(Connection& connection) {
  LOCHOS_CHECK(connection.incoming.empty() && connection.outgoing.empty());
  const auto known = by_node_.find(connection.peer);
  if (known != by_node_.end()) {
    std::erase(known->second, &connection);
    if (known->second.empty()) by_node_.erase(known);
  }
  connections_.erase(&connection);
}

void PeerLinks::note_failure(const Connection& connection, Instant now) {
  std::erase_if(failed_until_, [now](const auto& entry) { return entry.second <= now; });
  failed_until_[{connection.peer, connection.kind}] = now + kAvoidAfterFailure;
}

void PeerLinks::send(Connection& connection, const PeerMessage& message) {
  connection.outbox.push_back(encode(message));
  flush(connection);
}

void PeerLinks::flush(Connection& connection) {
  if (!connection.established || connection.closing) return;
  while (!connection.outbox.empty()) {
    std::vector<std::byte>& bytes = connection.outbox.front();
    WorkRequest request;
    request.opcode = Opcode::kSend;
    request.local = bytes.data();
    request.length = bytes.size();
    request.context = 0;  // no edge: nothing to do when it is sent
    if (connection.endpoint->post({&request, 1}) == 0) return;
    connection.outbox.pop_front();
  }
}

std::vector<RailAddress> PeerLinks::own_rails() const {
  std::vector<RailAddress> rails;
  rails.reserve(rails_.size());
  for (const Rail& rail : rails_)
    rails.push_back({rail.transport->kind(), rail.listen_address.to_string()});
  return rails;
}

bool PeerLinks::failed_lately(const NodeId& node, TransportKind kind, Instant now) const {
  const auto found = failed_until_.find({node, kind});
  return found != failed_until_.end() && found->second > now;
}

void PeerLinks::note_fallback(const Target& target, std::string_view why) {
  ++fallbacks_;
  if (!std::exchange(told_fallback_[target.node], true)) {
    log_warning("transfers from {} use TCP: {} (policy {})", target.node.to_string(), why,
                to_string(policy_));
  }
}

}  // namespace lochos
