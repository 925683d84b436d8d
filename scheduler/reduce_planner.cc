#include "scheduler/reduce_planner.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace lochos {
namespace {

// Degrees between these and n are no better than one of the two: T(d) grows with d·S/B and falls
// only with the logarithm.
constexpr std::uint32_t kDegrees[] = {1, 2, 3, 4, 8, 16};

}  // namespace

double reduce_seconds(std::uint64_t size, const LinkEstimate& link, std::uint32_t sources,
                      std::uint32_t degree) {
  const double latency = std::chrono::duration<double>(link.latency).count();
  const double transfer = static_cast<double>(size) / link.bytes_per_second;
  const double n = sources;
  if (degree <= 1) return n * latency + transfer;
  if (degree >= sources) return latency + n * transfer;
  return latency * std::log(n) / std::log(degree) + degree * transfer;
}

std::uint32_t reduce_degree(std::uint64_t size, const LinkEstimate& link, std::uint32_t sources) {
  std::uint32_t best = 1;
  double best_seconds = reduce_seconds(size, link, sources, 1);
  const auto consider = [&](std::uint32_t degree) {
    const double seconds = reduce_seconds(size, link, sources, degree);
    if (seconds < best_seconds) {
      best = degree;
      best_seconds = seconds;
    }
  };
  for (const std::uint32_t degree : kDegrees) {
    if (degree < sources) consider(degree);
  }
  consider(std::max(sources, 1U));
  return best;
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
    if (visit.parent) path[*visit.parent].children.push_back(slot);
    path.pop_back();
  }
}

// Only the latest leaf, and only while nothing above it is there to take in its sum.
bool ReducePlan::may_be_shared(Slot slot, std::uint32_t owner) const {
  const Node& node = nodes_[slot];
  return node.filled && node.owner == owner && node.children.empty() && !parent(slot);
}

ReducePlan::Slot ReducePlan::choose_slot(std::uint32_t source, std::uint32_t owner) const {
  if (options_.by_index) return source;
  const Slot last = options_.count - 1;
  const bool chain = options_.degree == 1;
  if (chain && options_.wanted_at != 0 && owner == options_.wanted_at &&
      (!nodes_[last].filled || nodes_[last].owner == owner))
    return last;
  if (!holes_.empty()) return *holes_.begin();
  if (next_ > 0 && may_be_shared(next_ - 1, owner)) return next_ - 1;
  return next_;
}

void ReducePlan::place(std::uint32_t source, std::uint32_t owner, Changes& changes) {
  const Slot slot = choose_slot(source, owner);
  Node& node = nodes_[slot];
  node.filled = true;
  node.owner = owner;
  node.sources.push_back(source);
  placed_[source] = slot;
  holes_.erase(slot);
  while (next_ < nodes_.size() && (nodes_[next_].filled || holes_.contains(next_)))
    ++next_;
  if (closed()) {
    // Empty slots will stay so: what is below them moves up.
    for (Slot at = 0; at < nodes_.size(); ++at) {
      if (nodes_[at].filled) changes.changed.push_back(at);
    }
    return;
  }
  // A root that was filled ahead of its turn has nothing to do before the rest is there.
  if (!node.parent && !options_.by_index && node.children.size() == 1 &&
      !nodes_[node.children[0]].filled)
    return;
  changes.changed.push_back(slot);
  if (node.parent && nodes_[*node.parent].filled) changes.changed.push_back(*node.parent);
}

ReducePlan::Changes ReducePlan::add(std::uint32_t source, std::uint32_t owner) {
  Changes changes;
  if (placed_.contains(source)) return changes;
  if (closed()) {
    spares_.push_back({source, owner});
    return changes;
  }
  place(source, owner, changes);
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
  Node& node = nodes_[slot];
  std::erase(node.sources, source);
  if (node.sources.empty()) {
    node.filled = false;
    node.owner = 0;
    if (slot < next_) holes_.insert(slot);
  }
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
  Slot at = placed_.begin()->second;
  while (const std::optional<Slot> above = parent(at))
    at = *above;
  return at;
}

bool ReducePlan::is_root(Slot slot) const {
  return nodes_[slot].filled && (!nodes_[slot].parent || (closed() && root() == slot));
}

bool ReducePlan::filled(Slot slot) const {
  return nodes_[slot].filled;
}

std::uint32_t ReducePlan::owner(Slot slot) const {
  return nodes_[slot].owner;
}

std::span<const std::uint32_t> ReducePlan::sources(Slot slot) const {
  return nodes_[slot].sources;
}

// The topmost filled slots of a subtree.
void ReducePlan::collect(Slot top, std::vector<Slot>& tops) const {
  std::vector<Slot> stack{top};
  while (!stack.empty()) {
    const Slot at = stack.back();
    stack.pop_back();
    if (nodes_[at].filled) {
      tops.push_back(at);
    } else {
      stack.insert(stack.end(), nodes_[at].children.rbegin(), nodes_[at].children.rend());
    }
  }
}

std::vector<ReducePlan::Slot> ReducePlan::children(Slot slot) const {
  std::vector<Slot> filled;
  for (const Slot child : nodes_[slot].children) {
    if (closed()) {
      collect(child, filled);
    } else if (nodes_[child].filled) {
      filled.push_back(child);
    }
  }
  return filled;
}

std::uint32_t ReducePlan::children_before(Slot slot) const {
  const std::vector<Slot> all = children(slot);
  return static_cast<std::uint32_t>(
      std::count_if(all.begin(), all.end(), [&](Slot child) { return child < slot; }));
}

std::uint32_t ReducePlan::expected_inputs(Slot slot) const {
  const Node& node = nodes_[slot];
  const std::size_t below = closed() ? children(slot).size() : node.children.size();
  return static_cast<std::uint32_t>(node.sources.size() + below);
}

std::optional<ReducePlan::Slot> ReducePlan::parent(Slot slot) const {
  std::optional<Slot> at = nodes_[slot].parent;
  while (at && !nodes_[*at].filled)
    at = nodes_[*at].parent;
  return at;
}

std::uint32_t ReducePlan::slots() const {
  return static_cast<std::uint32_t>(nodes_.size());
}

std::uint32_t ReducePlan::depth() const {
  std::uint32_t deepest = 0;
  for (Slot slot = 0; slot < nodes_.size(); ++slot) {
    if (!nodes_[slot].filled) continue;
    std::uint32_t depth = 0;
    for (std::optional<Slot> at = parent(slot); at; at = parent(*at))
      ++depth;
    deepest = std::max(deepest, depth);
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
