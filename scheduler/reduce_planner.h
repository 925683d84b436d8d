// Who adds what to whose stream in one reduce, decided as its sources become ready. Pure: no I/O,
// no clock. One thread.
//
// The tree has `count` slots and degree d; the slots are numbered along its generalised in-order
// traversal (first child's subtree, the node, second child's subtree, …), and the next source to
// become ready gets the next slot: early objects meet early, and the last to arrive sits near the
// root. Degree 1 is a chain in order of arrival. (Source of the algorithm: Hoplite, SIGCOMM 2021.)
//
// Sources of one node that arrive one after the other share a slot while nobody takes in its sum
// yet, so that they are combined before they leave the node. Then fewer than `count` slots are
// used: the last ones of the traversal stay empty, and what would be below an empty slot hangs
// below its nearest filled ancestor.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "scheduler/link_model.h"

namespace lochos {

// Estimated time until n objects of `size` bytes are reduced with degree d (latency L, bandwidth
// B):
//     T(1) = n·L + S/B      T(d) = L·log_d n + d·S/B      T(n) = L + n·S/B
double reduce_seconds(std::uint64_t size, const LinkEstimate& link, std::uint32_t sources,
                      std::uint32_t degree);
// The degree in 1 … n with the smallest reduce_seconds.
std::uint32_t reduce_degree(std::uint64_t size, const LinkEstimate& link, std::uint32_t sources);

struct ReducePlanOptions {
  std::uint32_t count = 1;   // sources that go in
  std::uint32_t degree = 1;  // 1 … count
  // Slots by the index of the source instead of by arrival, one source a slot: the same tree
  // whatever the order of arrival. REQUIRES: count is the number of all sources.
  bool by_index = false;
  // The node where the result is wanted (0: anywhere). In a chain its sources are kept for the last
  // slot, the root, so that the result is made there. REQUIRES, if not 0: count is the number of
  // all sources, and at least one of them is likely to be of that node.
  std::uint32_t wanted_at = 0;
};

class ReducePlan {
 public:
  using Slot = std::uint32_t;

  // What a call changed. A changed slot has other inputs than before (more children, or another
  // number of expected ones). A restarted one has lost something that its sum already contains: it
  // must begin anew, and so must everything above it; it is not listed under `changed` too.
  struct Changes {
    std::vector<Slot> changed;
    std::vector<Slot> restarted;
  };

  explicit ReducePlan(const ReducePlanOptions& options);

  // Source `source` (its index in the request) is ready on node `owner`. Beyond `count` it is a
  // spare, which takes the place of one that is removed.
  Changes add(std::uint32_t source, std::uint32_t owner);
  // The source, or its node, is gone. A spare takes its place if there is one. Siblings of the
  // slots on the path to the root keep their work.
  Changes remove(std::uint32_t source);

  // All `count` sources are in: the shape is final (until a remove).
  bool closed() const;
  // The slot whose sum is the result. REQUIRES: closed().
  Slot root() const;
  // Whether the slot's sum is the result, whatever else may come.
  bool is_root(Slot slot) const;

  bool filled(Slot slot) const;
  std::uint32_t owner(Slot slot) const;                     // REQUIRES: filled
  std::span<const std::uint32_t> sources(Slot slot) const;  // in the order to combine
  // Filled slots whose sums go into this one, in the order to combine (before its own sources those
  // of earlier slots, after them those of later ones: see `children_before`).
  std::vector<Slot> children(Slot slot) const;
  // How many of children() come before the slot's own sources in the traversal.
  std::uint32_t children_before(Slot slot) const;
  // Streams that go into the sum: sources and children, including children that are not filled yet.
  std::uint32_t expected_inputs(Slot slot) const;
  std::optional<Slot> parent(Slot slot) const;  // nearest filled ancestor
  std::uint32_t slots() const;                  // size of the tree
  std::uint32_t depth() const;                  // edges from the deepest filled slot to the root
  // The sources that are in, ascending; those that are ready but spare are not among them.
  std::vector<std::uint32_t> included() const;

 private:
  struct Node {
    std::optional<Slot> parent;  // in the full tree
    std::vector<Slot> children;  // in the full tree, in the order of the traversal
    bool filled = false;
    std::uint32_t owner = 0;
    std::vector<std::uint32_t> sources;
  };
  struct Spare {
    std::uint32_t source;
    std::uint32_t owner;
  };

  void build();
  Slot choose_slot(std::uint32_t source, std::uint32_t owner) const;
  void place(std::uint32_t source, std::uint32_t owner, Changes& changes);
  void collect(Slot slot, std::vector<Slot>& tops) const;
  bool may_be_shared(Slot slot, std::uint32_t owner) const;

  ReducePlanOptions options_;
  std::vector<Node> nodes_;               // by slot
  std::set<Slot> holes_;                  // emptied by removals
  Slot next_ = 0;                         // the first slot that was never filled
  std::map<std::uint32_t, Slot> placed_;  // by source
  std::deque<Spare> spares_;
};

}  // namespace lochos
