#include "scheduler/reduce_planner.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace lochos {
double reduce_seconds(std::uint64_t size, const LinkEstimate& link, std::uint32_t sources,
                      std::uint32_t degree) {
  const double latency = std::chrono::duration<double>(link.latency).count();
  const double transfer = static_cast<double>(size) / link.bytes_per_second;
  const double n = sources;
  if (degree <= 1) return n * latency + transfer;
  if (degree >= sources) return latency + n * transfer;
  return latency * std::log(n) / std::log(degree) + degree * transfer;
}

// From d = 2 on, L·log_d n falls ever more slowly and d·S/B grows evenly: T falls, then rises, and
// the first rise ends the search.
std::uint32_t reduce_degree(std::uint64_t size, const LinkEstimate& link, std::uint32_t sources) {
  if (sources < 2) return 1;
  std::uint32_t best = 2;
  double best_seconds = reduce_seconds(size, link, sources, 2);
  for (std::uint32_t degree = 3; degree <= sources; ++degree) {
    const double seconds = reduce_seconds(size, link, sources, degree);
    if (seconds > best_seconds) break;
    best = degree;
    best_seconds = seconds;
  }
  return reduce_seconds(size, link, sources, 1) <= best_seconds ? 1 : best;
}

ReducePlan::ReducePlan(const ReducePlanOptions& options) : options_(options) {
  options_.count = std::max(options_.count, 1U);
  options_.degree = std::clamp(options_.degree, 1U, options_.count);
  build();
}

// The full tree has the shape of a heap: the children of the i-th node level by level are the nodes
// d·i+1 … d·i+d. Slots number the same nodes along the traversal.
void ReducePlan::build() {
  const std::uint64_t count = options_.count;
  const std::uint64_t degree = options_.degree;
  nodes_.resize(count);
  struct Visit {
    std::uint64_t at;  // level by level
    std::optional<std::size_t> parent;
    std::uint64_t next_child = 0;
    std::optional<Slot> slot{};
    std::vector<Slot> children{};
  };
  std::vector<Visit> path;
  path.push_back({0, std::nullopt});
  Slot next = 0;
  while (!path.empty()) {
    Visit& visit = path.back();
    const std::uint64_t child = degree * visit.at + 1 + visit.next_child;
    const bool has_child = visit.next_child < degree && child < count;
    if (!visit.slot && (visit.next_child == 1 || !has_child)) visit.slot = next++;
    if (has_child) {
      ++visit.next_child;
      path.push_back({child, path.size() - 1});
      continue;
    }
    const Slot slot = *visit.slot;
    nodes_[slot].children = std::move(visit.children);
    for (const Slot below : nodes_[slot].children)
      nodes_[below].parent = slot;
    if (visit.parent) {
      path[*visit.parent].children.push_back(slot);
    } else {
      root_ = slot;
    }
    path.pop_back();
  }
}

// The latest slot of the traversal, if it is a leaf whose sum nobody takes in yet.
std::optional<ReducePlan::Slot> ReducePlan::shared_slot(std::uint32_t owner) const {
  Slot slot = next_;
  while (slot > 0 && nodes_[slot - 1].use == Use::kDropped)
    --slot;
  if (slot-- == 0) return std::nullopt;
  const Node& node = nodes_[slot];
  if (!filled(slot) || node.owner != owner || !node.children.empty() || parent(slot)) {
    return std::nullopt;
  }
  return slot;
}

// Not once its children are there: it may have begun.
bool ReducePlan::root_takes(std::uint32_t owner) const {
  if (owner == 0 || owner != options_.wanted_at) return false;
  const Node& root = nodes_[root_];
  return root.use == Use::kFresh ||
         (filled(root_) && root.owner == owner && children(root_).empty());
}

// An empty slot, or one of the same node with an empty place, or one made for the purpose.
std::optional<ReducePlan::Slot> ReducePlan::take_vacancy(std::uint32_t owner) {
  if (vacant_.empty()) return std::nullopt;
  for (const Slot slot : vacant_) {
    if (filled(slot) && nodes_[slot].owner == owner) return slot;
  }
  if (owner == options_.wanted_at && vacant_.contains(root_) && !filled(root_)) return root_;
  for (const Slot slot : vacant_) {
    if (!filled(slot)) return slot;
  }
  return append_below(*vacant_.begin());
}

// Moves an empty place of `slot` to a slot below it. There is a dropped one, since a slot has more
// than one place only where another was dropped.
ReducePlan::Slot ReducePlan::append_below(Slot slot) {
  const Slot leaf = dropped_.back();
  dropped_.pop_back();
  Node& parent = nodes_[slot];
  if (--parent.places == parent.sources.size()) vacant_.erase(slot);
  parent.children.insert(std::upper_bound(parent.children.begin(), parent.children.end(), leaf),
                         leaf);
  nodes_[leaf] = Node{};
  nodes_[leaf].parent = slot;
  return leaf;
}

void ReducePlan::add_place(Slot slot, Changes& changes) {
  ++nodes_[slot].places;
  drop_last(changes);
}

// The last fresh slot goes; what is below it moves up. Only its first child can still be there, as
// the others come later in the traversal.
void ReducePlan::drop_last(Changes& changes) {
  Slot slot = options_.count - 1;
  while (nodes_[slot].use != Use::kFresh)
    --slot;
  Node& node = nodes_[slot];
  node.use = Use::kDropped;
  node.places = 0;
  dropped_.push_back(slot);
  for (const Slot child : node.children)
    nodes_[child].parent = node.parent;
  if (node.parent) {
    std::vector<Slot>& siblings = nodes_[*node.parent].children;
    std::erase(siblings, slot);
    siblings.insert(siblings.end(), node.children.begin(), node.children.end());
    std::sort(siblings.begin(), siblings.end());
    note(*node.parent, changes);
  } else {
    root_ = node.children.front();
    note(root_, changes);
  }
  node.children.clear();
}

