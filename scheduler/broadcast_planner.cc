#include "scheduler/broadcast_planner.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace lochos {
namespace {

// Candidates looked at in the preferred lists. A new receiver takes the first; one that is moved
// may have to pass over holders in its own subtree, and more than a few are not worth the walk
// while a root is to be had.
constexpr std::size_t kMaxVisits = 8;
constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();

}  // namespace

bool BroadcastPlanner::below(const PlanNode& node, const PlanNode& ancestor) {
  if (ancestor.first_child_ == nullptr) return &node == &ancestor;
  for (const PlanNode* at = &node; at != nullptr; at = at->parent_) {
    if (at == &ancestor) return true;
  }
  return false;
}

PlanNode* BroadcastPlanner::first_allowed(const List& list, const PlanNode& receiver,
                                          std::size_t visits,
                                          std::span<const std::uint32_t> avoid) const {
  for (PlanNode* node = list.head; node != nullptr && visits > 0; node = node->list_next_) {
    --visits;
    if (std::find(avoid.begin(), avoid.end(), node->owner_) != avoid.end()) continue;
    if (!below(*node, receiver)) return node;
  }
  return nullptr;
}

PlanNode* BroadcastPlanner::choose(const PlanNode& receiver, std::uint32_t degree,
                                   std::span<const std::uint32_t> avoid) {
  degree_ = std::max(degree, 1U);
  // Holders listed as open under a larger degree than today's.
  while (open_.head != nullptr && place_for(*open_.head, degree_) != PlanNode::Place::kOpen) {
    place(*open_.head, true);
  }
  if (PlanNode* node = first_allowed(idle_roots_, receiver, kMaxVisits, avoid)) return node;
  if (PlanNode* node = first_allowed(open_, receiver, kMaxVisits, avoid)) return node;
  if (PlanNode* node = first_allowed(full_roots_, receiver, kMaxVisits, avoid)) return node;
  // Rare from here on: every root is avoided or gone, or the nearest holders are below `receiver`.
  for (const auto& avoided : {avoid, std::span<const std::uint32_t>()}) {
    for (const List* list : {&idle_roots_, &open_, &full_roots_, &full_partials_}) {
      if (PlanNode* node = first_allowed(*list, receiver, kAll, avoided)) return node;
    }
  }
  return nullptr;
}

void BroadcastPlanner::add_root(PlanNode& node, std::uint32_t owner) {
  LOCHOS_CHECK(!node.root_ && node.parent_ == nullptr);
  node.owner_ = owner;
  node.root_ = node.offered_ = true;
  ++roots_;
  place(node, true);
}

void BroadcastPlanner::attach(PlanNode& receiver, std::uint32_t owner, bool leaf, PlanNode& parent,
                              std::uint32_t degree) {
  LOCHOS_CHECK(receiver.parent_ == nullptr && !receiver.root_ && &receiver != &parent);
  degree_ = std::max(degree, 1U);
  receiver.owner_ = owner;
  receiver.leaf_ = leaf;
  receiver.offered_ = !leaf;
  receiver.parent_ = &parent;
  receiver.next_sibling_ = parent.first_child_;
  if (parent.first_child_ != nullptr) parent.first_child_->prev_sibling_ = &receiver;
  parent.first_child_ = &receiver;
  ++(leaf ? parent.leaf_children_ : parent.relay_children_);
  // One that just got a leaf, or another child beyond the degree, is last in turn for the next; one
  // that still has room below a degree of two or more stays in front, so that levels fill in order.
  place(parent, leaf || parent.relay_children_ > degree_);
  place(receiver, true);
}

void BroadcastPlanner::detach(PlanNode& receiver) {
  receiver.offered_ = false;
  unlist(receiver);
  unlink_from_parent(receiver);
}

void BroadcastPlanner::complete(PlanNode& receiver, std::uint32_t owner) {
  if (receiver.root_) return;
  unlink_from_parent(receiver);
  receiver.owner_ = owner;
  receiver.root_ = receiver.offered_ = true;
  ++roots_;
  place(receiver, true);
}

void BroadcastPlanner::take_out(PlanNode& node) {
  detach(node);
  if (node.root_) --roots_;
  node.root_ = false;
}

void BroadcastPlanner::unlink_from_parent(PlanNode& node) {
  PlanNode* parent = node.parent_;
  if (parent == nullptr) return;
  if (node.prev_sibling_ != nullptr) {
    node.prev_sibling_->next_sibling_ = node.next_sibling_;
  } else {
    parent->first_child_ = node.next_sibling_;
  }
  if (node.next_sibling_ != nullptr) node.next_sibling_->prev_sibling_ = node.prev_sibling_;
  node.parent_ = node.next_sibling_ = node.prev_sibling_ = nullptr;
  --(node.leaf_ ? parent->leaf_children_ : parent->relay_children_);
  place(*parent, false);
}

PlanNode::Place BroadcastPlanner::place_for(const PlanNode& node, std::uint32_t degree) const {
  if (!node.offered_) return PlanNode::Place::kNone;
  if (node.root_ && node.children() == 0) return PlanNode::Place::kIdleRoot;
  if (node.relay_children_ < degree) return PlanNode::Place::kOpen;
  return node.root_ ? PlanNode::Place::kFullRoot : PlanNode::Place::kFullPartial;
}

BroadcastPlanner::List* BroadcastPlanner::list_of(PlanNode::Place place) {
  switch (place) {
    case PlanNode::Place::kIdleRoot:
      return &idle_roots_;
    case PlanNode::Place::kOpen:
      return &open_;
    case PlanNode::Place::kFullRoot:
      return &full_roots_;
    case PlanNode::Place::kFullPartial:
      return &full_partials_;
    case PlanNode::Place::kNone:
      break;
  }
  return nullptr;
}

void BroadcastPlanner::place(PlanNode& node, bool to_back) {
  const PlanNode::Place wanted = place_for(node, degree_);
  if (wanted == node.place_ && !to_back) return;
  unlist(node);
  node.place_ = wanted;
  List* list = list_of(wanted);
  if (list == nullptr) return;
  node.list_prev_ = list->tail;
  (list->tail != nullptr ? list->tail->list_next_ : list->head) = &node;
  list->tail = &node;
}

void BroadcastPlanner::unlist(PlanNode& node) {
  List* list = list_of(node.place_);
  if (list == nullptr) return;
  (node.list_prev_ != nullptr ? node.list_prev_->list_next_ : list->head) = node.list_next_;
  (node.list_next_ != nullptr ? node.list_next_->list_prev_ : list->tail) = node.list_prev_;
  node.list_prev_ = node.list_next_ = nullptr;
  node.place_ = PlanNode::Place::kNone;
}

}  // namespace lochos
