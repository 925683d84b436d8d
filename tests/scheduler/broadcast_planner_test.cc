#include "scheduler/broadcast_planner.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <memory>
#include <set>
#include <vector>

namespace lochos {
namespace {

constexpr std::span<const std::uint32_t> kNone{};

std::size_t depth(const PlanNode& node) {
  std::size_t count = 0;
  for (const PlanNode* at = node.parent(); at != nullptr; at = at->parent())
    ++count;
  return count;
}

// A planner with nodes that are numbered from 1 as they come.
class Forest {
 public:
  PlanNode& node() { return nodes_.emplace_back(); }
  PlanNode& root() {
    PlanNode& added = node();
    planner.add_root(added, number());
    return added;
  }
  PlanNode& receive(std::uint32_t degree, bool leaf = false) {
    PlanNode& added = node();
    PlanNode* parent = planner.choose(added, degree, kNone);
    EXPECT_NE(parent, nullptr);
    planner.attach(added, number(), leaf, *parent, degree);
    return added;
  }
  std::uint32_t number() const { return static_cast<std::uint32_t>(nodes_.size()); }

  BroadcastPlanner planner;

 private:
  std::deque<PlanNode> nodes_;
};

TEST(BroadcastPlanner, NobodyToChoose) {
  BroadcastPlanner planner;
  PlanNode receiver;
  EXPECT_EQ(planner.choose(receiver, 1, kNone), nullptr);
}

TEST(BroadcastPlanner, SimultaneousReceiversFormAChain) {
  Forest forest;
  PlanNode* previous = &forest.root();
  for (int i = 0; i < 100; ++i) {
    PlanNode& receiver = forest.receive(1);
    EXPECT_EQ(receiver.parent(), previous);
    previous = &receiver;
  }
}

TEST(BroadcastPlanner, LateReceiverGetsAnIdleCompleteCopy) {
  Forest forest;
  PlanNode& source = forest.root();
  PlanNode& first = forest.receive(1);
  forest.planner.complete(first, 2);
  std::set<PlanNode*> parents{forest.receive(1).parent(), forest.receive(1).parent()};
  EXPECT_EQ(parents, (std::set<PlanNode*>{&source, &first}));
}

TEST(BroadcastPlanner, TreeFillsLevelByLevel) {
  Forest forest;
  PlanNode& source = forest.root();
  PlanNode& a = forest.receive(2);
  PlanNode& b = forest.receive(2);
  EXPECT_EQ(a.parent(), &source);
  EXPECT_EQ(b.parent(), &source);
  EXPECT_EQ(forest.receive(2).parent(), &a);
  EXPECT_EQ(forest.receive(2).parent(), &a);
  EXPECT_EQ(forest.receive(2).parent(), &b);
}

TEST(BroadcastPlanner, LeavesDoNotBlockAHolder) {
  Forest forest;
  PlanNode& source = forest.root();
  EXPECT_EQ(forest.receive(1, true).parent(), &source);
  PlanNode& relay = forest.receive(1);
  EXPECT_EQ(relay.parent(), &source);
  EXPECT_EQ(forest.receive(1).parent(), &relay);
}

TEST(BroadcastPlanner, OnlyLeavesAreSharedByTheRoots) {
  Forest forest;
  PlanNode& one = forest.root();
  PlanNode& two = forest.root();
  for (int i = 0; i < 10; ++i)
    forest.receive(1, true);
  EXPECT_EQ(one.children(), 5U);
  EXPECT_EQ(two.children(), 5U);
}

TEST(BroadcastPlanner, AvoidedOnlyIfThereIsAnother) {
  Forest forest;
  PlanNode& one = forest.root();
  PlanNode receiver;
  const std::array<std::uint32_t, 1> avoid{1};
  EXPECT_EQ(forest.planner.choose(receiver, 1, avoid), &one);
  PlanNode& two = forest.root();
  EXPECT_EQ(forest.planner.choose(receiver, 1, avoid), &two);
}

TEST(BroadcastPlanner, OrphanedChainIsPutBehindItsGrandparent) {
  Forest forest;
  PlanNode& source = forest.root();
  PlanNode& a = forest.receive(1);
  PlanNode& b = forest.receive(1);
  PlanNode& tail = forest.receive(1);
  std::vector<PlanNode*> orphans;
  forest.planner.remove(a, [&](PlanNode& child) { orphans.push_back(&child); });
  ASSERT_EQ(orphans, std::vector<PlanNode*>{&b});
  PlanNode* parent = forest.planner.choose(b, 1, kNone);
  EXPECT_EQ(parent, &source);
  EXPECT_NE(parent, &tail) << "its own subtree";
}

// ---- any sequence ----

void assert_forest(const std::vector<std::unique_ptr<PlanNode>>& nodes,
                   const std::set<PlanNode*>& attached, const std::set<PlanNode*>& roots) {
  for (const auto& node : nodes) {
    std::size_t steps = 0;
    for (const PlanNode* at = node.get(); at != nullptr; at = at->parent()) {
      RC_ASSERT(++steps <= nodes.size());  // else a cycle
    }
    RC_ASSERT((node->parent() != nullptr) == attached.contains(node.get()));
    if (roots.contains(node.get())) RC_ASSERT(node->parent() == nullptr);
    std::size_t children = 0;
    for (const PlanNode* child = node->first_child(); child != nullptr;
         child = child->next_sibling()) {
      RC_ASSERT(child->parent() == node.get());
      ++children;
    }
    RC_ASSERT(children == node->children());
    if (node->leaf() && attached.contains(node.get())) RC_ASSERT(children == 0U);
  }
}

template <class Set>
PlanNode* pick(const Set& from) {
  const auto index = *rc::gen::inRange<std::size_t>(0, from.size());
  return *std::next(from.begin(), static_cast<std::ptrdiff_t>(index));
}

RC_GTEST_PROP(BroadcastPlanner, NoCycleAndOneParentEachWhateverHappens, ()) {
  BroadcastPlanner planner;
  std::vector<std::unique_ptr<PlanNode>> nodes;
  std::set<PlanNode*> roots, attached, waiting;
  const auto number = [&](PlanNode* wanted) {
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (nodes[i].get() == wanted) return static_cast<std::uint32_t>(i + 1);
    }
    return 0U;
  };
  const auto steps = *rc::gen::inRange(10, 200);
  for (int step = 0; step < steps; ++step) {
    const auto degree = *rc::gen::inRange<std::uint32_t>(1, 4);
    switch (*rc::gen::inRange(0, 8)) {
      case 0:
        nodes.push_back(std::make_unique<PlanNode>());
        planner.add_root(*nodes.back(), number(nodes.back().get()));
        roots.insert(nodes.back().get());
        break;
      case 1:
      case 2:
      case 3:
      case 4: {  // a new receiver, or one that lost its parent
        PlanNode* receiver;
        if (waiting.empty() || *rc::gen::arbitrary<bool>()) {
          nodes.push_back(std::make_unique<PlanNode>());
          receiver = nodes.back().get();
          waiting.insert(receiver);
        } else {
          receiver = pick(waiting);
        }
        const std::array<std::uint32_t, 1> avoid{*rc::gen::inRange<std::uint32_t>(0, 10)};
        PlanNode* parent = planner.choose(*receiver, degree, avoid);
        if (!roots.empty()) RC_ASSERT(parent != nullptr);
        if (parent == nullptr) break;
        const bool leaf = receiver->children() == 0 && *rc::gen::inRange(0, 4) == 0;
        planner.attach(*receiver, number(receiver), leaf, *parent, degree);
        waiting.erase(receiver);
        attached.insert(receiver);
        break;
      }
      case 5:
        if (attached.empty()) break;
        if (PlanNode* done = pick(attached); !done->leaf()) {
          planner.complete(*done, number(done));
          attached.erase(done);
          roots.insert(done);
        }
        break;
      case 6:
        if (attached.empty()) break;
        if (PlanNode* failed = pick(attached)) {
          planner.detach(*failed);
          attached.erase(failed);
          waiting.insert(failed);
        }
        break;
      default: {
        std::set<PlanNode*> all = roots;
        all.insert(attached.begin(), attached.end());
        if (all.empty()) break;
        PlanNode* gone = pick(all);
        planner.remove(*gone, [&](PlanNode& child) {
          attached.erase(&child);
          waiting.insert(&child);
        });
        roots.erase(gone);
        attached.erase(gone);
        std::erase_if(nodes, [&](const auto& node) { return node.get() == gone; });
        break;
      }
    }
    RC_ASSERT(planner.roots() == roots.size());
    assert_forest(nodes, attached, roots);
  }
}

RC_GTEST_PROP(BroadcastPlanner, DepthAndDegreeOfSimultaneousReceivers, ()) {
  const auto degree = *rc::gen::inRange<std::uint32_t>(1, 6);
  const auto count = *rc::gen::inRange<std::size_t>(1, 300);
  Forest forest;
  PlanNode& source = forest.root();
  std::vector<PlanNode*> receivers;
  for (std::size_t i = 0; i < count; ++i)
    receivers.push_back(&forest.receive(degree));
  RC_ASSERT(source.children() <= degree);
  // Levels of a full tree with as many nodes.
  std::size_t levels = 0, width = 1, covered = 0;
  while (covered < count) {
    width *= degree;
    covered += width;
    ++levels;
  }
  for (const PlanNode* receiver : receivers) {
    RC_ASSERT(receiver->children() <= degree);
    RC_ASSERT(depth(*receiver) <= levels);
  }
}

}  // namespace
}  // namespace lochos
