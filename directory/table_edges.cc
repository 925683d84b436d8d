// Receivers: who gets an object from whom, and what happens when that fails.
#include <algorithm>

#include "directory/table_state.h"
#include "scheduler/chunk_size.h"
#include "scheduler/tree_degree.h"

namespace lochos {
namespace {

// A receiver whose only possible parent keeps failing asks it again after these pauses, doubled
// each time, so that the two do not circle at the speed of the network.
constexpr Duration kMinRetry = std::chrono::milliseconds(20);
constexpr Duration kMaxRetry = std::chrono::seconds(1);
// Hops assumed for the chunk size before the receivers have turned up: the other members, but no
// more than these.
constexpr std::uint64_t kAssumedHops = 16;

Duration retry_delay(std::uint8_t failures) {
  const int doublings = std::clamp(failures - 2, 0, 6);
  return std::min(kMaxRetry, kMinRetry * (1 << doublings));
}

}  // namespace

void TableState::on(Member& from, const Get& get, const Turn& turn) {
  Entry* entry = &entry_for(get.id);
  Copy* copy = find_copy(from, *entry);
  if (copy != nullptr && copy->state == CopyState::kComplete) {
    // It would not ask for what it has: its Drop was lost.
    drop_copy(*copy, Errc::kConnectionLost, turn);
    after_drop(*entry, false, turn);
    entry = &entry_for(get.id);
    copy = nullptr;
  }
  if (copy != nullptr && copy->state == CopyState::kFilling) {
    turn.send(from, Failed{.request = get.request,
                           .code = Errc::kInvalidArgument,
                           .message = "this node is the one that fills the object"});
    return;
  }
  if (copy == nullptr) {
    if (entry->is_inline) {  // the usual case for small objects: no record of the receiver needed
      answer_inline(*entry, from, get.request, get.leaf, turn);
      return;
    }
    copy = &add_copy(*entry, from);
  }
  copy->request = get.request;
  switch (copy->state) {
    case CopyState::kFetching:  // asked again: the same answer
      send_assign(*copy, turn);
      return;
    case CopyState::kOrphan:
      set_state(*copy, CopyState::kWaiting);
      break;
    default:
      break;
  }
  copy->is_leaf = get.leaf;
  if (copy->retry_at == kNever) answer(*copy, turn);
}

void TableState::answer_inline(Entry& entry, Member& member, RequestNumber request, bool leaf,
                               const Turn& turn) {
  if (!leaf) add_reader(entry, member);
  turn.send(member, Inline{.request = request,
                           .generation = entry.generation,
                           .name = entry.name,
                           .bytes = entry.inline_bytes});
}

void TableState::answer(Copy& copy, const Turn& turn) {
  Entry& entry = *copy.entry;
  if (entry.is_inline) {
    Member& member = *copy.member;
    const RequestNumber request = copy.request;
    const bool leaf = copy.is_leaf;
    take_out(copy);
    answer_inline(entry, member, request, leaf, turn);
  } else if (entry.has_source()) {
    assign(copy, Patience::kBackOff, turn);
  }
}

std::uint32_t TableState::degree_for(Entry& entry) {
  const LinkEstimate link = links_.overall();
  if (entry.chunk_bytes == 0) {
    const std::uint64_t others = std::min<std::uint64_t>(members_.size(), kAssumedHops);
    entry.chunk_bytes =
        chunk_size(entry.size, link, std::max<std::uint64_t>(entry.receivers, others));
  }
  return tree_degree(entry.size, entry.chunk_bytes, link, entry.receivers);
}

// REQUIRES: the copy waits, and the entry has a source that is not inline.
void TableState::assign(Copy& copy, Patience patience, const Turn& turn) {
  Entry& entry = *copy.entry;
  const std::uint32_t degree = degree_for(entry);
  PlanNode* chosen = entry.planner.choose(copy, degree, copy.avoid);
  if (chosen == nullptr) return;
  const Copy& parent = static_cast<const Copy&>(*chosen);
  const bool failed_before = std::find(copy.avoid.begin(), copy.avoid.end(),
                                       parent.member->node.number) != copy.avoid.end();
  if (failed_before && copy.failures > 1 && patience == Patience::kBackOff) {
    set_retry_at(copy, turn.now + retry_delay(copy.failures));
    return;
  }
  entry.planner.attach(copy, copy.member->node.number, copy.is_leaf, *chosen, degree);
  copy.edge = ++last_edge_;
  copy.assigned = true;
  set_state(copy, CopyState::kFetching);
  send_assign(copy, turn);
}

void TableState::send_assign(const Copy& copy, const Turn& turn) {
  const Entry& entry = *copy.entry;
  const Member& parent = *static_cast<const Copy*>(copy.parent())->member;
  turn.send(*copy.member, Assign{.request = copy.request,
                                 .edge = copy.edge,
                                 .generation = entry.generation,
                                 .name = entry.name,
                                 .size = entry.size,
                                 .chunk_bytes = entry.chunk_bytes,
                                 .parent = parent.node,
                                 .rails = parent.join.rails,
                                 .parent_policy = parent.join.policy,
                                 .uncommitted = entry.maker != nullptr});
}

void TableState::serve_waiting(Entry& entry, const Turn& turn) {
  if (!entry.has_source() || entry.receivers == 0) return;
  for (Copy* copy = entry.first; copy != nullptr;) {
    Copy* const next = copy->next;
    if (copy->state == CopyState::kWaiting) answer(*copy, turn);
    copy = next;
  }
}

void TableState::on(Member& from, const CancelGet& cancel, const Turn& turn) {
  Entry* entry = find_entry(cancel.id);
  Copy* copy = entry != nullptr ? find_copy(from, *entry) : nullptr;
  if (copy == nullptr || copy->request != cancel.request) return;
  if (copy->state == CopyState::kComplete || copy->state == CopyState::kFilling) return;
  drop_copy(*copy, Errc::kConnectionLost, turn);
  after_drop(*entry, false, turn);
}

void TableState::on(Member& from, const EdgeDone& done, const Turn& turn) {
  Entry* entry = find_living(done.id, done.generation);
  Copy* copy = entry != nullptr ? find_copy(from, *entry) : nullptr;
  if (copy == nullptr || copy->state == CopyState::kComplete ||
      copy->state == CopyState::kFilling) {
    return;
  }
  if (const auto* parent = static_cast<const Copy*>(copy->parent());
      parent != nullptr && done.edge == copy->edge) {
    links_.add({.from = parent->member->node.number,
                .to = from.node.number,
                .bytes = done.bytes,
                .elapsed = done.elapsed,
                .stalled = done.stalled,
                .round_trip = done.round_trip});
  }
  // Whatever edge it came over (perhaps one of an earlier directory): it has every byte.
  if (copy->is_leaf) {
    drop_copy(*copy, Errc::kConnectionLost, turn);
    after_drop(*entry, false, turn);
    return;
  }
  const bool had_source = entry->has_source();
  add_holder(*entry, from, true);
  if (!had_source) serve_waiting(*entry, turn);
}

void TableState::on(Member& from, const EdgeFailed& failed, const Turn& turn) {
  Entry* entry = find_living(failed.id, failed.generation);
  Copy* copy = entry != nullptr ? find_copy(from, *entry) : nullptr;
  if (copy == nullptr) {
    turn.send(from, Failed{.request = failed.request,
                           .code = Errc::kObjectLost,
                           .message = "the object or this get of it has ended"});
    return;
  }
  const bool current = copy->edge == failed.edge &&
                       (copy->state == CopyState::kFetching || copy->state == CopyState::kOrphan);
  if (!current) return;  // answered already: the edge was revoked and failed at the same time
  copy->request = failed.request;
  auto* parent = static_cast<Copy*>(copy->parent());
  note_failure(*copy, failed, parent);
  entry->planner.detach(*copy);
  set_state(*copy, CopyState::kWaiting);
  if (parent != nullptr && failed.reason == Errc::kNotFound &&
      parent->state == CopyState::kComplete) {
    drop_denied_copy(*parent, turn);
    if (find_copy(from, *entry) == nullptr) return;
  }
  if (entry->has_source()) {
    answer(*copy, turn);
  } else {
    after_drop(*entry, false, turn);
  }
}

// The holder told somebody that it does not have it: what this table believes is out of date.
// Should it have a copy after all, then one that nobody would ever ask for or erase: it must go.
void TableState::drop_denied_copy(Copy& copy, const Turn& turn) {
  Entry& entry = *copy.entry;
  turn.send(*copy.member,
            Withdrawn{.id = entry.id, .generation = entry.generation, .reason = Errc::kObjectLost});
  drop_copy(copy, Errc::kConnectionLost, turn);
  after_drop(entry, false, turn);
}

void TableState::note_failure(Copy& copy, const EdgeFailed& failed, const Copy* parent) {
  if (parent != nullptr) {
    const std::uint32_t number = parent->member->node.number;
    if (std::find(copy.avoid.begin(), copy.avoid.end(), number) == copy.avoid.end()) {
      copy.avoid[copy.avoid_next] = number;
      copy.avoid_next = static_cast<std::uint8_t>((copy.avoid_next + 1) % copy.avoid.size());
    }
  }
  if (failed.have_bytes > copy.have_bytes) copy.failures = 0;
  if (copy.failures < 255) ++copy.failures;
  copy.have_bytes = failed.have_bytes;
}

void TableState::revoke(Copy& child, Errc reason, const Turn& turn) {
  set_state(child, CopyState::kOrphan);
  turn.send(*child.member,
            EdgeRevoked{.edge = child.edge, .id = child.entry->id, .reason = reason});
}

// A copy or receiver went. If no source is left, the object ends: at once when nobody is there to
// care, or when nothing more can be heard; else after the grace.
void TableState::after_drop(Entry& entry, bool may_return, const Turn& turn) {
  if (entry.exists() && !entry.has_source()) {
    if (entry.copies == 0) {
      end_generation(entry, Errc::kObjectLost, nullptr, Keep::kNothing, turn);
    } else {
      entry.holder_may_return |= may_return;
      if (entry.loss_at == kNever) {
        set_loss_at(entry, saturating_add(turn.now, options_.loss_grace));
      }
      if (!entry.holder_may_return && entry.orphans == 0) return lose(entry, turn);
    }
  }
  release_if_unused(entry);
}

void TableState::lose(Entry& entry, const Turn& turn) {
  end_generation(entry, Errc::kObjectLost, nullptr, Keep::kNothing, turn);
  release_if_unused(entry);
}

void TableState::set_loss_at(Entry& entry, Instant when) {
  if (entry.loss_at != kNever) losses_.erase({entry.loss_at, &entry});
  entry.loss_at = when;
  if (when != kNever) losses_.insert({when, &entry});
}

void TableState::set_retry_at(Copy& copy, Instant when) {
  if (copy.retry_at != kNever) retries_.erase({copy.retry_at, &copy});
  copy.retry_at = when;
  if (when != kNever) retries_.insert({when, &copy});
}

}  // namespace lochos
