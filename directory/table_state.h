// The inside of a Table (table.h), cut by concern: table.cc (dispatch, time), table_members.cc,
// table_objects.cc (put, erase, hold …), table_edges.cc (get, planning, loss), table_queries.cc
// (stat, list, wait, barrier), table_reduce.cc, table_collective.cc. Not for others.
//
// Ownership: members own their copies and waits; the table owns members and entries. Every pointer
// below is valid as long as both its ends exist: whoever dies is unlinked first.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "directory/reader_set.h"
#include "directory/table.h"
#include "directory/table_reduce.h"
#include "scheduler/broadcast_planner.h"
#include "scheduler/link_model.h"

namespace lochos {

struct Entry;
struct Member;

enum class CopyState : std::uint8_t {
  kWaiting,   // a Get that has no parent (yet, or again)
  kFetching,  // an edge feeds it
  kOrphan,    // its edge was revoked; EdgeFailed or EdgeDone will come
  kFilling,   // its own producer fills it
  kComplete,
};

// What one node has, or wants, of one object.
struct Copy : PlanNode {
  Entry* entry = nullptr;
  Member* member = nullptr;
  Copy* next = nullptr;  // of the same entry, in order of arrival
  Copy* prev = nullptr;
  CopyState state = CopyState::kWaiting;
  bool is_leaf = false;
  bool assigned = false;  // this life of the Get was given a parent before
  std::uint8_t failures = 0;
  std::uint8_t avoid_next = 0;
  std::array<std::uint32_t, 4> avoid{};  // parents it could not pull from
  RequestNumber request = 0;
  EdgeNumber edge = 0;
  std::uint64_t have_bytes = 0;
  Instant retry_at = kNever;
};

struct WaitRecord {
  Member* member = nullptr;
  RequestNumber request = 0;
  std::vector<Entry*> entries;
  std::size_t needed = 0;
  std::size_t existing = 0;
};

// An id that exists, or that somebody waits for. What a get of an inline object touches comes
// first.
struct Entry {
  ObjectId id;
  Generation generation = 0;  // 0: does not exist
  SharedBytes inline_bytes;
  ReaderSet readers;  // of an inline object: the slots of members that hold it
  std::string name;
  bool is_inline = false;
  bool holder_may_return = false;  // while roots are missing: one of them broke off uncleanly
  std::uint32_t copies = 0;
  std::uint32_t receivers = 0;  // waiting, fetching or orphaned
  std::uint32_t orphans = 0;
  std::uint32_t complete_copies = 0;
  std::uint32_t origin_number = 0;  // the node that put it, to know a Put that was sent again
  RequestNumber put_request = 0;
  std::uint64_t size = 0;
  std::uint64_t chunk_bytes = 0;  // chosen at the first Assign, fixed for this generation
  Copy* first = nullptr;
  Copy* last = nullptr;
  Instant loss_at = kNever;
  BroadcastPlanner planner;
  std::vector<WaitRecord*> watchers;
  ReduceRecord* maker = nullptr;  // the running reduce whose target this is
  std::vector<std::pair<ReduceRecord*, std::uint32_t>>
      feeds;                               // reduces it is a source of, and which
  Errc ended_because = Errc::kObjectLost;  // the latest life

