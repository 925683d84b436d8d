// A table and a few nodes that say what a test tells them to; answers are sorted by receiver.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "directory/table.h"

namespace lochos::test {

inline ObjectId id_of(std::uint32_t n) {
  ObjectId id;
  // Spread over the first word, which the hash uses, yet ordered by n.
  for (int i = 0; i < 4; ++i) {
    id.bytes[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(n >> (24 - 8 * i));
  }
  id.bytes[31] = 1;
  return id;
}

inline Bytes bytes_of(std::string_view text) {
  Bytes bytes;
  for (const char c : text)
    bytes.push_back(static_cast<std::byte>(c));
  return bytes;
}

class Cluster {
 public:
  explicit Cluster(TableOptions options = {}) : table(options), options_(options) {}

  NodeId join(std::string name = "", NodeId previous = {}) {
    Actions out;
    Join message;
    message.rails = {{TransportKind::kTcp, "10.0.0.1:" + std::to_string(++ports_)}};
    message.name = std::move(name);
    message.previous = previous;
    const auto node = table.join(now, message, out);
    EXPECT_TRUE(node.has_value());
    sort(out);
    EXPECT_TRUE(take<Joined>(*node).has_value());
    return *node;
  }

  void say(NodeId from, const NodeMessage& message) {
    Actions out;
    table.apply(now, from, message, out);
    sort(out);
  }
  void die(NodeId node) {
    Actions out;
    table.disconnect(now, node, out);
    sort(out);
  }
  // Time passes, deadline by deadline; `alive` send heartbeats.
  void pass(Duration duration, const std::vector<NodeId>& alive = {}) {
    const Instant end = now + duration;
    while (true) {
      for (const NodeId& node : alive)
        say(node, Heartbeat{});
      const Instant next =
          std::min({table.next_deadline(), end, now + options_.heartbeat_interval});
      now = std::max(now, next);
      Actions out;
      table.tick(now, out);
      sort(out);
      if (now >= end) return;
    }
  }

  // The next message to `node`, if it is of this type; it is taken out.
  template <class T>
  std::optional<T> take(NodeId node) {
    auto& box = boxes_[node];
    if (box.empty() || !std::holds_alternative<T>(box.front())) return std::nullopt;
    T message = std::get<T>(box.front());
    box.erase(box.begin());
    return message;
  }
  bool silent(NodeId node) { return boxes_[node].empty(); }
  std::size_t pending(NodeId node) { return boxes_[node].size(); }
  std::vector<DirectoryMessage>& box(NodeId node) { return boxes_[node]; }

  Generation put(NodeId node, std::uint32_t object, std::uint64_t size, bool complete = true) {
    Put message{.request = ++requests, .id = id_of(object), .name = {}, .size = size};
    message.complete = complete;
    if (size <= kInlineObjectBytes) message.inline_bytes = Bytes(size, std::byte{7});
    say(node, message);
    const auto reply = take<PutReply>(node);
    EXPECT_TRUE(reply.has_value()) << "put of object " << object;
    return reply ? reply->generation : 0;
  }
  RequestNumber get(NodeId node, std::uint32_t object, bool leaf = false) {
    say(node, Get{.request = ++requests, .id = id_of(object), .leaf = leaf});
    return requests;
  }
  // A get that must be assigned at once.
  Assign fetch(NodeId node, std::uint32_t object, bool leaf = false) {
    const RequestNumber request = get(node, object, leaf);
    const auto assign = take<Assign>(node);
    EXPECT_TRUE(assign.has_value()) << "get of object " << object << " by " << node.to_string();
    if (!assign) return {};
    EXPECT_EQ(assign->request, request);
    return *assign;
  }
  void done(NodeId node, std::uint32_t object, const Assign& edge) {
    say(node, EdgeDone{.edge = edge.edge,
                       .id = id_of(object),
                       .generation = edge.generation,
                       .bytes = edge.size,
                       .elapsed = std::chrono::milliseconds(1)});
  }
  void failed(NodeId node, std::uint32_t object, const Assign& edge, std::uint64_t have = 0,
              Errc reason = Errc::kConnectionLost) {
    say(node, EdgeFailed{.request = edge.request,
                         .edge = edge.edge,
                         .id = id_of(object),
                         .generation = edge.generation,
                         .have_bytes = have,
                         .reason = reason});
  }
  std::optional<StatReply> stat(NodeId node, std::uint32_t object) {
    say(node, Stat{.request = ++requests, .id = id_of(object)});
    return take<StatReply>(node);
  }
  std::vector<HolderEntry> holders(NodeId node, std::uint32_t object) {
    auto reply = stat(node, object);
    return reply ? std::move(reply->holders) : std::vector<HolderEntry>{};
  }

  Table table;
  Instant now{std::chrono::hours(1)};
  RequestNumber requests = 0;

 private:
  void sort(Actions& out) {
    for (Outgoing& action : out)
      boxes_[action.to].push_back(std::move(action.message));
  }

  TableOptions options_;
  int ports_ = 1000;
  std::map<NodeId, std::vector<DirectoryMessage>> boxes_;
};

}  // namespace lochos::test