ReducePlan::Slot ReducePlan::take_slot(std::uint32_t source, std::uint32_t owner,
                                       Changes& changes) {
  if (options_.by_index) return source;
  if (root_takes(owner) && nodes_[root_].use == Use::kFresh) return root_;
  if (const auto slot = take_vacancy(owner)) return *slot;
  const auto shared = root_takes(owner) ? std::optional(root_) : shared_slot(owner);
  if (shared) {
    add_place(*shared, changes);
    return *shared;
  }
  return next_;
}

// A root that was filled ahead of its turn has nothing to do before a child is there.
void ReducePlan::note(Slot slot, Changes& changes) const {
  if (!filled(slot)) return;
  if (slot == root_ && !options_.by_index && !nodes_[slot].children.empty() &&
      children(slot).empty())
    return;
  if (std::find(changes.changed.begin(), changes.changed.end(), slot) == changes.changed.end())
    changes.changed.push_back(slot);
}

void ReducePlan::place(std::uint32_t source, std::uint32_t owner, Changes& changes) {
  const Slot slot = take_slot(source, owner, changes);
  Node& node = nodes_[slot];
  const bool new_to_parent = node.sources.empty();
  node.use = Use::kTaken;
  node.owner = owner;
  node.sources.push_back(source);
  placed_[source] = slot;
  if (node.sources.size() == node.places) {
    vacant_.erase(slot);
  } else {
    vacant_.insert(slot);
  }
  while (next_ < nodes_.size() && nodes_[next_].use != Use::kFresh)
    ++next_;
  note(slot, changes);
  if (node.parent && new_to_parent) note(*node.parent, changes);
}

ReducePlan::Changes ReducePlan::add(std::uint32_t source, std::uint32_t owner) {
  Changes changes;
  const auto is_this = [&](const Spare& spare) { return spare.source == source; };
  if (placed_.contains(source) || std::any_of(spares_.begin(), spares_.end(), is_this))
    return changes;
  if (closed()) {
    spares_.push_back({source, owner});
  } else {
    place(source, owner, changes);
  }
  return changes;
}

ReducePlan::Changes ReducePlan::remove(std::uint32_t source) {
  Changes changes;
  std::erase_if(spares_, [&](const Spare& spare) { return spare.source == source; });
  const auto found = placed_.find(source);
  if (found == placed_.end()) return changes;
  const Slot slot = found->second;
  for (std::optional<Slot> at = slot; at; at = parent(*at))
    changes.restarted.push_back(*at);
  placed_.erase(found);
  std::erase(nodes_[slot].sources, source);
  vacant_.insert(slot);
  if (!spares_.empty()) {
    const Spare spare = spares_.front();
    spares_.pop_front();
    place(spare.source, spare.owner, changes);
  }
  for (const Slot restarted : changes.restarted)
    std::erase(changes.changed, restarted);
  return changes;
}

bool ReducePlan::closed() const {
  return placed_.size() == options_.count;
}

ReducePlan::Slot ReducePlan::root() const {
  return root_;
}

bool ReducePlan::is_root(Slot slot) const {
  return slot == root_ && filled(slot);
}

bool ReducePlan::filled(Slot slot) const {
  return !nodes_[slot].sources.empty();
}

std::uint32_t ReducePlan::owner(Slot slot) const {
  return nodes_[slot].owner;
}

std::span<const std::uint32_t> ReducePlan::sources(Slot slot) const {
  return nodes_[slot].sources;
}

std::vector<ReducePlan::Slot> ReducePlan::children(Slot slot) const {
  std::vector<Slot> there;
  for (const Slot child : nodes_[slot].children) {
    if (filled(child)) there.push_back(child);
  }
  return there;
}

std::uint32_t ReducePlan::children_before(Slot slot) const {
  const std::vector<Slot> all = children(slot);
  return static_cast<std::uint32_t>(
      std::count_if(all.begin(), all.end(), [&](Slot child) { return child < slot; }));
}

std::uint32_t ReducePlan::expected_inputs(Slot slot) const {
  const Node& node = nodes_[slot];
  return node.places + static_cast<std::uint32_t>(node.children.size());
}

std::optional<ReducePlan::Slot> ReducePlan::parent(Slot slot) const {
  const std::optional<Slot> above = nodes_[slot].parent;
  return above && filled(*above) ? above : std::nullopt;
}

std::uint32_t ReducePlan::slots() const {
  return static_cast<std::uint32_t>(nodes_.size());
}

std::uint32_t ReducePlan::depth() const {
  std::uint32_t deepest = 0;
  for (Slot slot = 0; slot < nodes_.size(); ++slot) {
    if (!filled(slot)) continue;
    std::uint32_t edges = 0;
    for (std::optional<Slot> at = nodes_[slot].parent; at; at = nodes_[*at].parent)
      ++edges;
    deepest = std::max(deepest, edges);
  }
  return deepest;
}

std::vector<std::uint32_t> ReducePlan::included() const {
  std::vector<std::uint32_t> sources;
  for (const auto& [source, slot] : placed_)
    sources.push_back(source);
  return sources;
}

}  // namespace lochos