  bool exists() const { return generation != 0; }
  // Somewhere there is, or will be, every byte.
  bool has_source() const { return is_inline || planner.roots() > 0; }
};

struct Member {
  NodeId node;
  std::uint32_t slot = 0;           // dense index among living members, for ReaderSet
  std::uint64_t inline_copies = 0;  // inline objects it may hold; 0 spares the search at its end
  Join join;
  Instant last_heard;
  std::unordered_map<Entry*, std::unique_ptr<Copy>> copies;
  std::unordered_map<RequestNumber, std::unique_ptr<WaitRecord>> waits;
  std::unordered_map<RequestNumber, ReduceRecord*> reduces;  // that it asked for
  // Collective operations it takes part in: which, and as which rank.
  std::unordered_map<RequestNumber, std::pair<CollectiveNumber, std::uint32_t>> collectives;
};

struct BarrierRoom {
  std::uint32_t expected = 0;
  std::vector<std::pair<Member*, RequestNumber>> entered;
};

// A collective operation of a group, from its first member until all are done.
struct CollectiveRoom {
  struct Part {
    Member* member = nullptr;
    RequestNumber request = 0;
    Instant deadline = kNever;
    bool done = false;
  };
  CollectiveNumber number = 0;
  std::string name;
  CollectiveSpec spec;                    // of the first; its rank is that member's
  std::map<std::uint32_t, Part> members;  // by rank
  std::uint32_t done = 0;
  std::uint64_t chunk_bytes = 0;
};

// The time and the way out of one call into the table.
struct Turn {
  Instant now;
  Actions& out;
  void send(const Member& to, DirectoryMessage message) const {
    out.push_back({to.node, std::move(message)});
  }
};

class TableState {
 public:
  explicit TableState(const TableOptions& options);

  // table_members.cc
  Result<NodeId> join(const Join& join, const Turn& turn);
  Member* find_member(NodeId node);
  void remove_member(Member& member, bool clean, const Turn& turn);
  void check_liveness(const Turn& turn);
  void on(Member& from, const Members& message, const Turn& turn);

  // table_objects.cc
  void on(Member& from, const Hold& message, const Turn& turn);
  void on(Member& from, const Put& message, const Turn& turn);
  void on(Member& from, const Seal& message, const Turn& turn);
  void on(Member& from, const Abandon& message, const Turn& turn);
  void on(Member& from, const Drop& message, const Turn& turn);
  void on(Member& from, const Erase& message, const Turn& turn);

  // table_edges.cc
  void on(Member& from, const Get& message, const Turn& turn);
  void on(Member& from, const CancelGet& message, const Turn& turn);
  void on(Member& from, const EdgeDone& message, const Turn& turn);
  void on(Member& from, const EdgeFailed& message, const Turn& turn);

  // table_queries.cc
  void on(Member& from, const Stat& message, const Turn& turn);
  void on(Member& from, const List& message, const Turn& turn);
  void on(Member& from, const Wait& message, const Turn& turn);
  void on(Member& from, const CancelWait& message, const Turn& turn);
  void on(Member& from, const Barrier& message, const Turn& turn);

  // table_reduce.cc
  void on(Member& from, const Reduce& message, const Turn& turn);
  void on(Member& from, const ReduceDone& message, const Turn& turn);
  void on(Member& from, const ReduceFailed& message, const Turn& turn);
  // table_collective.cc
  void on(Member& from, const CollectiveJoin& message, const Turn& turn);
  void on(Member& from, const CollectiveDone& message, const Turn& turn);
  void on(Member& from, const CollectiveFailed& message, const Turn& turn);

  // Looks at what happened to sources of reduces since the last time. At the end of each call.
  void settle_reduces(const Turn& turn);

  // Said before or after membership, or says only that the sender lives: see apply().
  void on(Member&, const Join&, const Turn&) {}
  void on(Member&, const Leave&, const Turn&) {}
  void on(Member&, const Heartbeat&, const Turn&) {}

  void run_timers(const Turn& turn);
  Instant next_deadline() const;
  TableStats stats() const;

 private:
  // Entries and copies (table_objects.cc).
  Entry* find_entry(const ObjectId& id);
  Entry* find_living(const ObjectId& id, Generation generation);
  Entry& entry_for(const ObjectId& id);
  void release_if_unused(Entry& entry);
  void begin_generation(Entry& entry, Generation generation, const std::string& name,
                        std::uint64_t size);
  void begin_inline(Entry& entry, SharedBytes bytes);
  void announce(Entry& entry, const Turn& turn);
  void add_reader(Entry& entry, Member& member);
  enum class Keep : bool { kNothing, kNewWaiters };
  void end_generation(Entry& entry, Errc reason, Member* silent, Keep keep, const Turn& turn);
  void close_generation(Entry& entry);
  void tell_ended(const Copy& copy, Errc reason, const Turn& turn);
  bool is_same_put(const Entry& entry, const Member& from, const Put& message) const;
  void add_holder(Entry& entry, Member& member, bool complete);
  Copy* find_copy(Member& member, Entry& entry);
  Copy& add_copy(Entry& entry, Member& member);
  void set_state(Copy& copy, CopyState state);
  void drop_copy(Copy& copy, Errc reason, const Turn& turn);
  void drop_denied_copy(Copy& copy, const Turn& turn);
  void take_out(Copy& copy);
  void remember_erased(const Entry& entry, const Turn& turn);
  bool erased_lately(const ObjectId& id, Generation generation) const;

