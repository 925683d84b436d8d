// Random lives of a few nodes and objects, with messages that cross each other, deaths and returns.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "tests/directory/arbitrary_messages.h"
#include "tests/directory/cluster.h"

namespace lochos::test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kObjects = 3;
constexpr std::uint64_t kLarge = 1 << 24;

// A node that keeps the protocol, as the engine does: what it wants, what it pulls, what it has.
struct ModelNode {
  enum class Has { kNothing, kPartial, kComplete };
  struct Object {
    Has has = Has::kNothing;
    Generation generation = 0;
    RequestNumber get = 0;  // outstanding
    RequestNumber put = 0;  // outstanding
    bool filling = false;
    bool leaf = false;
    EdgeNumber edge = 0;  // running
  };
  NodeId id;
  bool alive = true;
  std::map<std::uint32_t, Object> objects;
  std::deque<DirectoryMessage> inbox;
};

class World {
 public:
  World() {
    for (int n = 0; n < 5; ++n) {
      nodes_.emplace_back();
      nodes_.back().id = join({});
    }
    collect();
  }

  void step() {
    ModelNode& node = nodes_[*rc::gen::inRange<std::size_t>(0, nodes_.size())];
    const auto n = *rc::gen::inRange<std::uint32_t>(1, kObjects + 1);
    const int what = *rc::gen::inRange(0, 100);
    if (!node.alive) {
      if (what < 50) come_back(node);
      return;
    }
    ModelNode::Object& object = node.objects[n];
    if (what < 30) {
      read_one(node);
    } else if (what < 45) {
      if (object.has == ModelNode::Has::kNothing && object.get == 0 && object.put == 0) {
        object.leaf = what % 5 == 0;
        object.get = ++request_;
        say(node, Get{.request = object.get, .id = id_of(n), .leaf = object.leaf});
      }
    } else if (what < 55) {
      put(node, n, object);
    } else if (what < 70) {
      finish(node, n, object);
    } else if (what < 78) {
      give_up(node, n, object);
    } else if (what < 83) {
      if (object.get != 0) {
        say(node, CancelGet{.request = object.get, .id = id_of(n)});
        object = {};
      }
    } else if (what < 87) {
      if (object.has == ModelNode::Has::kComplete && !object.filling) {
        say(node, Drop{.id = id_of(n), .generation = object.generation});
        object = {};
      }
    } else if (what < 91) {
      say(node, Erase{.request = ++request_, .id = id_of(n)});
    } else if (what < 95) {
      die(node);
    } else {
      pass(std::chrono::milliseconds(*rc::gen::inRange(0, 1500)));
    }
    check_trees();
  }

  // Everything is read, every get is given up, every object erased: nothing may be left.
  void wind_down() {
    if (std::none_of(nodes_.begin(), nodes_.end(), [](const auto& n) { return n.alive; })) {
      come_back(nodes_.front());
    }
    for (ModelNode& node : nodes_) {
      while (node.alive && !node.inbox.empty())
        read_one(node);
    }
    for (ModelNode& node : nodes_) {
      if (!node.alive) continue;
      for (auto& [n, object] : node.objects) {
        if (object.get != 0) say(node, CancelGet{.request = object.get, .id = id_of(n)});
      }
    }
    for (ModelNode& node : nodes_) {
      if (!node.alive) continue;
      for (std::uint32_t n = 1; n <= kObjects; ++n) {
        say(node, Erase{.request = ++request_, .id = id_of(n)});
      }
      break;
    }
    pass(70s);
    const TableStats stats = cluster_.table.stats();
    RC_ASSERT(stats.objects == 0U);
    RC_ASSERT(stats.edges == 0U);
    RC_ASSERT(stats.copies == 0U);
    RC_ASSERT(stats.entries == 0U);
    RC_ASSERT(stats.timers == 0U);
    RC_ASSERT(stats.inline_bytes == 0U);
  }

 private:
  NodeId join(NodeId previous) { return cluster_.join("", previous); }

