// Objects: their generations, who holds them, and how they end.
#include <fmt/format.h>

#include <algorithm>

#include "directory/table_state.h"

namespace lochos {
namespace {

// Larger sizes and generations are nonsense that would overflow sums and counters.
constexpr std::uint64_t kMaxObjectBytes = std::uint64_t{1} << 56;
constexpr Generation kMaxGeneration = Generation{1} << 62;
// A holder that broke off comes back within this time or not at all; meanwhile what was erased is
// remembered, so that its Hold does not revive it. The count bounds memory.
constexpr Duration kEraseMemory = std::chrono::seconds(60);
constexpr std::size_t kMaxEraseMemory = 100'000;

std::string why_put_is_invalid(const Put& put) {
  if (put.name.size() > kMaxNameBytes) {
    return fmt::format("the name has {} bytes, more than {}", put.name.size(), kMaxNameBytes);
  }
  if (put.size > kMaxObjectBytes) {
    return fmt::format("the size {} is above the limit of {}", put.size, kMaxObjectBytes);
  }
  if (put.size <= kInlineObjectBytes && (!put.complete || put.inline_bytes.size() != put.size)) {
    return fmt::format("an object of {} bytes must come complete and inline; {} bytes came",
                       put.size, put.inline_bytes.size());
  }
  if (put.size > kInlineObjectBytes && !put.inline_bytes.empty()) {
    return fmt::format("an object of {} bytes cannot be inline", put.size);
  }
  return {};
}

bool valid(const Hold& hold) {
  return hold.generation != 0 && hold.generation <= kMaxGeneration &&
         hold.name.size() <= kMaxNameBytes && hold.size <= kMaxObjectBytes &&
         (hold.inline_bytes.empty() || hold.inline_bytes.size() == hold.size);
}

}  // namespace

// ---- entries ----

Entry* TableState::find_entry(const ObjectId& id) {
  const auto found = entries_.find(id);
  return found == entries_.end() ? nullptr : &found->second;
}

Entry* TableState::find_living(const ObjectId& id, Generation generation) {
  Entry* entry = find_entry(id);
  return entry != nullptr && entry->exists() && entry->generation == generation ? entry : nullptr;
}

Entry& TableState::entry_for(const ObjectId& id) {
  const auto [at, is_new] = entries_.try_emplace(id);
  if (is_new) at->second.id = id;
  return at->second;
}

void TableState::release_if_unused(Entry& entry) {
  if (entry.exists() || entry.copies > 0 || !entry.watchers.empty()) return;
  if (entry.maker != nullptr || !entry.feeds.empty()) return;
  const ObjectId id = entry.id;
  entries_.erase(id);
}

void TableState::begin_generation(Entry& entry, Generation generation, const std::string& name,
                                  std::uint64_t size) {
  entry.generation = generation;
  entry.ended_because = Errc::kObjectLost;
  entry.name = name;
  entry.size = size;
  last_generation_ = std::max(last_generation_, generation);
  ordered_.insert(&entry);
}

void TableState::begin_inline(Entry& entry, SharedBytes bytes) {
  entry.is_inline = true;
  inline_bytes_ += bytes.size();
  entry.inline_bytes = std::move(bytes);
}

// A generation has begun: whoever waited for the id hears of it, in order of arrival.
void TableState::announce(Entry& entry, const Turn& turn) {
  serve_waiting(entry, turn);
  exists_now(entry, turn);
}

// Every copy and receiver of the living generation is told and forgotten. `silent` (may be null)
// knows already. Gets that were never given any of it may be kept for the next generation.
void TableState::end_generation(Entry& entry, Errc reason, Member* silent, Keep keep,
                                const Turn& turn) {
  for (Copy* copy = entry.first; copy != nullptr;) {
    Copy* const next = copy->next;
    const bool untouched = copy->state == CopyState::kWaiting && !copy->assigned;
    if (keep == Keep::kNothing || !untouched) {
      if (copy->member != silent) tell_ended(*copy, reason, turn);
      take_out(*copy);
    }
    copy = next;
  }
  entry.readers.for_each([&](std::uint32_t slot) {
    Member& reader = *slots_[slot];
    --reader.inline_copies;
    if (&reader == silent) return;
    if (reason == Errc::kDeleted) {
      turn.send(reader, Deleted{.id = entry.id, .generation = entry.generation});
    } else {
      turn.send(reader,
                Withdrawn{.id = entry.id, .generation = entry.generation, .reason = reason});
    }
  });
  entry.ended_because = reason;
  close_generation(entry);
}

// Every copy has been dealt with: nothing is under the id.
void TableState::close_generation(Entry& entry) {
  set_loss_at(entry, kNever);
  entry.readers.clear();
  note_source_change(entry);
  exists_no_more(entry);
  ordered_.erase(&entry);
  inline_bytes_ -= entry.inline_bytes.size();
  entry.inline_bytes = {};
  entry.is_inline = entry.holder_may_return = false;
  entry.generation = entry.put_request = 0;
  entry.size = entry.chunk_bytes = 0;
  entry.origin_number = 0;
  entry.name = {};
}

void TableState::tell_ended(const Copy& copy, Errc reason, const Turn& turn) {
  const Entry& entry = *copy.entry;
  if (copy.state == CopyState::kWaiting) {
    turn.send(*copy.member, Failed{.request = copy.request,
                                   .code = reason,
                                   .message = fmt::format("{} bytes, generation {}", entry.size,
                                                          entry.generation)});
  } else if (reason == Errc::kDeleted) {
    turn.send(*copy.member, Deleted{.id = entry.id, .generation = entry.generation});
  } else {
    turn.send(*copy.member,
              Withdrawn{.id = entry.id, .generation = entry.generation, .reason = reason});
  }
}

// ---- copies ----

Copy* TableState::find_copy(Member& member, Entry& entry) {
  const auto found = member.copies.find(&entry);
  return found == member.copies.end() ? nullptr : found->second.get();
}

Copy& TableState::add_copy(Entry& entry, Member& member) {
  auto owned = std::make_unique<Copy>();
  Copy& copy = *owned;
  copy.entry = &entry;
  copy.member = &member;
  copy.prev = entry.last;
  (entry.last != nullptr ? entry.last->next : entry.first) = &copy;
  entry.last = &copy;
  ++entry.copies;
  ++entry.receivers;  // begins as kWaiting
  ++copies_;
  member.copies[&entry] = std::move(owned);
  return copy;
}

void TableState::set_state(Copy& copy, CopyState state) {
  const auto receives = [](CopyState s) {
    return s == CopyState::kWaiting || s == CopyState::kFetching || s == CopyState::kOrphan;
  };
  Entry& entry = *copy.entry;
  if (receives(copy.state)) --entry.receivers;
  if (copy.state == CopyState::kOrphan) --entry.orphans;
  if (copy.state == CopyState::kFetching) --edges_;
  if (copy.state == CopyState::kComplete) --entry.complete_copies;
  copy.state = state;
  if (receives(state)) ++entry.receivers;
  if (state == CopyState::kOrphan) ++entry.orphans;
  if (state == CopyState::kFetching) ++edges_;
  if (state == CopyState::kComplete) ++entry.complete_copies;
  if (state != CopyState::kWaiting) set_retry_at(copy, kNever);
}

// Ends the record. REQUIRES: it feeds nobody, or those it feeds are taken out as well.
void TableState::take_out(Copy& copy) {
  Entry& entry = *copy.entry;
  if (is_source(copy)) note_source_change(entry);
  entry.planner.remove(copy, [](PlanNode&) {});
  set_state(copy, CopyState::kFilling);  // the one that is counted nowhere
  (copy.prev != nullptr ? copy.prev->next : entry.first) = copy.next;
  (copy.next != nullptr ? copy.next->prev : entry.last) = copy.prev;
  --entry.copies;
  --copies_;
  copy.member->copies.erase(&entry);
}

// The node no longer has (or wants) it; those it fed are told to look for another parent.
// Call after_drop() next.
void TableState::drop_copy(Copy& copy, Errc reason, const Turn& turn) {
  copy.entry->planner.remove(
      copy, [&](PlanNode& child) { revoke(static_cast<Copy&>(child), reason, turn); });
  take_out(copy);
}

void TableState::add_reader(Entry& entry, Member& member) {
  if (entry.readers.insert(member.slot)) ++member.inline_copies;
}

void TableState::add_holder(Entry& entry, Member& member, bool complete) {
  note_source_change(entry);
  Copy* copy = find_copy(member, entry);
  if (entry.is_inline) {
    if (copy != nullptr) take_out(*copy);
    add_reader(entry, member);
    return;
  }
  if (copy == nullptr) copy = &add_copy(entry, member);
  if (copy->state == CopyState::kComplete) return;
  if (complete) {
    entry.planner.complete(*copy, member.node.number);
  } else if (copy->state != CopyState::kFilling) {
    entry.planner.detach(*copy);
    entry.planner.add_root(*copy, member.node.number);
  }
  set_state(*copy, complete ? CopyState::kComplete : CopyState::kFilling);
  copy->is_leaf = false;
  set_loss_at(entry, kNever);
  entry.holder_may_return = false;
}

// ---- messages ----

void TableState::on(Member& from, const Put& put, const Turn& turn) {
  if (std::string why = why_put_is_invalid(put); !why.empty()) {
    turn.send(
        from,
        Failed{.request = put.request, .code = Errc::kInvalidArgument, .message = std::move(why)});
    return;
  }
  Entry& entry = entry_for(put.id);
  if (entry.exists() && is_same_put(entry, from, put)) {
    turn.send(from, PutReply{.request = put.request, .generation = entry.generation});
    add_holder(entry, from, put.complete);
    serve_waiting(entry, turn);
    return;
  }
  if (entry.maker != nullptr) {
    turn.send(from, Failed{.request = put.request,
                           .code = Errc::kAlreadyExists,
                           .message = "the id is the target of a reduce under way"});
    return;
  }
  if (entry.exists() && entry.has_source()) {
    turn.send(from, Failed{.request = put.request,
                           .code = Errc::kAlreadyExists,
                           .message = fmt::format("the id holds {} bytes, generation {}",
                                                  entry.size, entry.generation)});
    return;
  }
  // No copy of what was there can be completed: the new object takes its place.
  if (entry.exists()) end_generation(entry, Errc::kObjectLost, nullptr, Keep::kNewWaiters, turn);
  begin_generation(entry, last_generation_ + 1, put.name, put.size);
  if (put.size <= kInlineObjectBytes) begin_inline(entry, put.inline_bytes);
  entry.origin_number = from.node.number;
  entry.put_request = put.request;
  add_holder(entry, from, put.complete);
  turn.send(from, PutReply{.request = put.request, .generation = entry.generation});
  announce(entry, turn);
}

// The reply to an earlier one was lost with its connection.
bool TableState::is_same_put(const Entry& entry, const Member& from, const Put& put) const {
  return entry.origin_number == from.node.number && entry.put_request == put.request &&
         entry.size == put.size && entry.name == put.name &&
         std::equal(entry.inline_bytes.begin(), entry.inline_bytes.end(), put.inline_bytes.begin(),
                    put.inline_bytes.end());
}

void TableState::on(Member& from, const Hold& hold, const Turn& turn) {
  const auto refuse = [&] {
    turn.send(from,
              Withdrawn{.id = hold.id, .generation = hold.generation, .reason = Errc::kDeleted});
  };
  if (!valid(hold) || erased_lately(hold.id, hold.generation)) return refuse();
  Entry* existing = find_entry(hold.id);
  if (existing != nullptr && existing->maker != nullptr) return refuse();
  if (existing != nullptr && existing->exists()) {
    const bool other_object =
        existing->generation == hold.generation && existing->size != hold.size;
    if (existing->generation > hold.generation || other_object) return refuse();
    if (existing->generation < hold.generation) {
      end_generation(*existing, Errc::kObjectLost, nullptr, Keep::kNewWaiters, turn);
    }
  }
  Entry& entry = entry_for(hold.id);
  const bool is_new = !entry.exists();
  if (is_new) {
    begin_generation(entry, hold.generation, hold.name, hold.size);
    if (hold.complete && hold.size <= kInlineObjectBytes && hold.inline_bytes.size() == hold.size) {
      begin_inline(entry, hold.inline_bytes);
    }
  }
  if (hold.origin) entry.origin_number = from.node.number;
  add_holder(entry, from, hold.complete);
  if (is_new) {
    announce(entry, turn);
  } else {
    serve_waiting(entry, turn);
  }
}

void TableState::on(Member& from, const Seal& message, const Turn&) {
  Entry* entry = find_living(message.id, message.generation);
  Copy* copy = entry != nullptr ? find_copy(from, *entry) : nullptr;
  if (copy != nullptr && copy->state == CopyState::kFilling) set_state(*copy, CopyState::kComplete);
}

void TableState::on(Member& from, const Abandon& message, const Turn& turn) {
  Entry* entry = find_living(message.id, message.generation);
  Copy* copy = entry != nullptr ? find_copy(from, *entry) : nullptr;
  if (copy == nullptr || copy->state != CopyState::kFilling) return;
  end_generation(*entry, Errc::kAborted, &from, Keep::kNothing, turn);
  release_if_unused(*entry);
}

void TableState::on(Member& from, const Drop& message, const Turn& turn) {
  Entry* entry = find_living(message.id, message.generation);
  if (entry == nullptr) return;
  if (entry->is_inline) {
    if (entry->readers.erase(from.slot)) --from.inline_copies;
    return;
  }
  Copy* copy = find_copy(from, *entry);
  if (copy == nullptr || copy->state != CopyState::kComplete) return;
  drop_copy(*copy, Errc::kConnectionLost, turn);
  after_drop(*entry, false, turn);
}

void TableState::on(Member& from, const Erase& message, const Turn& turn) {
  Entry* entry = find_entry(message.id);
  const bool existed = entry != nullptr && entry->exists();
  if (existed && entry->maker != nullptr) {
    fail_reduce(*entry->maker, Errc::kDeleted, "its target was erased", turn);
  } else if (existed) {
    remember_erased(*entry, turn);
    end_generation(*entry, Errc::kDeleted, nullptr, Keep::kNothing, turn);
    release_if_unused(*entry);
  }
  turn.send(from, EraseReply{.request = message.request, .existed = existed});
}

// ---- what was erased while a holder was away ----

void TableState::remember_erased(const Entry& entry, const Turn& turn) {
  if (!any_break_off_ || turn.now - last_break_off_ > kEraseMemory) return;
  if (erased_queue_.size() >= kMaxEraseMemory) return;
  erased_queue_.push_back({saturating_add(turn.now, kEraseMemory), entry.id, entry.generation});
  erased_[entry.id] = entry.generation;
}

bool TableState::erased_lately(const ObjectId& id, Generation generation) const {
  const auto found = erased_.find(id);
  return found != erased_.end() && generation <= found->second;
}

void TableState::forget_erased(Instant now) {
  while (!erased_queue_.empty() && erased_queue_.front().until <= now) {
    const Erased& oldest = erased_queue_.front();
    const auto found = erased_.find(oldest.id);
    if (found != erased_.end() && found->second == oldest.generation) erased_.erase(found);
    erased_queue_.pop_front();
  }
}

}  // namespace lochos