  // Planning (table_edges.cc).
  void answer(Copy& copy, const Turn& turn);
  void answer_inline(Entry& entry, Member& member, RequestNumber request, bool leaf,
                     const Turn& turn);
  enum class Patience : bool { kNone, kBackOff };
  void assign(Copy& copy, Patience patience, const Turn& turn);
  void send_assign(const Copy& copy, const Turn& turn);
  void revoke(Copy& child, Errc reason, const Turn& turn);
  void serve_waiting(Entry& entry, const Turn& turn);
  void after_drop(Entry& entry, bool may_return, const Turn& turn);
  void lose(Entry& entry, const Turn& turn);
  void note_failure(Copy& copy, const EdgeFailed& message, const Copy* parent);
  void set_loss_at(Entry& entry, Instant when);
  void set_retry_at(Copy& copy, Instant when);
  std::uint32_t degree_for(Entry& entry);

  // Waits and barriers (table_queries.cc).
  void exists_now(Entry& entry, const Turn& turn);
  void exists_no_more(Entry& entry);
  void finish_wait(WaitRecord& wait, const Turn& turn);
  void forget_wait(WaitRecord& wait);
  void leave_barriers(Member& member, const Turn& turn);

  // Reduces (table_reduce.cc).
  static bool is_source(const Copy& copy) {
    return copy.state == CopyState::kComplete || copy.state == CopyState::kFilling;
  }
  Member* find_number(std::uint32_t number);
  void note_source_change(Entry& entry);
  void note_change(ReduceRecord& reduce, std::uint32_t position);
  bool holds(const ReduceRecord::Contribution& contribution);
  bool drop_contribution_if_gone(ReduceRecord& reduce, std::uint32_t position, const Turn& turn);
  void forget_plan(ReduceRecord& reduce, const Turn& turn);
  static Copy* choose_contributor(Entry& entry, const ReduceRecord::Contribution& contribution);
  static std::uint32_t likely_contributor(const ReduceRecord& reduce, std::uint32_t position);
  bool take_contribution(ReduceRecord& reduce, std::uint32_t position, const Turn& turn);
  bool check_size(ReduceRecord& reduce, std::uint32_t position, const Turn& turn);
  void reduce_inline(ReduceRecord& reduce, const Turn& turn);
  bool add_to_plan(ReduceRecord& reduce, std::uint32_t position, const Turn& turn);
  bool drop_from_plan(ReduceRecord& reduce, std::uint32_t position, const Turn& turn);
  void begin_plan(ReduceRecord& reduce);
  bool check_attempts(ReduceRecord& reduce, const Turn& turn);
  void apply_plan(ReduceRecord& reduce, const ReducePlan::Changes& changes, const Turn& turn);
  static std::uint32_t source_position(const ReduceRecord& reduce, std::uint32_t in_plan);
  static bool needs_task(const ReduceRecord& reduce, ReducePlan::Slot slot);
  static ReduceInput input_at(Member& member, const ObjectId& id, Generation generation);
  std::vector<ReduceInput> inputs_of(ReduceRecord& reduce, ReducePlan::Slot slot, const Turn& turn);
  void update_task(ReduceRecord& reduce, ReducePlan::Slot slot, const Turn& turn);
  void begin_target(ReduceRecord& reduce, ReduceRecord::SlotTask& task, Member& owner);
  void cancel_task(ReduceRecord& reduce, ReducePlan::Slot slot, const Turn& turn);
  void restart_target(Entry& target, const Turn& turn);
  void restart_upwards(ReduceRecord& reduce, ReducePlan::Slot slot, const Turn& turn);
  void contribution_failed(ReduceRecord& reduce, std::uint32_t position,
                           const ReduceFailed& message, const Turn& turn);
  void commit_if_final(ReduceRecord& reduce, const Turn& turn);
  static std::string missing_sources(const ReduceRecord& reduce);
  void expire_reduces(const Turn& turn);
  void cancel_reduce(Member& caller, RequestNumber request, const Turn& turn);
  void fail_reduce(ReduceRecord& reduce, Errc code, std::string message, const Turn& turn);
  void abandon_target(ReduceRecord& reduce, Errc reason, const Turn& turn);
  void end_reduce(ReduceRecord& reduce, const Turn& turn);
  void end_record(ReduceRecord& reduce);