  void say(ModelNode& node, const NodeMessage& message) {
    cluster_.say(node.id, message);
    collect();
  }
  void collect() {
    for (ModelNode& node : nodes_) {
      auto& box = cluster_.box(node.id);
      if (node.alive) std::move(box.begin(), box.end(), std::back_inserter(node.inbox));
      box.clear();
    }
  }
  void pass(Duration duration) {
    std::vector<NodeId> alive;
    for (const ModelNode& node : nodes_) {
      if (node.alive) alive.push_back(node.id);
    }
    cluster_.pass(duration, alive);
    collect();
  }
  void die(ModelNode& node) {
    node.alive = false;
    node.inbox.clear();
    node.objects.clear();
    cluster_.die(node.id);
    collect();
  }
  void come_back(ModelNode& node) {
    node.id = join(node.id);
    node.alive = true;
    collect();
  }

  void put(ModelNode& node, std::uint32_t n, ModelNode::Object& object) {
    if (object.has != ModelNode::Has::kNothing || object.get != 0 || object.put != 0) return;
    Put message{.request = ++request_, .id = id_of(n), .name = {}, .size = kLarge};
    message.complete = any<bool>();
    if (*rc::gen::inRange(0, 3) == 0) {
      message.size = 10;
      message.complete = true;
      message.inline_bytes = Bytes(10);
    }
    object.put = message.request;
    object.filling = !message.complete;
    say(node, message);
  }
  void finish(ModelNode& node, std::uint32_t n, ModelNode::Object& object) {
    if (object.filling && object.generation != 0) {
      if (any<bool>()) {
        say(node, Seal{.id = id_of(n), .generation = object.generation});
        object.filling = false;
      } else {
        say(node, Abandon{.id = id_of(n), .generation = object.generation});
        object = {};
      }
    } else if (object.edge != 0) {
      const EdgeDone done{
          .edge = object.edge, .id = id_of(n), .generation = object.generation, .bytes = kLarge};
      object.edge = object.get = 0;
      object.has = ModelNode::Has::kComplete;
      if (object.leaf) object = {};
      say(node, done);
    }
  }
  void give_up(ModelNode& node, std::uint32_t n, ModelNode::Object& object) {
    if (object.edge == 0) return;
    const EdgeFailed failed{.request = object.get,
                            .edge = object.edge,
                            .id = id_of(n),
                            .generation = object.generation,
                            .have_bytes = *rc::gen::inRange<std::uint64_t>(0, kLarge),
                            .reason = any<bool>() ? Errc::kConnectionLost : Errc::kNotFound};
    object.edge = 0;
    say(node, failed);
  }

  void read_one(ModelNode& node) {
    if (node.inbox.empty()) return;
    const DirectoryMessage message = std::move(node.inbox.front());
    node.inbox.pop_front();
    std::visit([&](const auto& m) { read(node, m); }, message);
  }
  template <class T>
  void read(ModelNode&, const T&) {}
  ModelNode::Object* by_get(ModelNode& node, RequestNumber request) {
    for (auto& [n, object] : node.objects) {
      if (object.get == request) return &object;
    }
    return nullptr;  // cancelled meanwhile
  }
  void read(ModelNode& node, const Assign& m) {
    RC_ASSERT(assigned_.insert(m.edge).second);  // each edge is given once
    RC_ASSERT(m.parent != node.id);
    ModelNode::Object* object = by_get(node, m.request);
    if (object == nullptr) return;
    RC_ASSERT(object->edge == 0U);  // one answer a get, until it fails
    object->edge = m.edge;
    object->generation = m.generation;
    object->has = ModelNode::Has::kPartial;
  }
  void read(ModelNode& node, const Inline& m) {
    ModelNode::Object* object = by_get(node, m.request);
    if (object == nullptr) return;
    RC_ASSERT(object->edge == 0U);
    object->get = 0;
    object->generation = m.generation;
    object->has = ModelNode::Has::kComplete;
    if (object->leaf) *object = {};
  }
  void read(ModelNode& node, const PutReply& m) {
    for (auto& [n, object] : node.objects) {
      if (object.put != m.request) continue;
      object.put = 0;
      object.generation = m.generation;
      object.has = ModelNode::Has::kComplete;
    }
  }
  void read(ModelNode& node, const Failed& m) {
    for (auto& [n, object] : node.objects) {
      if (m.request != 0 && (object.put == m.request || object.get == m.request)) object = {};
    }
  }
  void ended(ModelNode& node, const ObjectId& id, Generation generation) {
    for (auto& [n, object] : node.objects) {
      if (id_of(n) == id && object.generation == generation) object = {};
    }
  }
  void read(ModelNode& node, const Deleted& m) { ended(node, m.id, m.generation); }
  void read(ModelNode& node, const Withdrawn& m) { ended(node, m.id, m.generation); }
  void read(ModelNode& node, const EdgeRevoked& m) {
    for (auto& [n, object] : node.objects) {
      if (object.edge == m.edge) give_up(node, n, object);
    }
  }

