// The node's connections to its peers: which rail, one at a time for each peer, with fallback.
// Engine thread only.
//
// A connection is found or started by `reach`; when an attempt fails the engine calls `reach` again
// with the kinds it has tried, so that a pair whose verbs do not work goes on over TCP. A kind that
// failed is tried last for some time.
#pragma once

#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "node/edges.h"
#include "node/engine.h"
#include "node/peer_codec.h"

namespace lochos {

class PeerLinks {
 public:
  PeerLinks(std::vector<Rail>& rails, TransportPolicy policy, Duration connect_timeout);

  struct Target {
    NodeId node;
    const std::vector<RailAddress>* rails = nullptr;
    TransportPolicy policy = TransportPolicy::kAuto;
  };
  // A connection to the node, established or being made, of a kind not in `tried_kinds` (bit per
  // TransportKind). Errors: kUnsupported (no common transport), kUnreachable (every kind was
  // tried).
  Result<Connection*> reach(const Target& target, std::uint32_t tried_kinds, Instant now);

  // The peer connected to us.
  Connection& accept(Endpoint* endpoint, std::size_t rail, const NodeId& peer);
  // The peer is who it says; keeps the connection for later pulls.
  void established(Connection& connection, const NodeId& peer);
  // The attempt failed, or the connection ended: forget it. Edges must have been taken off.
  void remove(Connection& connection);
  // The kind does not work with this node for now.
  void note_failure(const Connection& connection, Instant now);

  // Sends in order; queues what the endpoint has no room for.
  void send(Connection& connection, const PeerMessage& message);
  // Tries to send what is queued.
  void flush(Connection& connection);

  std::uint64_t fallbacks() const { return fallbacks_; }
  std::vector<RailAddress> own_rails() const;
  bool empty() const { return connections_.empty(); }

  template <class F>
  void for_each(F&& visit) {
    for (auto& [key, connection] : connections_)
      visit(*connection);
  }

 private:
  bool failed_lately(const NodeId& node, TransportKind kind, Instant now) const;
  void note_fallback(const Target& target, std::string_view why);

  std::vector<Rail>& rails_;
  const TransportPolicy policy_;
  const Duration connect_timeout_;
  std::unordered_map<Connection*, std::unique_ptr<Connection>> connections_;
  std::unordered_map<NodeId, std::vector<Connection*>, NodeIdHash> by_node_;
  std::map<std::pair<NodeId, TransportKind>, Instant> failed_until_;
  std::map<NodeId, bool> told_fallback_;
  std::uint64_t fallbacks_ = 0;
};

}  // namespace lochos
