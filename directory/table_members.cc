// Membership: who is alive, under which number and incarnation.
#include <fmt/format.h>

#include <algorithm>

#include "directory/table_state.h"

namespace lochos {
namespace {

// Beyond these an incarnation or number from a node is no memory of an earlier life but nonsense
// that would exhaust the counters.
constexpr std::uint64_t kMaxIncarnation = std::uint64_t{1} << 62;
constexpr std::uint32_t kMaxNumber = std::uint32_t{1} << 24;

Status check_join(const Join& join) {
  if (join.name.size() > kMaxNameBytes) {
    return fail(Errc::kInvalidArgument, fmt::format("the node's name has {} bytes, more than {}",
                                                    join.name.size(), kMaxNameBytes));
  }
  if (join.rails.size() > kMaxRails) {
    return fail(Errc::kInvalidArgument,
                fmt::format("the node has {} rails, more than {}", join.rails.size(), kMaxRails));
  }
  for (const RailAddress& rail : join.rails) {
    if (rail.address.size() > kMaxRailAddressBytes) {
      return fail(Errc::kInvalidArgument, fmt::format("a rail's address has {} bytes, more than {}",
                                                      rail.address.size(), kMaxRailAddressBytes));
    }
  }
  return {};
}

}  // namespace

Result<NodeId> TableState::join(const Join& join, const Turn& turn) {
  if (auto valid = check_join(join); !valid) return fail(valid.error());
  std::uint32_t number = join.previous.number;
  if (Member* older = find_member(join.previous)) {
    turn.out.push_back({older->node, Fenced{}});
    remove_member(*older, false, turn);
  }
  if (number == 0 || number > kMaxNumber || members_.contains(number)) {
    do {
      ++last_number_;
    } while (members_.contains(last_number_) || last_number_ == 0);
    number = last_number_;
  }
  if (join.previous.incarnation < kMaxIncarnation) {
    last_incarnation_ = std::max(last_incarnation_, join.previous.incarnation);
  }
  last_number_ = std::max(last_number_, number);
  auto member = std::make_unique<Member>();
  member->node = NodeId{number, ++last_incarnation_};
  member->join = join;
  member->last_heard = turn.now;
  const NodeId node = member->node;
  if (free_slots_.empty()) {
    free_slots_.push_back(static_cast<std::uint32_t>(slots_.size()));
    slots_.push_back(nullptr);
  }
  member->slot = free_slots_.back();
  free_slots_.pop_back();
  slots_[member->slot] = member.get();
  members_[number] = std::move(member);
  liveness_at_ = std::min(liveness_at_, saturating_add(turn.now, options_.dead_after));
  turn.out.push_back({node, Joined{.node = node,
                                   .epoch = options_.epoch,
                                   .cluster = options_.cluster,
                                   .heartbeat_interval = options_.heartbeat_interval,
                                   .dead_after = options_.dead_after}});
  return node;
}

Member* TableState::find_member(NodeId node) {
  const auto found = members_.find(node.number);
  return found != members_.end() && found->second->node == node ? found->second.get() : nullptr;
}

Member* TableState::find_number(std::uint32_t number) {
  const auto found = members_.find(number);
  return found != members_.end() ? found->second.get() : nullptr;
}

void TableState::remove_member(Member& member, bool clean, const Turn& turn) {
  if (!clean) {
    any_break_off_ = true;
    last_break_off_ = turn.now;
  }
  // Out of the map first: nothing that follows may choose it.
  auto owner = std::move(members_.extract(member.node.number).mapped());
  while (!owner->reduces.empty())
    cancel_reduce(*owner, owner->reduces.begin()->first, turn);
  while (!owner->collectives.empty())
    leave_collective(*owner, owner->collectives.begin()->first, "is gone", turn);
  while (!owner->waits.empty())
    forget_wait(*owner->waits.begin()->second);
  while (!owner->copies.empty()) {
    Copy& copy = *owner->copies.begin()->second;
    Entry& entry = *copy.entry;
    const bool was_source = copy.state == CopyState::kComplete || copy.state == CopyState::kFilling;
    drop_copy(copy, Errc::kConnectionLost, turn);
    after_drop(entry, was_source && !clean, turn);
  }
  if (owner->inline_copies > 0) {
    for (auto& [id, entry] : entries_)
      entry.readers.erase(owner->slot);
  }
  slots_[owner->slot] = nullptr;
  free_slots_.push_back(owner->slot);
  leave_barriers(*owner, turn);
  links_.forget(owner->node.number);
}

void TableState::check_liveness(const Turn& turn) {
  if (turn.now < liveness_at_) return;
  // This side was asleep itself (a paused process, a suspended machine): what the members sent
  // meanwhile has not been read, so nobody can be judged yet.
  const bool overslept = turn.now - liveness_at_ > 2 * options_.heartbeat_interval;
  if (overslept) {
    const Instant earliest = turn.now - options_.dead_after + 2 * options_.heartbeat_interval;
    for (auto& [number, member] : members_) {
      member->last_heard = std::max(member->last_heard, earliest);
    }
  }
  std::vector<Member*> dead;
  Instant next = kNever;
  for (auto& [number, member] : members_) {
    const Instant limit = saturating_add(member->last_heard, options_.dead_after);
    if (limit <= turn.now) {
      dead.push_back(member.get());
    } else {
      next = std::min(next, limit);
    }
  }
  liveness_at_ = next;
  for (Member* member : dead) {
    turn.send(*member, Fenced{});
    remove_member(*member, false, turn);
  }
}

void TableState::on(Member& from, const Members& message, const Turn& turn) {
  MembersReply reply{.request = message.request, .members = {}};
  std::size_t bytes = 0;
  for (const auto& [number, member] : members_) {
    bytes += 128 + member->join.name.size();
    for (const RailAddress& rail : member->join.rails)
      bytes += 32 + rail.address.size();
    if (bytes > kMaxReplyBytes) break;
    reply.members.push_back({.node = member->node,
                             .name = member->join.name,
                             .rails = member->join.rails,
                             .policy = member->join.policy,
                             .pool_bytes = member->join.pool_bytes});
  }
  std::sort(reply.members.begin(), reply.members.end(),
            [](const MemberEntry& a, const MemberEntry& b) { return a.node < b.node; });
  turn.send(from, std::move(reply));
}

}  // namespace lochos