  // Collective operations (table_collective.cc).
  void introduce(CollectiveRoom& room, std::uint32_t rank, const Turn& turn);
  CollectiveRoom* find_collective(const Member& from, CollectiveNumber number, std::uint32_t rank);
  void leave_collective(Member& member, RequestNumber request, std::string_view why,
                        const Turn& turn);
  void fail_collective(CollectiveRoom& room, Errc code, std::string message, const Turn& turn);
  void end_collective(CollectiveRoom& room, const Turn& turn);
  static std::string missing_members(const CollectiveRoom& room);
  void expire_collectives(const Turn& turn);
  void forget_failed_collectives(Instant now);

  void forget_erased(Instant now);

  const TableOptions options_;
  LinkModel links_;
  std::unordered_map<std::uint32_t, std::unique_ptr<Member>> members_;
  std::vector<Member*> slots_;  // null: free
  std::vector<std::uint32_t> free_slots_;
  std::unordered_map<ObjectId, Entry, ObjectIdHash> entries_;  // addresses are stable
  struct ById {
    bool operator()(const Entry* a, const Entry* b) const { return a->id < b->id; }
  };
  std::set<Entry*, ById> ordered_;  // those that exist, for List
  std::map<std::string, BarrierRoom> barriers_;
  std::set<std::pair<Instant, Entry*>> losses_;
  std::set<std::pair<Instant, Copy*>> retries_;
  // Erased while a holder that broke off might still come back with a copy.
  struct Erased {
    Instant until;
    ObjectId id;
    Generation generation;
  };
  std::deque<Erased> erased_queue_;
  std::unordered_map<ObjectId, Generation, ObjectIdHash> erased_;

  std::unordered_map<ReduceNumber, std::unique_ptr<ReduceRecord>> reduces_;
  std::set<std::pair<Instant, ReduceRecord*>> reduce_deadlines_;
  std::vector<ReduceNumber> changed_reduces_;
  ReduceNumber last_reduce_ = 0;

  std::unordered_map<CollectiveNumber, CollectiveRoom> collectives_;    // addresses are stable
  std::unordered_map<std::string, CollectiveNumber> collective_names_;  // that still fill
  // Of members that have not given up or ended: when, which operation, which rank.
  std::set<std::tuple<Instant, CollectiveNumber, std::uint32_t>> collective_deadlines_;
  struct FailedCollective {
    Errc code = Errc::kAborted;
    std::string message;
  };
  std::unordered_map<std::string, FailedCollective> failed_collectives_;
  std::deque<std::pair<Instant, std::string>> failed_queue_;
  CollectiveNumber last_collective_;

  Generation last_generation_;
  std::uint64_t last_incarnation_;
  std::uint32_t last_number_ = 0;
  EdgeNumber last_edge_ = 0;
  Instant liveness_at_ = kNever;  // no member can be dead before this
  Instant last_break_off_{};      // when a member last went without goodbye
  bool any_break_off_ = false;
  std::size_t copies_ = 0, edges_ = 0, waits_ = 0;
  std::uint64_t inline_bytes_ = 0;
};

}  // namespace lochos
