#include "scheduler/reduce_planner.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

namespace lochos {
namespace {

using namespace std::chrono_literals;
using Slot = ReducePlan::Slot;

constexpr std::uint32_t kNobody = 0;

// What a slot's node has been told.
struct Wiring {
  std::uint32_t owner = kNobody;
  std::vector<std::uint32_t> sources;  // ascending
  std::vector<Slot> children;
  std::uint32_t expected = 0;
  bool root = false;
  bool has_parent = false;
  bool operator==(const Wiring& other) const {
    return owner == other.owner && sources == other.sources && children == other.children &&
           expected == other.expected && root == other.root;
  }
  bool complete() const { return expected == sources.size() + children.size(); }
  bool contains(const Wiring& other) const {
    return owner == other.owner &&
           std::includes(sources.begin(), sources.end(), other.sources.begin(),
                         other.sources.end()) &&
           std::includes(children.begin(), children.end(), other.children.begin(),
                         other.children.end());
  }
};

std::map<Slot, Wiring> wiring_of(const ReducePlan& plan) {
  std::map<Slot, Wiring> all;
  for (Slot slot = 0; slot < plan.slots(); ++slot) {
    if (!plan.filled(slot)) continue;
    const auto sources = plan.sources(slot);
    Wiring wiring{plan.owner(slot),    {sources.begin(), sources.end()},
                  plan.children(slot), plan.expected_inputs(slot),
                  plan.is_root(slot),  plan.parent(slot).has_value()};
    std::sort(wiring.sources.begin(), wiring.sources.end());
    all.emplace(slot, std::move(wiring));
  }
  return all;
}

bool among(const std::vector<Slot>& slots, Slot slot) {
  return std::find(slots.begin(), slots.end(), slot) != slots.end();
}

// Drives a plan, and holds what it says against what it was told.
class Driver {
 public:
  explicit Driver(const ReducePlanOptions& options) : options_(options), plan_(options) {}

  void add(std::uint32_t source, std::uint32_t owner) {
    const auto before = wiring_of(plan_);
    const auto changes = plan_.add(source, owner);
    ready_.emplace(source, owner);
    RC_ASSERT(changes.restarted.empty());
    for (const auto& [slot, old] : before) {
      // A sum that is complete and on its way is left alone.
      if (old.complete() && old.has_parent) RC_ASSERT(!among(changes.changed, slot));
    }
    check(before, changes);
  }

  void remove(std::uint32_t source) {
    const auto before = wiring_of(plan_);
    const std::uint32_t depth = plan_.depth();
    std::set<Slot> above;
    for (const auto& [slot, old] : before) {
      if (std::find(old.sources.begin(), old.sources.end(), source) == old.sources.end()) continue;
      for (std::optional<Slot> at = slot; at; at = plan_.parent(*at))
        above.insert(*at);
    }
    const auto changes = plan_.remove(source);
    ready_.erase(source);
    RC_ASSERT(changes.restarted.size() <= depth + 1);
    RC_ASSERT(std::set<Slot>(changes.restarted.begin(), changes.restarted.end()) == above);
    for (const Slot slot : changes.restarted)
      RC_ASSERT(!among(changes.changed, slot));
    check(before, changes);
  }

  const ReducePlan& plan() const { return plan_; }

 private:
  void check(const std::map<Slot, Wiring>& before, const ReducePlan::Changes& changes) const {
    const auto now = wiring_of(plan_);
    check_reported(before, now, changes);
    check_sources(now);
    check_tree(now);
  }

  static void check_reported(const std::map<Slot, Wiring>& before,
                             const std::map<Slot, Wiring>& now,
                             const ReducePlan::Changes& changes) {
    for (const auto& [slot, old] : before) {
      const auto found = now.find(slot);
      const bool lost = found == now.end() || !found->second.contains(old);
      if (lost) RC_ASSERT(among(changes.restarted, slot));
    }
    for (const auto& [slot, wiring] : now) {
      const auto found = before.find(slot);
      if (found != before.end() && found->second == wiring) continue;
      const bool ahead = wiring.root && wiring.children.empty() && !wiring.complete();
      if (!ahead) RC_ASSERT(among(changes.changed, slot) || among(changes.restarted, slot));
    }
    for (const Slot slot : changes.changed)
      RC_ASSERT(now.contains(slot));
  }