  // Following parents from any receiver ends at a root, as the directory shows it.
  void check_trees() {
    for (ModelNode& node : nodes_) {
      if (!node.alive) continue;
      for (std::uint32_t n = 1; n <= kObjects; ++n) {
        Actions out;
        cluster_.table.apply(cluster_.now, node.id, Stat{.request = 1, .id = id_of(n)}, out);
        for (const Outgoing& action : out) {
          if (const auto* reply = std::get_if<StatReply>(&action.message)) check_tree(*reply);
        }
      }
      return;
    }
  }
  static void check_tree(const StatReply& reply) {
    std::map<NodeId, NodeId> parents;
    for (const HolderEntry& holder : reply.holders) {
      RC_ASSERT(parents.emplace(holder.node, holder.parent).second);
      if (holder.complete) RC_ASSERT(!holder.parent);
    }
    for (const auto& [node, parent] : parents) {
      std::size_t steps = 0;
      for (NodeId at = node; at; at = parents[at])
        RC_ASSERT(++steps <= reply.holders.size());
      if (parent) RC_ASSERT(parents.contains(parent));
    }
  }

  Cluster cluster_;
  std::vector<ModelNode> nodes_;
  std::set<EdgeNumber> assigned_;
  RequestNumber request_ = 0;
};

RC_GTEST_PROP(TableProperties, NodesThatKeepTheProtocolLeaveNothing, ()) {
  World world;
  const int steps = *rc::gen::inRange(10, 300);
  for (int step = 0; step < steps; ++step)
    world.step();
  world.wind_down();
}

// Nodes that say anything at all: the table stands, and what it believes leaves with them.
RC_GTEST_PROP(TableProperties, NonsenseLeavesNothing, ()) {
  Cluster cluster;
  std::vector<NodeId> nodes;
  for (int n = 0; n < 3; ++n)
    nodes.push_back(cluster.join());
  for (int round = 0; round < 20; ++round) {
    for (NodeMessage& message : one_of_each<NodeMessage>()) {
      if (std::holds_alternative<Leave>(message)) continue;
      std::visit(
          [](auto& m) {
            if constexpr (requires { m.id; }) m.id = id_of(*rc::gen::inRange<std::uint32_t>(1, 4));
            if constexpr (requires { m.generation; })
              m.generation = *rc::gen::inRange<Generation>(1, 9);
            if constexpr (requires { m.edge; }) m.edge = *rc::gen::inRange<EdgeNumber>(1, 30);
            if constexpr (requires { m.inline_bytes; }) {
              if (any<bool>()) m.size = m.inline_bytes.size();
            }
            if constexpr (requires { m.size; }) m.size %= 1 << 20;
          },
          message);
      const NodeId node = nodes[*rc::gen::inRange<std::size_t>(0, nodes.size())];
      if (cluster.table.alive(node)) cluster.say(node, message);
    }
    cluster.pass(std::chrono::milliseconds(*rc::gen::inRange(0, 700)), nodes);
  }
  const NodeId last = cluster.join();
  for (const NodeId& node : nodes)
    cluster.die(node);
  for (std::uint32_t n = 1; n < 4; ++n)
    cluster.say(last, Erase{.request = n, .id = id_of(n)});
  for (int n = 0; n < 70; ++n)
    cluster.pass(1s, {last});
  const TableStats stats = cluster.table.stats();
  RC_ASSERT(stats.copies == 0U);
  RC_ASSERT(stats.entries == 0U);
  RC_ASSERT(stats.waits == 0U);
  RC_ASSERT(stats.barriers == 0U);
  RC_ASSERT(stats.timers == 0U);
}

}  // namespace
}  // namespace lochos::test
