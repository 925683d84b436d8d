// Collective operations of known groups: who is there, where they are, and when all are done. What
// moves between them is their own business (scheduler/collective_plan.h).
#include <fmt/format.h>

#include <algorithm>

#include "directory/table_state.h"
#include "scheduler/chunk_size.h"

namespace lochos {
namespace {

// Of one node, so that a runaway client cannot fill the directory.
constexpr std::size_t kMaxCollectivesPerNode = 10'000;
// A failed operation is remembered for members that have not come yet.
constexpr Duration kFailureMemory = std::chrono::seconds(60);
constexpr std::size_t kMaxFailureMemory = 10'000;
constexpr std::size_t kRanksInMessage = 8;

std::string describe(const CollectiveSpec& spec) {
  return fmt::format("{} of {} bytes, {} members, root {}, {} of {}", to_string(spec.kind),
                     spec.size, spec.members, spec.root, to_string(spec.op), to_string(spec.dtype));
}

bool same_operation(CollectiveSpec one, const CollectiveSpec& other) {
  one.rank = other.rank;
  one.schedule = other.schedule;
  return one == other;
}

std::size_t wire_size(const Join& join) {
  std::size_t bytes = 64;
  for (const RailAddress& rail : join.rails)
    bytes += 32 + rail.address.size();
  return bytes;
}

}  // namespace

void TableState::on(Member& from, const CollectiveJoin& message, const Turn& turn) {
  const auto refuse = [&](Errc code, std::string why) {
    turn.send(from, Failed{.request = message.request, .code = code, .message = std::move(why)});
  };
  if (const Status valid = check(message.spec); !valid)
    return refuse(Errc::kInvalidArgument, valid.error().message());
  if (message.name.empty() || message.name.size() > kMaxNameBytes)
    return refuse(Errc::kInvalidArgument, "the operation's name is empty or too long");
  if (from.collectives.size() >= kMaxCollectivesPerNode ||
      from.collectives.contains(message.request))
    return refuse(Errc::kNoSpace, "the node has too many collective operations running");
  if (const auto failed = failed_collectives_.find(message.name);
      failed != failed_collectives_.end())
    return refuse(failed->second.code, failed->second.message);

  const auto [named, is_new] = collective_names_.try_emplace(message.name, 0);
  if (is_new) {
    named->second = ++last_collective_;
    CollectiveRoom& room = collectives_[named->second];
    room.number = named->second;
    room.name = message.name;
    room.spec = message.spec;
    room.spec.schedule = choose_schedule(message.spec, links_.overall());
  }
  CollectiveRoom& room = collectives_.at(named->second);
  if (!same_operation(room.spec, message.spec)) {
    std::string why = fmt::format("rank {} says {}; rank {} says {}", message.spec.rank,
                                  describe(message.spec), room.spec.rank, describe(room.spec));
    refuse(Errc::kInvalidArgument, why);
    fail_collective(room, Errc::kInvalidArgument, std::move(why), turn);
    return;
  }
  const std::uint32_t rank = message.spec.rank;
  if (room.members.contains(rank)) {
    refuse(Errc::kInvalidArgument, fmt::format("rank {} is there already", rank));
    return;
  }
  const Instant deadline = saturating_add(turn.now, message.timeout);
  room.members[rank] = {.member = &from, .request = message.request, .deadline = deadline};
  if (deadline != kNever) collective_deadlines_.insert({deadline, room.number, rank});
  from.collectives[message.request] = {room.number, rank};
  introduce(room, rank, turn);
  // All are there: the name is free for the next operation.
  if (room.members.size() == room.spec.members) collective_names_.erase(room.name);
}

// Tells the new member of those it pulls from, and those that pull from it of the new one.
void TableState::introduce(CollectiveRoom& room, std::uint32_t rank, const Turn& turn) {
  const CollectiveRoom::Part& part = room.members.at(rank);
  const auto describe_peer = [](std::uint32_t peer, const Member& member) {
    return CollectivePeer{.rank = peer,
                          .node = member.node,
                          .rails = member.join.rails,
                          .policy = member.join.policy};
  };
  if (room.chunk_bytes == 0) {
    room.chunk_bytes = chunk_size(input_block(room.spec, 0).bytes, links_.overall(),
                                  std::max(1U, room.spec.members - 1));
  }
  CollectivePeers reply{.request = part.request,
                        .collective = room.number,
                        .chunk_bytes = room.chunk_bytes,
                        .peers = {},
                        .schedule = room.spec.schedule};
  std::size_t bytes = 0;
  for (const auto& [other, theirs] : room.members) {
    if (!pulls_from(room.spec, rank, other)) continue;
    bytes += wire_size(theirs.member->join);
    if (bytes > kMaxReplyBytes) {
      turn.send(*part.member, reply);
      reply.peers.clear();
      bytes = 0;
    }
    reply.peers.push_back(describe_peer(other, *theirs.member));
  }
  turn.send(*part.member, std::move(reply));
  // Later: if they are on the same node, the new member's streams must be there when others hear
  // of it.
  for (const auto& [other, theirs] : room.members) {
    if (!pulls_from(room.spec, other, rank)) continue;
    turn.send(*theirs.member, CollectivePeers{.request = theirs.request,
                                              .collective = room.number,
                                              .chunk_bytes = room.chunk_bytes,
                                              .peers = {describe_peer(rank, *part.member)},
                                              .schedule = room.spec.schedule});
  }
}

CollectiveRoom* TableState::find_collective(const Member& from, CollectiveNumber number,
                                            std::uint32_t rank) {
  const auto found = collectives_.find(number);
  if (found == collectives_.end()) return nullptr;
  const auto part = found->second.members.find(rank);
  if (part == found->second.members.end() || part->second.member != &from) return nullptr;
  return &found->second;
}

void TableState::on(Member& from, const CollectiveDone& message, const Turn& turn) {
  CollectiveRoom* room = find_collective(from, message.collective, message.rank);
  if (room == nullptr || std::exchange(room->members.at(message.rank).done, true)) return;
  if (++room->done == room->spec.members) end_collective(*room, turn);
}

void TableState::on(Member& from, const CollectiveFailed& message, const Turn& turn) {
  CollectiveRoom* room = find_collective(from, message.collective, message.rank);
  if (room == nullptr) return;
  fail_collective(*room, message.reason,
                  fmt::format("rank {} ('{}'): {}", message.rank, from.join.name, message.message),
                  turn);
}

// Its node died, or its caller gave up.
void TableState::leave_collective(Member& member, RequestNumber request, std::string_view why,
                                  const Turn& turn) {
  const auto found = member.collectives.find(request);
  if (found == member.collectives.end()) return;
  const auto [number, rank] = found->second;
  CollectiveRoom& room = collectives_.at(number);
  room.members.at(rank).done = true;  // no word to it
  fail_collective(room, Errc::kAborted,
                  fmt::format("rank {} ('{}') {}", rank, member.join.name, why), turn);
}

void TableState::fail_collective(CollectiveRoom& room, Errc code, std::string message,
                                 const Turn& turn) {
  for (const auto& [rank, part] : room.members) {
    if (part.done) continue;
    turn.send(*part.member, Failed{.request = part.request, .code = code, .message = message});
  }
  if (room.members.size() < room.spec.members && failed_queue_.size() < kMaxFailureMemory) {
    failed_queue_.push_back({saturating_add(turn.now, kFailureMemory), room.name});
    failed_collectives_[room.name] = {code, std::move(message)};
  }
  end_collective(room, turn);
}

void TableState::end_collective(CollectiveRoom& room, const Turn& turn) {
  for (const auto& [rank, part] : room.members) {
    part.member->collectives.erase(part.request);
    collective_deadlines_.erase({part.deadline, room.number, rank});
    if (find_member(part.member->node) == nullptr) continue;  // it is the one that is gone
    turn.send(*part.member, CollectiveEnd{.collective = room.number});
  }
  const auto named = collective_names_.find(room.name);
  if (named != collective_names_.end() && named->second == room.number)
    collective_names_.erase(named);
  collectives_.erase(room.number);
}

std::string TableState::missing_members(const CollectiveRoom& room) {
  std::string ranks;
  std::size_t missing = 0;
  for (std::uint32_t rank = 0; rank < room.spec.members; ++rank) {
    if (room.members.contains(rank)) continue;
    if (++missing <= kRanksInMessage) ranks += fmt::format("{}{}", missing == 1 ? "" : ", ", rank);
  }
  if (missing == 0) return "all members are there, but their streams have not ended";
  if (missing > kRanksInMessage) ranks += fmt::format(" and {} more", missing - kRanksInMessage);
  return fmt::format("{} of {} members are there; missing: rank {}", room.members.size(),
                     room.spec.members, ranks);
}

// A member whose time is over hears for whom it waited, and the others that it gave up.
void TableState::expire_collectives(const Turn& turn) {
  while (!collective_deadlines_.empty() &&
         std::get<Instant>(*collective_deadlines_.begin()) <= turn.now) {
    const auto [deadline, number, rank] = *collective_deadlines_.begin();
    collective_deadlines_.erase(collective_deadlines_.begin());
    const CollectiveRoom& room = collectives_.at(number);
    const CollectiveRoom::Part part = room.members.at(rank);
    if (part.done) continue;  // it has its result
    turn.send(*part.member, Failed{.request = part.request,
                                   .code = Errc::kTimedOut,
                                   .message = "the deadline passed; " + missing_members(room)});
    leave_collective(*part.member, part.request, "gave up", turn);
  }
}

void TableState::forget_failed_collectives(Instant now) {
  while (!failed_queue_.empty() && failed_queue_.front().first <= now) {
    failed_collectives_.erase(failed_queue_.front().second);
    failed_queue_.pop_front();
  }
}

}  // namespace lochos