  void check_sources(const std::map<Slot, Wiring>& now) const {
    std::vector<std::uint32_t> found;
    for (const auto& [slot, wiring] : now) {
      for (const std::uint32_t source : wiring.sources) {
        RC_ASSERT(ready_.contains(source));
        RC_ASSERT(ready_.at(source) == wiring.owner);
        found.push_back(source);
      }
    }
    std::sort(found.begin(), found.end());
    RC_ASSERT(std::adjacent_find(found.begin(), found.end()) == found.end());
    RC_ASSERT(found == plan_.included());
    RC_ASSERT(found.size() == std::min<std::size_t>(options_.count, ready_.size()));
    RC_ASSERT(plan_.closed() == (found.size() == options_.count));
  }

  void check_tree(const std::map<Slot, Wiring>& now) const {
    std::size_t tops = 0;
    for (const auto& [slot, wiring] : now) {
      RC_ASSERT(wiring.sources.size() + wiring.children.size() <= wiring.expected);
      if (plan_.closed()) RC_ASSERT(wiring.complete());
      for (const Slot child : wiring.children)
        RC_ASSERT(plan_.parent(child) == std::optional(slot));
      const auto parent = plan_.parent(slot);
      if (parent) RC_ASSERT(among(now.at(*parent).children, slot));
      if (!parent) ++tops;
      // Upwards there is an end.
      std::size_t steps = 0;
      for (auto at = parent; at; at = plan_.parent(*at))
        RC_ASSERT(++steps <= now.size());
    }
    if (!plan_.closed()) return;
    RC_ASSERT(tops == 1U);
    RC_ASSERT(plan_.is_root(plan_.root()));
    RC_ASSERT(!plan_.parent(plan_.root()));
  }

