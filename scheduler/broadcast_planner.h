// Who feeds whom in the broadcast of one object, decided as receivers turn up. Pure: no I/O, no
// clock, no allocation. One thread.
//
// Holders are `PlanNode`s that the caller owns and embeds in its own records. Together they form a
// forest: its roots are complete copies and the copy that its producer still fills; every receiver
// that was given a parent hangs below it until it is complete.
//
// The cost of choose() does not depend on the number of holders: they are kept in four lists by
// what they can offer. Only a receiver that already feeds others pays for its place in the tree
// (one walk to the root for each candidate, so that no cycle can ever form).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lochos {

class BroadcastPlanner;

class PlanNode {
 public:
  PlanNode() = default;
  PlanNode(const PlanNode&) = delete;
  PlanNode& operator=(const PlanNode&) = delete;

  PlanNode* parent() const { return parent_; }
  PlanNode* first_child() const { return first_child_; }
  PlanNode* next_sibling() const { return next_sibling_; }
  std::uint32_t children() const { return relay_children_ + leaf_children_; }
  bool leaf() const { return leaf_; }

 private:
  friend class BroadcastPlanner;
  enum class Place : std::uint8_t { kNone, kIdleRoot, kOpen, kFullRoot, kFullPartial };

  PlanNode* parent_ = nullptr;
  PlanNode* first_child_ = nullptr;
  PlanNode* next_sibling_ = nullptr;
  PlanNode* prev_sibling_ = nullptr;
  PlanNode* list_next_ = nullptr;
  PlanNode* list_prev_ = nullptr;
  std::uint32_t owner_ = 0;
  // A leaf passes nothing on, so it does not use up its parent's place for a chain that does.
  std::uint32_t relay_children_ = 0;
  std::uint32_t leaf_children_ = 0;
  Place place_ = Place::kNone;
  bool root_ = false;
  bool offered_ = false;
  bool leaf_ = false;
};

class BroadcastPlanner {
 public:
  BroadcastPlanner() = default;
  BroadcastPlanner(const BroadcastPlanner&) = delete;
  BroadcastPlanner& operator=(const BroadcastPlanner&) = delete;

  // A complete copy, or one that its producer fills, of node number `owner`.
  void add_root(PlanNode& node, std::uint32_t owner);
  // The best parent for `receiver`, or null if there is no holder that could be one. `degree`
  // (>= 1): children a holder feeds before another is preferred. In this order: a complete copy
  // that feeds nobody; the holder that has been waiting longest among those with fewer than
  // `degree` children (with degree 1: the tail of a chain); a root, in turn; any partial holder.
  // Nodes whose number is in `avoid` are taken only if there is nobody else; a node of the
  // receiver's own subtree is never taken.
  PlanNode* choose(const PlanNode& receiver, std::uint32_t degree,
                   std::span<const std::uint32_t> avoid);
  // Puts `receiver` under `parent`. From now on it may itself be chosen, unless it is a leaf.
  // REQUIRES: receiver has no parent; parent came from choose() for it.
  void attach(PlanNode& receiver, std::uint32_t owner, bool leaf, PlanNode& parent,
              std::uint32_t degree);
  // The receiver's transfer ended without success or is being moved: it has no parent, keeps its
  // children, and is not offered to others until it is attached again.
  void detach(PlanNode& receiver);
  // The receiver has all bytes: its parent is free for others, and it is a root. It need not have
  // a parent (it may have finished by itself after its edge was given up).
  void complete(PlanNode& receiver, std::uint32_t owner);
  // The node is gone. Its children have no parent now; `orphan(child)` is called for each.
  template <class F>
  void remove(PlanNode& node, F&& orphan) {
    take_out(node);
    while (PlanNode* child = node.first_child_) {
      detach(*child);
      orphan(*child);
    }
  }

  std::size_t roots() const { return roots_; }

 private:
  struct List {
    PlanNode* head = nullptr;
    PlanNode* tail = nullptr;
  };

  static bool below(const PlanNode& node, const PlanNode& ancestor);
  PlanNode* first_allowed(const List& list, const PlanNode& receiver, std::size_t visits,
                          std::span<const std::uint32_t> avoid) const;
  List* list_of(PlanNode::Place place);
  PlanNode::Place place_for(const PlanNode& node, std::uint32_t degree) const;
  void place(PlanNode& node, bool to_back);
  void unlist(PlanNode& node);
  void unlink_from_parent(PlanNode& node);
  void take_out(PlanNode& node);

  List idle_roots_, open_, full_roots_, full_partials_;
  std::size_t roots_ = 0;
  std::uint32_t degree_ = 1;  // the latest; nodes are sorted anew when they are touched
};

}  // namespace lochos
