// Who adds what to whose stream in one reduce, decided as its sources become ready. Pure: no I/O,
// no clock. One thread.
//
// The tree has `count` slots and degree d; the slots are numbered along its generalised in-order
// traversal (first child's subtree, the node, second child's subtree, …), and the next source to
// become ready gets the next slot: early objects meet early, and the last to arrive sits near the
// root. Degree 1 is a chain in order of arrival. (Source of the algorithm: Hoplite, SIGCOMM 2021.)
//
// Sources of one node that arrive one after the other share a slot while nobody takes in its sum
// yet, so that they are combined before they leave the node. Each such source makes the last empty
// slot of the traversal superfluous: it is dropped at once, what is below it moves up, and so the
// shape of what has begun never changes. A place that a removal left empty is filled before new
// slots are; where the slot still has other sources, a source of another node gets a dropped slot
// below it.
//
// If the node that wants the result has no source in the root slot, it fetches the target from the
// root's node like any other object; the plan has no slot for that.
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
// The degree in 1 … n with the smallest reduce_seconds. The same bits for the same input
// (`by_index`) need the same degree, too: then do not take it from what was measured.
std::uint32_t reduce_degree(std::uint64_t size, const LinkEstimate& link, std::uint32_t sources);

struct ReducePlanOptions {
  std::uint32_t count = 1;   // sources that go in
  std::uint32_t degree = 1;  // 1 … count
  // Slots by the index of the source instead of by arrival, one source a slot: the same tree
  // whatever the order of arrival. REQUIRES: count is the number of all sources.
  bool by_index = false;
  // The node where the result is wanted (0: anywhere). Its first source takes the root's slot, if
  // that is still free, and needs no transfer; so do its others until the root has a child. Not
  // with by_index.
  std::uint32_t wanted_at = 0;
};

class ReducePlan {
 public:
  using Slot = std::uint32_t;

  // What a call changed. A changed slot has other inputs than before (more children, or another
  // number of expected ones), or has become the root. A restarted one has lost something that its
  // sum already contains: it must begin anew, and so must everything above it; it is not listed
  // under `changed` too. Restarted are at most depth() + 1 slots (of the plan before the removal):
  // the one that lost a source, and those above it up to the first that is not filled.
  // A root that was filled ahead of its turn is not listed before it has a child.
  struct Changes {
    std::vector<Slot> changed;
    std::vector<Slot> restarted;
  };

  explicit ReducePlan(const ReducePlanOptions& options);

  // Source `source` (its index in the request) is ready on node `owner`. Beyond `count` it is a
  // spare, which takes the place of one that is removed.
  Changes add(std::uint32_t source, std::uint32_t owner);
  // The source, or its node, is gone. A spare takes its place if there is one (so those of a dead
  // node are removed first). Siblings of the slots on the path to the root keep their work.
  // Sources that were not added are ignored, as are those that are added twice.
  Changes remove(std::uint32_t source);

  // All `count` sources are in: the shape is final (until a remove).
  bool closed() const;
  // The slot whose sum is the result. It may still move down while it is not filled.
  Slot root() const;
  // Whether the slot is filled and its sum is the result, whatever else may come.
  bool is_root(Slot slot) const;

  bool filled(Slot slot) const;
  std::uint32_t owner(Slot slot) const;                     // REQUIRES: filled
  std::span<const std::uint32_t> sources(Slot slot) const;  // in the order to combine
  // Filled slots whose sums go into this one, in the order to combine (before its own sources those
  // of earlier slots, after them those of later ones: see `children_before`).
  std::vector<Slot> children(Slot slot) const;
  // How many of children() come before the slot's own sources in the traversal.
  std::uint32_t children_before(Slot slot) const;
  // Streams that go into the sum: sources and children, including those that are not there yet.
  std::uint32_t expected_inputs(Slot slot) const;
  // The slot that takes in this one's sum, if it is filled: parent(child) is `slot` exactly for the
  // children(slot).
  std::optional<Slot> parent(Slot slot) const;
  std::uint32_t slots() const;  // slots are numbered from 0 to this; not all need be used
  std::uint32_t depth() const;  // edges from the deepest filled slot to the root
  // The sources that are in, ascending; those that are ready but spare are not among them.
  std::vector<std::uint32_t> included() const;

 private:
  enum class Use : std::uint8_t { kFresh, kTaken, kDropped };  // taken: was filled, may be empty
  struct Node {
    std::optional<Slot> parent;  // dropped slots are in nobody's way
    std::vector<Slot> children;  // ascending, filled or not
    Use use = Use::kFresh;
    std::uint32_t places = 1;  // for sources; over all slots that are not dropped: count
    std::uint32_t owner = 0;
    std::vector<std::uint32_t> sources;
  };
  struct Spare {
    std::uint32_t source;
    std::uint32_t owner;
  };

  void build();
  Slot take_slot(std::uint32_t source, std::uint32_t owner, Changes& changes);
  std::optional<Slot> take_vacancy(std::uint32_t owner);
  Slot append_below(Slot slot);
  bool root_takes(std::uint32_t owner) const;
  std::optional<Slot> shared_slot(std::uint32_t owner) const;
  void add_place(Slot slot, Changes& changes);
  void drop_last(Changes& changes);
  void place(std::uint32_t source, std::uint32_t owner, Changes& changes);
  void note(Slot slot, Changes& changes) const;

  ReducePlanOptions options_;
  std::vector<Node> nodes_;  // by slot
  Slot root_ = 0;
  std::set<Slot> vacant_;  // taken slots with places that a removal has emptied
  std::vector<Slot> dropped_;
  Slot next_ = 0;                         // no fresh slot is below this
  std::map<std::uint32_t, Slot> placed_;  // by source
  std::deque<Spare> spares_;
};

}  // namespace lochos