  ReducePlanOptions options_;
  ReducePlan plan_;
  std::map<std::uint32_t, std::uint32_t> ready_;  // source, owner
};

// Each on a node of its own.
ReducePlan filled_plan(std::uint32_t count, std::uint32_t degree) {
  ReducePlan plan({.count = count, .degree = degree});
  for (std::uint32_t source = 0; source < count; ++source)
    plan.add(source, source + 1);
  return plan;
}

TEST(ReducePlan, AChainIsInOrderOfArrival) {
  ReducePlan plan({.count = 3, .degree = 1});
  EXPECT_EQ(plan.add(7, 1).changed, std::vector<Slot>{0});
  EXPECT_FALSE(plan.parent(0));
  EXPECT_EQ(plan.add(5, 2).changed, (std::vector<Slot>{1}));
  EXPECT_EQ(plan.parent(0), std::optional<Slot>(1));
  EXPECT_EQ(plan.expected_inputs(1), 2U);
  EXPECT_FALSE(plan.closed());
  plan.add(6, 3);
  EXPECT_TRUE(plan.closed());
  EXPECT_EQ(plan.root(), 2U);
  EXPECT_EQ(plan.owner(2), 3U);
  EXPECT_EQ(plan.depth(), 2U);
}

TEST(ReducePlan, NeighboursOnOneNodeShareASlot) {
  ReducePlan plan({.count = 4, .degree = 1});
  plan.add(0, 1);
  plan.add(1, 1);
  plan.add(2, 2);
  plan.add(3, 1);  // node 1's first sum is on its way
  EXPECT_TRUE(plan.closed());
  EXPECT_EQ(plan.sources(0).size(), 2U);
  EXPECT_EQ(plan.owner(1), 2U);
  EXPECT_EQ(plan.owner(2), 1U);
  EXPECT_EQ(plan.root(), 2U);
  EXPECT_FALSE(plan.filled(3));
}

TEST(ReducePlan, AllOnOneNodeIsNoTree) {
  ReducePlan plan({.count = 5, .degree = 2});
  for (std::uint32_t source = 0; source < 5; ++source)
    plan.add(source, 9);
  EXPECT_TRUE(plan.closed());
  EXPECT_EQ(plan.sources(plan.root()).size(), 5U);
  EXPECT_EQ(plan.expected_inputs(plan.root()), 5U);
  EXPECT_EQ(plan.depth(), 0U);
}

// A slot that gives one of its sources up does not make others lose what they have summed.
TEST(ReducePlan, ALostSharerIsReplacedBelowItsSlot) {
  ReducePlan plan({.count = 8, .degree = 2});
  plan.add(0, 1);
  plan.add(1, 1);
  for (std::uint32_t source = 2; source < 8; ++source)
    plan.add(source, source);
  ASSERT_TRUE(plan.closed());
  const Slot root = plan.root();
  const auto lost = plan.remove(1);
  EXPECT_EQ(lost.restarted.front(), 0U);
  EXPECT_EQ(lost.restarted.back(), root);
  const auto found = plan.add(9, 9);
  EXPECT_TRUE(plan.closed());
  EXPECT_TRUE(found.restarted.empty());
  EXPECT_EQ(plan.root(), root);
  ASSERT_EQ(plan.children(0).size(), 1U);
  EXPECT_EQ(plan.owner(plan.children(0)[0]), 9U);
}

TEST(ReducePlan, TheWantedNodeIsTheRootWheneverItsSourceComes) {
  for (const std::uint32_t degree : {1U, 2U, 3U, 8U}) {
    for (std::uint32_t early = 0; early < 2; ++early) {
      ReducePlan plan({.count = 8, .degree = degree, .wanted_at = 5});
      if (early == 0) {
        EXPECT_TRUE(plan.add(100, 5).changed.empty());
      }
      plan.add(0, 10);
      if (early == 1) plan.add(100, 5);
      for (std::uint32_t source = 1; source < 7; ++source)
        plan.add(source, 10 + source);
      EXPECT_TRUE(plan.closed());
      EXPECT_EQ(plan.owner(plan.root()), 5U);
    }
  }
}

TEST(ReducePlan, OnlyTheFirstGoInAndSparesReplaceThem) {
  ReducePlan plan({.count = 2, .degree = 1});
  plan.add(3, 1);
  plan.add(1, 2);
  EXPECT_TRUE(plan.add(2, 3).changed.empty());
  EXPECT_EQ(plan.included(), (std::vector<std::uint32_t>{1, 3}));
  const auto changes = plan.remove(3);
  EXPECT_EQ(changes.restarted, (std::vector<Slot>{0, 1}));
  EXPECT_EQ(plan.included(), (std::vector<std::uint32_t>{1, 2}));
  EXPECT_EQ(plan.owner(0), 3U);
  plan.remove(1);
  EXPECT_FALSE(plan.closed());
}

RC_GTEST_PROP(ReducePlan, EarlyObjectsMeetEarly, ()) {
  const auto count = *rc::gen::inRange<std::uint32_t>(1, 200);
  const auto degree = *rc::gen::inRange<std::uint32_t>(1, count + 1);
  const ReducePlan plan = filled_plan(count, degree);
  // The k-th to come has the k-th slot; [first, last] of a subtree are neighbours, its first
  // child's before the slot, the others' after it.
  std::vector<Slot> low(count), high(count);
  std::vector<Slot> by_depth(count);
  std::iota(by_depth.begin(), by_depth.end(), 0U);
  const auto level = [&](Slot slot) {
    std::uint32_t steps = 0;
    for (auto at = plan.parent(slot); at; at = plan.parent(*at))
      ++steps;
    return steps;
  };
  std::stable_sort(by_depth.begin(), by_depth.end(),
                   [&](Slot a, Slot b) { return level(a) > level(b); });
  for (const Slot slot : by_depth) {
    RC_ASSERT(plan.sources(slot).size() == 1U);
    RC_ASSERT(plan.sources(slot)[0] == slot);
    const auto children = plan.children(slot);
    RC_ASSERT(children.size() <= degree);
    RC_ASSERT(plan.children_before(slot) == std::min<std::size_t>(1, children.size()));
    low[slot] = high[slot] = slot;
    for (std::size_t i = 0; i < children.size(); ++i) {
      if (i == 0) {
        RC_ASSERT(high[children[i]] + 1 == slot);
        low[slot] = low[children[i]];
      } else {
        RC_ASSERT(low[children[i]] == high[slot] + 1);
        high[slot] = high[children[i]];
      }
    }
  }
  RC_ASSERT(low[plan.root()] == 0U);
  RC_ASSERT(high[plan.root()] == count - 1);
}

RC_GTEST_PROP(ReducePlan, ItIsNoDeeperThanItMustBe, ()) {
  const auto count = *rc::gen::inRange<std::uint32_t>(1, 400);
  const auto degree = *rc::gen::inRange<std::uint32_t>(1, count + 1);
  std::uint64_t covered = 1, width = 1;
  std::uint32_t levels = 0;
  while (covered < count) {
    width *= degree;
    covered += width;
    ++levels;
  }
  RC_ASSERT(filled_plan(count, degree).depth() == levels);
}

RC_GTEST_PROP(ReducePlan, ByIndexTheOrderOfArrivalDoesNotMatter, ()) {
  const auto count = *rc::gen::inRange<std::uint32_t>(1, 60);
  const auto degree = *rc::gen::inRange<std::uint32_t>(1, count + 1);
  Driver driver({.count = count, .degree = degree, .by_index = true});
  std::vector<std::uint32_t> left(count);
  std::iota(left.begin(), left.end(), 0U);
  while (!left.empty()) {
    const auto at = left.begin() + *rc::gen::inRange<std::ptrdiff_t>(0, std::ssize(left));
    driver.add(*at, 1 + *at % 3);
    left.erase(at);
  }
  const ReducePlan in_order = filled_plan(count, degree);
  for (Slot slot = 0; slot < count; ++slot) {
    RC_ASSERT(driver.plan().sources(slot)[0] == slot);
    RC_ASSERT(driver.plan().children(slot) == in_order.children(slot));
  }
}

RC_GTEST_PROP(ReducePlan, ItHoldsTogetherWhateverComesAndGoes, ()) {
  const auto count = *rc::gen::inRange<std::uint32_t>(1, 20);
  const auto degree = *rc::gen::inRange<std::uint32_t>(1, count + 1);
  const auto nodes = *rc::gen::inRange<std::uint32_t>(1, 12);
  const auto wanted_at = *rc::gen::inRange<std::uint32_t>(0, nodes + 1);
  const auto bias = *rc::gen::inRange<std::uint32_t>(30, 95);  // of adding
  Driver driver({.count = count, .degree = degree, .wanted_at = wanted_at});
  std::vector<std::uint32_t> ready;
  std::uint32_t next = 0;
  for (int step = 0; step < 80; ++step) {
    if (ready.empty() || *rc::gen::inRange<std::uint32_t>(0, 100) < bias) {
      ready.push_back(next);
      driver.add(next++, *rc::gen::inRange<std::uint32_t>(1, nodes + 1));
    } else {
      const auto at = ready.begin() + *rc::gen::inRange<std::ptrdiff_t>(0, std::ssize(ready));
      driver.remove(*at);
      ready.erase(at);
    }
  }
}

RC_GTEST_PROP(ReducePlan, ByIndexASourceComesBackToItsSlot, ()) {
  const auto count = *rc::gen::inRange<std::uint32_t>(1, 20);
  const auto degree = *rc::gen::inRange<std::uint32_t>(1, count + 1);
  Driver driver({.count = count, .degree = degree, .by_index = true});
  std::set<std::uint32_t> ready;
  for (int step = 0; step < 60; ++step) {
    const auto source = *rc::gen::inRange<std::uint32_t>(0, count);
    if (ready.erase(source) != 0) {
      driver.remove(source);
    } else {
      ready.insert(source);
      driver.add(source, *rc::gen::inRange<std::uint32_t>(1, 6));
      RC_ASSERT(driver.plan().sources(source)[0] == source);
    }
  }
}

TEST(ReduceDegree, LargeObjectsGoThroughAChainAndSmallOnesThroughAStar) {
  EXPECT_EQ(reduce_degree(64 << 20, {100us, 60e6}, 8), 1U);
  EXPECT_EQ(reduce_degree(64, {100us, 60e6}, 8), 8U);
  EXPECT_EQ(reduce_degree(1 << 20, {1ms, 1e9}, 100), 3U);
}

TEST(ReduceDegree, CostsAreThoseOfTheModel) {
  const LinkEstimate link{1ms, 1e6};
  EXPECT_NEAR(reduce_seconds(1'000'000, link, 16, 1), 0.016 + 1, 1e-9);
  EXPECT_NEAR(reduce_seconds(1'000'000, link, 16, 4), 0.002 + 4, 1e-9);
  EXPECT_NEAR(reduce_seconds(1'000'000, link, 16, 16), 0.001 + 16, 1e-9);
}

RC_GTEST_PROP(ReduceDegree, NoOtherDegreeIsBetter, ()) {
  // Sizes of every magnitude.
  const auto size = *rc::gen::inRange<std::uint64_t>(0, 256) << *rc::gen::inRange(0, 24);
  const auto sources = *rc::gen::inRange<std::uint32_t>(1, 3000);
  const LinkEstimate link{
      Duration(*rc::gen::inRange<std::int64_t>(1, 10'000'000)),
      static_cast<double>(*rc::gen::inRange<std::int64_t>(1'000'000, 1LL << 34))};
  const std::uint32_t chosen = reduce_degree(size, link, sources);
  RC_ASSERT(chosen >= 1U);
  RC_ASSERT(chosen <= sources);
  const double best = reduce_seconds(size, link, sources, chosen);
  for (std::uint32_t degree = 1; degree <= sources; ++degree)
    RC_ASSERT(best <= reduce_seconds(size, link, sources, degree) * 1.0001);
}

}  // namespace
}  // namespace lochos
