// Questions that move nothing: stat, list, wait, and the barrier.
#include <fmt/format.h>

#include <algorithm>

#include "directory/table_state.h"

namespace lochos {
namespace {

constexpr std::uint32_t kDefaultListEntries = 1000;
constexpr std::size_t kMaxListEntries = 4096;
// Of one node, so that a runaway client cannot fill the directory with waits.
constexpr std::size_t kMaxWaitsPerNode = 10'000;

}  // namespace

void TableState::on(Member& from, const Stat& message, const Turn& turn) {
  Entry* entry = find_entry(message.id);
  if (entry == nullptr || !entry->exists()) {
    turn.send(from, Failed{.request = message.request,
                           .code = Errc::kNotFound,
                           .message = "nothing is stored under this id"});
    return;
  }
  StatReply reply{.request = message.request,
                  .generation = entry->generation,
                  .name = entry->name,
                  .size = entry->size,
                  .sealed = entry->is_inline,
                  .is_inline = entry->is_inline,
                  .holders = {}};
  std::size_t bytes = 0;
  const auto add = [&](const Member& member, bool complete, NodeId parent) {
    bytes += 96 + member.join.name.size();
    if (reply.holders.size() >= kMaxStatHolders || bytes > kMaxReplyBytes) return;
    reply.holders.push_back({.node = member.node,
                             .node_name = member.join.name,
                             .complete = complete,
                             .parent = parent});
  };
  entry->readers.for_each([&](std::uint32_t slot) { add(*slots_[slot], true, {}); });
  for (const Copy* copy = entry->first; copy != nullptr; copy = copy->next) {
    if (copy->state == CopyState::kWaiting && !copy->assigned) continue;  // holds nothing yet
    const bool complete = copy->state == CopyState::kComplete;
    reply.sealed |= complete;
    const auto* parent = static_cast<const Copy*>(copy->parent());
    add(*copy->member, complete, parent != nullptr ? parent->member->node : NodeId{});
  }
  turn.send(from, std::move(reply));
}

// Ordered by id through an index that is kept up to date, so a page costs what it shows.
void TableState::on(Member& from, const List& message, const Turn& turn) {
  ListReply reply{.request = message.request, .entries = {}, .more = false};
  const std::size_t limit = std::clamp<std::size_t>(
      message.limit == 0 ? kDefaultListEntries : message.limit, 1, kMaxListEntries);
  std::size_t bytes = 0;
  Entry key;
  key.id = message.after;
  for (auto at = ordered_.upper_bound(&key); at != ordered_.end(); ++at) {
    const Entry& entry = **at;
    bytes += 96 + entry.name.size();
    if (reply.entries.size() >= limit || bytes > kMaxReplyBytes) {
      reply.more = true;
      break;
    }
    reply.entries.push_back({.id = entry.id,
                             .name = entry.name,
                             .size = entry.size,
                             .sealed = entry.is_inline || entry.complete_copies > 0,
                             .holders = static_cast<std::uint32_t>(
                                 entry.is_inline ? entry.readers.count() : entry.complete_copies),
                             .generation = entry.generation});
  }
  turn.send(from, std::move(reply));
}

// ---- wait ----

void TableState::on(Member& from, const Wait& message, const Turn& turn) {
  if (const auto earlier = from.waits.find(message.request); earlier != from.waits.end()) {
    forget_wait(*earlier->second);  // asked again
  }
  std::vector<ObjectId> ids = message.ids;
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  if (message.ids.size() > kMaxWaitIds || message.count > ids.size()) {
    turn.send(from, Failed{.request = message.request,
                           .code = Errc::kInvalidArgument,
                           .message = fmt::format("wait for {} of {} different ids; at most {}",
                                                  message.count, ids.size(), kMaxWaitIds)});
    return;
  }
  if (from.waits.size() >= kMaxWaitsPerNode) {
    turn.send(from, Failed{.request = message.request,
                           .code = Errc::kNoSpace,
                           .message = fmt::format("the node has {} waits running already",
                                                  kMaxWaitsPerNode)});
    return;
  }
  auto owned = std::make_unique<WaitRecord>();
  WaitRecord& wait = *owned;
  wait.member = &from;
  wait.request = message.request;
  wait.needed = message.count;
  wait.entries.reserve(ids.size());
  for (const ObjectId& id : ids) {
    Entry& entry = entry_for(id);
    entry.watchers.push_back(&wait);
    wait.entries.push_back(&entry);
    if (entry.exists()) ++wait.existing;
  }
  from.waits[message.request] = std::move(owned);
  ++waits_;
  if (wait.existing >= wait.needed) finish_wait(wait, turn);
}

void TableState::finish_wait(WaitRecord& wait, const Turn& turn) {
  WaitReply reply{.request = wait.request, .ready = {}};
  for (const Entry* entry : wait.entries) {
    if (entry->exists()) reply.ready.push_back(entry->id);
  }
  turn.send(*wait.member, std::move(reply));
  forget_wait(wait);
}

void TableState::forget_wait(WaitRecord& wait) {
  for (Entry* entry : wait.entries) {
    std::erase(entry->watchers, &wait);
    release_if_unused(*entry);
  }
  --waits_;
  wait.member->waits.erase(wait.request);
}

void TableState::exists_now(Entry& entry, const Turn& turn) {
  std::vector<WaitRecord*> satisfied;
  for (WaitRecord* wait : entry.watchers) {
    if (++wait->existing >= wait->needed) satisfied.push_back(wait);
  }
  for (WaitRecord* wait : satisfied)
    finish_wait(*wait, turn);
}

void TableState::exists_no_more(Entry& entry) {
  for (WaitRecord* wait : entry.watchers)
    --wait->existing;
}

void TableState::on(Member& from, const CancelWait& message, const Turn& turn) {
  cancel_reduce(from, message.request, turn);
  leave_collective(from, message.request, "gave up", turn);
  if (const auto wait = from.waits.find(message.request); wait != from.waits.end()) {
    forget_wait(*wait->second);
  }
  for (auto room = barriers_.begin(); room != barriers_.end();) {
    std::erase(room->second.entered, std::pair(&from, message.request));
    room = room->second.entered.empty() ? barriers_.erase(room) : std::next(room);
  }
}

// ---- barrier ----

void TableState::on(Member& from, const Barrier& message, const Turn& turn) {
  const auto refuse = [&](std::string why) {
    turn.send(from, Failed{.request = message.request,
                           .code = Errc::kInvalidArgument,
                           .message = std::move(why)});
  };
  if (message.members == 0) return refuse("a barrier needs at least one member");
  if (message.name.size() > kMaxNameBytes) {
    return refuse(fmt::format("the barrier's name has {} bytes, more than {}", message.name.size(),
                              kMaxNameBytes));
  }
  BarrierRoom& room = barriers_[message.name];
  if (room.entered.empty()) room.expected = message.members;
  if (room.expected != message.members) {
    return refuse(fmt::format("this member expects {} members, those who wait expect {}",
                              message.members, room.expected));
  }
  const std::pair entry(&from, message.request);
  if (std::find(room.entered.begin(), room.entered.end(), entry) != room.entered.end()) return;
  room.entered.push_back(entry);
  if (room.entered.size() < room.expected) return;
  for (const auto& [member, request] : room.entered) {
    turn.send(*member, BarrierReply{.request = request});
  }
  barriers_.erase(message.name);
}

// A member died: the barriers it had entered, and those that can no longer fill, will never open.
void TableState::leave_barriers(Member& gone, const Turn& turn) {
  for (auto at = barriers_.begin(); at != barriers_.end();) {
    BarrierRoom& room = at->second;
    const bool was_in =
        std::erase_if(room.entered, [&](const auto& entry) { return entry.first == &gone; }) > 0;
    if (!was_in && room.expected <= members_.size()) {
      ++at;
      continue;
    }
    for (const auto& [member, request] : room.entered) {
      turn.send(*member, Failed{.request = request,
                                .code = Errc::kAborted,
                                .message = fmt::format("node {} ('{}') left while others waited",
                                                       gone.node.to_string(), gone.join.name)});
    }
    at = barriers_.erase(at);
  }
}

}  // namespace lochos
