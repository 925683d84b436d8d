// Reduces: which sources go in, who combines what, and what happens when somebody dies.
//
// A source that exists is a contribution of the node that holds it. The plan (scheduler/) gives it
// a slot in a tree; a slot with more than one input is a task of its node, whose output the
// parent's task takes in. A slot with one source alone needs no task: its stream is the source. The
// root's output is the target, an object like any other, except that its readers get it only after
// the commit: what was lost before is made anew under another attempt and generation.
#include "directory/table_reduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_set>

#include "compute/reduce_kernels.h"
#include "directory/table_state.h"
#include "scheduler/chunk_size.h"

namespace lochos {
namespace {

// A reduce whose attempts go round in circles ends.
constexpr AttemptNumber kMaxAttempts = 10'000;
// Of one node, so that a runaway client cannot fill the directory.
constexpr std::size_t kMaxReducesPerNode = 10'000;
constexpr std::size_t kNamesInMessage = 5;

std::string quoted(const ReduceSource& source) {
  return "'" + (source.name.empty() ? source.id.to_hex() : source.name) + "'";
}

std::string why_reduce_is_invalid(const Reduce& reduce) {
  if (reduce.name.size() > kMaxNameBytes) return "the target's name is too long";
  if (reduce.sources.empty()) return "no sources";
  if (reduce.sources.size() > kMaxReduceSources) {
    return fmt::format("{} sources, more than {}", reduce.sources.size(), kMaxReduceSources);
  }
  if (reduce.count == 0 || reduce.count > reduce.sources.size()) {
    return fmt::format("a count of {} for {} sources", reduce.count, reduce.sources.size());
  }
  if (!supported(reduce.op, reduce.dtype)) {
    return fmt::format("{} of {} is not defined", to_string(reduce.op), to_string(reduce.dtype));
  }
  std::unordered_set<ObjectId, ObjectIdHash> seen;
  for (const ReduceSource& source : reduce.sources) {
    if (source.id == reduce.target) return fmt::format("{} is the target too", quoted(source));
    if (!seen.insert(source.id).second) return fmt::format("{} is named twice", quoted(source));
  }
  return {};
}

// Names the output of a task that is not the target. No name's hash and no caller's random id meets
// it by accident.
ObjectId output_id(std::uint64_t epoch, ReduceNumber reduce, ReducePlan::Slot slot,
                   AttemptNumber attempt) {
  std::uint64_t mixed = epoch * 0x9e3779b97f4a7c15U;
  for (const std::uint64_t part : {reduce, std::uint64_t{slot}, attempt}) {
    mixed = (mixed ^ part) * 0xbf58476d1ce4e5b9U;
    mixed ^= mixed >> 29;
  }
  const std::array<std::uint64_t, 4> words{mixed, epoch, reduce, (attempt << 24) ^ slot};
  ObjectId id;
  std::memcpy(id.bytes.data(), words.data(), sizeof words);
  return id;
}

}  // namespace

ReduceRecord::ReduceRecord(const Reduce& message)
    : request(message), number_of_request(message.request) {
  contributions.resize(request.sources.size());
}

// ---- beginning ----

void TableState::on(Member& from, const Reduce& message, const Turn& turn) {
  const auto refuse = [&](Errc code, std::string why) {
    turn.send(from, Failed{.request = message.request, .code = code, .message = std::move(why)});
  };
  if (std::string why = why_reduce_is_invalid(message); !why.empty())
    return refuse(Errc::kInvalidArgument, std::move(why));
  if (from.reduces.contains(message.request)) return;  // asked again; it runs
  if (from.reduces.size() >= kMaxReducesPerNode)
    return refuse(Errc::kNoSpace, "the node has too many reduces running");
  Entry& target = entry_for(message.target);
  if (target.maker != nullptr || (target.exists() && target.has_source())) {
    refuse(Errc::kAlreadyExists, target.maker != nullptr
                                     ? std::string("another reduce makes the target")
                                     : fmt::format("the target's id holds {} bytes, generation {}",
                                                   target.size, target.generation));
    return;
  }
  if (target.exists()) end_generation(target, Errc::kObjectLost, nullptr, Keep::kNewWaiters, turn);

  auto owned = std::make_unique<ReduceRecord>(message);
  ReduceRecord& reduce = *owned;
  reduce.number = ++last_reduce_;
  reduce.caller = &from;
  reduce.target = &target;
  target.maker = &reduce;
  reduce.deadline = saturating_add(turn.now, message.timeout);
  if (reduce.deadline != kNever) reduce_deadlines_.insert({reduce.deadline, &reduce});
  from.reduces[message.request] = &reduce;
  reduces_.emplace(reduce.number, std::move(owned));
  for (std::uint32_t i = 0; i < reduce.request.sources.size(); ++i) {
    Entry& source = entry_for(reduce.request.sources[i].id);
    reduce.contributions[i].entry = &source;
    source.feeds.push_back({&reduce, i});
    if (source.exists()) note_change(reduce, i);
  }
}

// ---- sources come and go ----

// Something about the copies of this entry has changed; settle_reduces() looks at it at the end of
// the turn.
void TableState::note_source_change(Entry& entry) {
  for (const auto& [reduce, position] : entry.feeds)
    note_change(*reduce, position);
}

void TableState::note_change(ReduceRecord& reduce, std::uint32_t position) {
  if (reduce.changed.empty()) changed_reduces_.push_back(reduce.number);
  reduce.changed.push_back(position);
}

void TableState::settle_reduces(const Turn& turn) {
  while (!changed_reduces_.empty()) {
    const ReduceNumber number = changed_reduces_.back();
    changed_reduces_.pop_back();
    const auto found = reduces_.find(number);
    if (found == reduces_.end()) continue;
    ReduceRecord& reduce = *found->second;
    std::vector<std::uint32_t> positions = std::exchange(reduce.changed, {});
    std::sort(positions.begin(), positions.end());
    positions.erase(std::unique(positions.begin(), positions.end()), positions.end());
    // What is gone makes room before what has come takes its place.
    bool alive = true;
    for (std::size_t i = 0; i < positions.size() && alive; ++i)
      alive = drop_contribution_if_gone(reduce, positions[i], turn);
    if (!alive) continue;
    // Those of one node come together: then they are combined before they leave it.
    std::stable_sort(positions.begin(), positions.end(),
                     [&](std::uint32_t one, std::uint32_t other) {
                       return likely_contributor(reduce, one) < likely_contributor(reduce, other);
                     });
    for (std::size_t i = 0; i < positions.size() && alive; ++i)
      alive = take_contribution(reduce, positions[i], turn);
    if (alive) commit_if_final(reduce, turn);
  }
}

bool TableState::holds(const ReduceRecord::Contribution& contribution) {
  const Entry& entry = *contribution.entry;
  if (entry.generation != contribution.generation) return false;
  if (entry.is_inline) return true;
  Member* member = find_member(contribution.node);
  const Copy* copy = member != nullptr ? find_copy(*member, *contribution.entry) : nullptr;
  return copy != nullptr && is_source(*copy);
}

// Each returns whether the reduce still runs.
bool TableState::drop_contribution_if_gone(ReduceRecord& reduce, std::uint32_t position,
                                           const Turn& turn) {
  ReduceRecord::Contribution& contribution = reduce.contributions[position];
  if (contribution.generation == 0 || holds(contribution)) return true;
  const bool erased = contribution.entry->ended_because == Errc::kDeleted;
  contribution.generation = 0;
  --reduce.ready;
  // Erased on purpose it will not come back by itself; lost it may be put again. This comes before
  // the plan is changed, so that readers of the target fail and are not told to begin anew.
  if (erased) {
    contribution.erased = true;
    ++reduce.erased;
    if (reduce.request.sources.size() - reduce.erased < reduce.request.count) {
      fail_reduce(reduce, Errc::kDeleted,
                  fmt::format("source {} was erased", quoted(reduce.request.sources[position])),
                  turn);
      return false;
    }
  }
  if (!drop_from_plan(reduce, position, turn)) return false;
  if (reduce.ready == 0) {  // what comes next says how large the sources are
    forget_plan(reduce, turn);
    reduce.sized_by = ReduceRecord::kNobody;
  }
  return true;
}

// Nothing of what was planned can be used.
void TableState::forget_plan(ReduceRecord& reduce, const Turn& turn) {
  for (ReducePlan::Slot slot = 0; slot < reduce.tasks.size(); ++slot)
    cancel_task(reduce, slot, turn);
  reduce.plan.reset();
  reduce.chosen.clear();
}

Copy* TableState::choose_contributor(Entry& entry, const ReduceRecord::Contribution& contribution) {
  Copy* chosen = nullptr;
  for (Copy* copy = entry.first; copy != nullptr; copy = copy->next) {
    if (!is_source(*copy)) continue;
    const NodeId node = copy->member->node;
    if (std::find(contribution.avoid.begin(), contribution.avoid.end(), node) !=
        contribution.avoid.end())
      continue;
    if (node.number == entry.origin_number) return copy;  // never evicted
    if (chosen == nullptr) chosen = copy;
  }
  return chosen;
}

std::uint32_t TableState::likely_contributor(const ReduceRecord& reduce, std::uint32_t position) {
  const ReduceRecord::Contribution& contribution = reduce.contributions[position];
  if (!contribution.entry->exists() || contribution.entry->is_inline) return 0;
  const Copy* copy = choose_contributor(*contribution.entry, contribution);
  return copy != nullptr ? copy->member->node.number : 0;
}

bool TableState::take_contribution(ReduceRecord& reduce, std::uint32_t position, const Turn& turn) {
  ReduceRecord::Contribution& contribution = reduce.contributions[position];
  Entry& entry = *contribution.entry;
  if (contribution.generation != 0 || !entry.exists()) return true;
  Copy* copy = nullptr;
  if (!entry.is_inline) {
    copy = choose_contributor(entry, contribution);
    if (copy == nullptr) return true;
  }
  if (!check_size(reduce, position, turn)) return false;
  if (std::exchange(contribution.erased, false)) --reduce.erased;
  contribution.generation = entry.generation;
  contribution.node = copy != nullptr ? copy->member->node : NodeId{};
  ++reduce.ready;
  if (entry.is_inline) {
    reduce.arrived.push_back(position);
    if (reduce.ready < reduce.request.count) return true;
    reduce_inline(reduce, turn);
    return false;
  }
  return add_to_plan(reduce, position, turn);
}

bool TableState::check_size(ReduceRecord& reduce, std::uint32_t position, const Turn& turn) {
  const Entry& entry = *reduce.contributions[position].entry;
  const ReduceSource& source = reduce.request.sources[position];
  const std::size_t element = element_size(reduce.request.dtype);
  if (entry.size % element != 0) {
    fail_reduce(reduce, Errc::kInvalidArgument,
                fmt::format("source {} has {} bytes, no multiple of the {} of an element of {} "
                            "(target '{}')",
                            quoted(source), entry.size, element, to_string(reduce.request.dtype),
                            reduce.request.name),
                turn);
    return false;
  }
  if (reduce.sized_by == ReduceRecord::kNobody) {
    reduce.sized_by = position;
    reduce.size = entry.size;
  }
  if (entry.size == reduce.size) return true;
  fail_reduce(reduce, Errc::kInvalidArgument,
              fmt::format("source {} has {} bytes, but source {} has {}", quoted(source),
                          entry.size, quoted(reduce.request.sources[reduce.sized_by]), reduce.size),
              turn);
  return false;
}

// ---- small ones: the directory has the bytes ----

void TableState::reduce_inline(ReduceRecord& reduce, const Turn& turn) {
  std::vector<std::uint32_t> positions;
  for (const std::uint32_t position : reduce.arrived) {
    if (reduce.contributions[position].generation != 0 &&
        std::find(positions.begin(), positions.end(), position) == positions.end())
      positions.push_back(position);
  }
  if (reduce.request.deterministic) std::sort(positions.begin(), positions.end());
  std::vector<const std::byte*> inputs;
  for (const std::uint32_t position : positions)
    inputs.push_back(reduce.contributions[position].entry->inline_bytes.data());
  Bytes sum(reduce.size);
  if (reduce.size > 0) {
    reduce_many(reduce.request.op, reduce.request.dtype, sum.data(), inputs, sum.size());
    if (reduce.request.op == ReduceOp::kAverage)
      scale(reduce.request.dtype, sum.data(), sum.size(), positions.size());
  }
  Entry& target = *reduce.target;
  Member& caller = *reduce.caller;
  const Reduce request = std::move(reduce.request);
  std::sort(positions.begin(), positions.end());
  end_record(reduce);
  begin_generation(target, last_generation_ + 1, request.name, sum.size());
  begin_inline(target, std::move(sum));
  turn.send(caller, ReduceReply{.request = request.request,
                                .generation = target.generation,
                                .size = target.size,
                                .included = std::move(positions)});
  announce(target, turn);
}

// ---- the plan ----

bool TableState::add_to_plan(ReduceRecord& reduce, std::uint32_t position, const Turn& turn) {
  if (!reduce.plan) {
    // Fewer sources than there are, and always the same bits: who they are must be known first.
    const bool choose_first =
        reduce.request.deterministic && reduce.request.count < reduce.request.sources.size();
    if (choose_first && reduce.ready < reduce.request.count) return true;
    begin_plan(reduce);
    if (choose_first) {
      for (std::uint32_t i = 0; i < reduce.contributions.size(); ++i) {
        if (reduce.contributions[i].generation != 0 && reduce.chosen.size() < reduce.request.count)
          reduce.chosen.push_back(i);
      }
      for (std::uint32_t rank = 0; rank < reduce.chosen.size(); ++rank)
        apply_plan(reduce,
                   reduce.plan->add(rank, reduce.contributions[reduce.chosen[rank]].node.number),
                   turn);
      return check_attempts(reduce, turn);
    }
  } else if (!reduce.chosen.empty()) {
    return true;  // a spare; the choice is made
  }
  apply_plan(reduce, reduce.plan->add(position, reduce.contributions[position].node.number), turn);
  return check_attempts(reduce, turn);
}

void TableState::begin_plan(ReduceRecord& reduce) {
  const Reduce& request = reduce.request;
  const LinkEstimate link = links_.overall();
  const bool all = request.count == request.sources.size();
  const std::uint32_t degree =
      request.deterministic ? 1 : reduce_degree(reduce.size, link, request.count);
  reduce.plan.emplace(ReducePlanOptions{
      .count = request.count,
      .degree = degree,
      .by_index = request.deterministic,
      .wanted_at = all && !request.deterministic ? reduce.caller->node.number : 0});
  reduce.tasks.resize(reduce.plan->slots());
  reduce.chunk_bytes = chunk_size(reduce.size, link, std::max(1U, request.count - 1));
}

bool TableState::drop_from_plan(ReduceRecord& reduce, std::uint32_t position, const Turn& turn) {
  if (!reduce.plan) return true;
  if (!reduce.chosen.empty()) {
    const auto chosen = std::find(reduce.chosen.begin(), reduce.chosen.end(), position);
    if (chosen == reduce.chosen.end()) return true;
    forget_plan(reduce, turn);  // another choice will be made
    for (std::uint32_t i = 0; i < reduce.contributions.size(); ++i) {
      if (reduce.contributions[i].generation == 0) continue;
      return add_to_plan(reduce, i, turn);
    }
    return true;
  }
  apply_plan(reduce, reduce.plan->remove(position), turn);
  return check_attempts(reduce, turn);
}

bool TableState::check_attempts(ReduceRecord& reduce, const Turn& turn) {
  if (reduce.attempts < kMaxAttempts) return true;
  fail_reduce(reduce, Errc::kUnreachable, "too many attempts failed", turn);
  return false;
}

void TableState::apply_plan(ReduceRecord& reduce, const ReducePlan::Changes& changes,
                            const Turn& turn) {
  for (const ReducePlan::Slot slot : changes.restarted)
    cancel_task(reduce, slot, turn);
  for (const ReducePlan::Slot slot : changes.restarted)
    update_task(reduce, slot, turn);
  for (const ReducePlan::Slot slot : changes.changed)
    update_task(reduce, slot, turn);
}

std::uint32_t TableState::source_position(const ReduceRecord& reduce, std::uint32_t in_plan) {
  return reduce.chosen.empty() ? in_plan : reduce.chosen[in_plan];
}

bool TableState::needs_task(const ReduceRecord& reduce, ReducePlan::Slot slot) {
  return reduce.plan->expected_inputs(slot) > 1 || reduce.plan->is_root(slot);
}

ReduceInput TableState::input_at(Member& member, const ObjectId& id, Generation generation) {
  return {.id = id,
          .generation = generation,
          .node = member.node,
          .rails = member.join.rails,
          .policy = member.join.policy};
}

// The streams that are known by now, in the order in which they are combined.
std::vector<ReduceInput> TableState::inputs_of(ReduceRecord& reduce, ReducePlan::Slot slot,
                                               const Turn& turn) {
  std::vector<ReduceInput> inputs;
  const auto add_sources = [&](ReducePlan::Slot of) {
    for (const std::uint32_t in_plan : reduce.plan->sources(of)) {
      const ReduceRecord::Contribution& source =
          reduce.contributions[source_position(reduce, in_plan)];
      if (Member* holder = find_member(source.node))
        inputs.push_back(input_at(*holder, source.entry->id, source.generation));
    }
  };
  const std::vector<ReducePlan::Slot> children = reduce.plan->children(slot);
  const std::uint32_t before = reduce.plan->children_before(slot);
  for (std::uint32_t i = 0; i <= children.size(); ++i) {
    if (i == before) add_sources(slot);
    if (i == children.size()) break;
    const ReducePlan::Slot child = children[i];
    if (!needs_task(reduce, child)) {
      add_sources(child);
      continue;
    }
    if (reduce.tasks[child].attempt == 0) update_task(reduce, child, turn);
    const ReduceRecord::SlotTask& task = reduce.tasks[child];
    if (Member* member = find_member(task.node))
      inputs.push_back(input_at(*member, task.output, task.generation));
  }
  return inputs;
}

// Makes the slot's node do what the plan says now.
void TableState::update_task(ReduceRecord& reduce, ReducePlan::Slot slot, const Turn& turn) {
  ReduceRecord::SlotTask& task = reduce.tasks[slot];
  if (!reduce.plan->filled(slot) || !needs_task(reduce, slot)) {
    cancel_task(reduce, slot, turn);
    return;
  }
  Member* const owner = find_number(reduce.plan->owner(slot));
  if (owner == nullptr) return;  // gone; its contributions will be taken out one by one
  const bool is_target = reduce.plan->is_root(slot);
  const std::uint32_t expected = reduce.plan->expected_inputs(slot);
  std::vector<ReduceInput> inputs = inputs_of(reduce, slot, turn);
  // What has perhaps begun cannot take in more than it was told of, nor become the target.
  if (task.attempt != 0 && (expected > task.expected || is_target != task.is_target))
    cancel_task(reduce, slot, turn);
  if (task.attempt == 0) {
    task.node = owner->node;
    task.attempt = ++reduce.attempts;
    task.is_target = is_target;
    if (is_target) {
      begin_target(reduce, task, *owner);
    } else {
      task.output = output_id(options_.epoch, reduce.number, slot, task.attempt);
      task.generation = task.attempt;
    }
  } else if (task.inputs == inputs.size() && task.expected == expected) {
    return;
  }
  task.expected = expected;
  task.inputs = static_cast<std::uint32_t>(inputs.size());
  const bool average = reduce.request.op == ReduceOp::kAverage && is_target;
  turn.send(*owner, ReduceTask{.reduce = reduce.number,
                               .slot = slot,
                               .attempt = task.attempt,
                               .output = task.output,
                               .generation = task.generation,
                               .is_target = is_target,
                               .name = is_target ? reduce.request.name : std::string(),
                               .size = reduce.size,
                               .chunk_bytes = reduce.chunk_bytes,
                               .op = reduce.request.op,
                               .dtype = reduce.request.dtype,
                               .divisor = average ? reduce.request.count : 1,
                               .expected_inputs = expected,
                               .inputs = std::move(inputs)});
  if (is_target && !std::exchange(reduce.announced, true)) announce(*reduce.target, turn);
}

// The target exists from now on; whoever waits for it may attach to its node.
void TableState::begin_target(ReduceRecord& reduce, ReduceRecord::SlotTask& task, Member& owner) {
  Entry& target = *reduce.target;
  begin_generation(target, last_generation_ + 1, reduce.request.name, reduce.size);
  task.output = target.id;
  task.generation = target.generation;
  target.origin_number = task.node.number;
  target.chunk_bytes = reduce.chunk_bytes;
  add_holder(target, owner, false);
  reduce.announced = false;
}

void TableState::cancel_task(ReduceRecord& reduce, ReducePlan::Slot slot, const Turn& turn) {
  ReduceRecord::SlotTask& task = reduce.tasks[slot];
  if (task.attempt == 0) return;
  if (task.is_target) {
    reduce.root_is_done = false;
    restart_target(*reduce.target, turn);
  }
  if (Member* member = find_member(task.node)) {
    turn.send(*member,
              ReduceCancel{.reduce = reduce.number, .slot = slot, .attempt = task.attempt});
  }
  task = {};
}

// The generation is void: who has any of it asks again, and gets the next one.
void TableState::restart_target(Entry& target, const Turn& turn) {
  if (!target.exists()) return;
  for (Copy* copy = target.first; copy != nullptr;) {
    Copy* const next = copy->next;
    const bool untouched = copy->state == CopyState::kWaiting && !copy->assigned;
    if (!untouched) {
      turn.send(*copy->member, Restarted{.id = target.id, .generation = target.generation});
      take_out(*copy);
    }
    copy = next;
  }
  close_generation(target);
}

// ---- the end ----

void TableState::on(Member& from, const ReduceDone& message, const Turn& turn) {
  const auto found = reduces_.find(message.reduce);
  if (found == reduces_.end()) return;
  ReduceRecord& reduce = *found->second;
  if (message.slot >= reduce.tasks.size()) return;
  ReduceRecord::SlotTask& task = reduce.tasks[message.slot];
  if (task.attempt == 0 || task.attempt != message.attempt || task.node != from.node ||
      !task.is_target)
    return;
  reduce.root_is_done = true;
  commit_if_final(reduce, turn);
}

// The root has every byte, and none of them can change any more.
void TableState::commit_if_final(ReduceRecord& reduce, const Turn& turn) {
  if (!reduce.root_is_done) return;
  std::vector<std::uint32_t> included;
  for (const std::uint32_t in_plan : reduce.plan->included())
    included.push_back(source_position(reduce, in_plan));
  std::sort(included.begin(), included.end());
  // A source that is itself the target of a running reduce may still be made anew.
  const bool final = std::all_of(included.begin(), included.end(), [&](std::uint32_t position) {
    return reduce.contributions[position].entry->maker == nullptr;
  });
  if (!final) return;
  Entry& target = *reduce.target;
  ReduceRecord::SlotTask& task = reduce.tasks[reduce.plan->root()];
  for (Copy* copy = target.first; copy != nullptr; copy = copy->next) {
    if (copy->state != CopyState::kWaiting || copy->assigned)
      turn.send(*copy->member, Committed{.id = target.id, .generation = target.generation});
  }
  Member* owner = find_member(task.node);
  Copy* root = owner != nullptr ? find_copy(*owner, target) : nullptr;
  if (root != nullptr && root->state == CopyState::kFilling) set_state(*root, CopyState::kComplete);
  turn.send(*reduce.caller, ReduceReply{.request = reduce.request.request,
                                        .generation = target.generation,
                                        .size = target.size,
                                        .included = std::move(included)});
  task = {};  // the target stays
  end_reduce(reduce, turn);
  note_source_change(target);  // reduces of this target may have been waiting for it
}

void TableState::on(Member& from, const ReduceFailed& message, const Turn& turn) {
  const auto found = reduces_.find(message.reduce);
  if (found == reduces_.end()) return;
  ReduceRecord& reduce = *found->second;
  if (!reduce.plan || message.slot >= reduce.tasks.size()) return;
  ReduceRecord::SlotTask& task = reduce.tasks[message.slot];
  if (task.attempt == 0 || task.attempt != message.attempt || task.node != from.node) return;

  if (message.input == ObjectId{}) {
    fail_reduce(reduce, message.reason,
                fmt::format("node '{}': {}", from.join.name, message.message), turn);
    return;
  }
  // Whose stream was it: a source's, or another slot's?
  for (std::uint32_t i = 0; i < reduce.contributions.size(); ++i) {
    if (reduce.contributions[i].entry->id == message.input)
      return contribution_failed(reduce, i, message, turn);
  }
  for (ReducePlan::Slot slot = 0; slot < reduce.tasks.size(); ++slot) {
    if (reduce.tasks[slot].attempt == 0 || reduce.tasks[slot].output != message.input) continue;
    if (message.reason == Errc::kNotFound || message.reason == Errc::kCancelled) {
      restart_upwards(reduce, slot, turn);
    } else {
      fail_reduce(reduce, Errc::kUnreachable,
                  fmt::format("node '{}': {}", from.join.name, message.message), turn);
    }
    return;
  }
  restart_upwards(reduce, message.slot, turn);  // its input has been replaced meanwhile
}

// The slot and everything above it begin anew under another attempt.
void TableState::restart_upwards(ReduceRecord& reduce, ReducePlan::Slot slot, const Turn& turn) {
  ReducePlan::Changes changes;
  for (std::optional<ReducePlan::Slot> at = slot; at; at = reduce.plan->parent(*at))
    changes.restarted.push_back(*at);
  apply_plan(reduce, changes, turn);
  check_attempts(reduce, turn);
}

// The holder that was chosen for a source cannot deliver it to where it is needed.
void TableState::contribution_failed(ReduceRecord& reduce, std::uint32_t position,
                                     const ReduceFailed& message, const Turn& turn) {
  ReduceRecord::Contribution& contribution = reduce.contributions[position];
  if (contribution.generation == 0) return restart_upwards(reduce, message.slot, turn);
  Member* holder = find_member(contribution.node);
  Copy* copy = holder != nullptr ? find_copy(*holder, *contribution.entry) : nullptr;
  if (message.reason == Errc::kNotFound && copy != nullptr && copy->state == CopyState::kComplete) {
    drop_denied_copy(*copy, turn);
    return;  // settle_reduces() sees it
  }
  contribution.avoid.push_back(contribution.node);
  contribution.generation = 0;
  --reduce.ready;
  if (!drop_from_plan(reduce, position, turn)) return;
  const bool spare_or_copy = reduce.plan && reduce.plan->closed();
  if (!spare_or_copy && choose_contributor(*contribution.entry, contribution) == nullptr) {
    fail_reduce(
        reduce, Errc::kUnreachable,
        fmt::format("source {}: {}", quoted(reduce.request.sources[position]), message.message),
        turn);
    return;
  }
  note_change(reduce, position);
}

std::string TableState::missing_sources(const ReduceRecord& reduce) {
  std::string names;
  std::size_t missing = 0;
  for (std::uint32_t i = 0; i < reduce.contributions.size(); ++i) {
    if (reduce.contributions[i].generation != 0) continue;
    if (++missing > kNamesInMessage) continue;
    names += (names.empty() ? "" : ", ") + quoted(reduce.request.sources[i]);
  }
  if (missing > kNamesInMessage) names += fmt::format(" and {} more", missing - kNamesInMessage);
  return fmt::format("{} of the {} sources needed are there; missing: {}",
                     std::min<std::size_t>(reduce.ready, reduce.request.count),
                     reduce.request.count, missing == 0 ? "none" : names);
}

void TableState::expire_reduces(const Turn& turn) {
  while (!reduce_deadlines_.empty() && reduce_deadlines_.begin()->first <= turn.now) {
    ReduceRecord& reduce = *reduce_deadlines_.begin()->second;
    fail_reduce(reduce, Errc::kTimedOut, "the deadline passed; " + missing_sources(reduce), turn);
  }
}

void TableState::cancel_reduce(Member& caller, RequestNumber request, const Turn& turn) {
  const auto found = caller.reduces.find(request);
  if (found == caller.reduces.end()) return;
  abandon_target(*found->second, Errc::kAborted, turn);
  end_reduce(*found->second, turn);
}

void TableState::fail_reduce(ReduceRecord& reduce, Errc code, std::string message,
                             const Turn& turn) {
  turn.send(*reduce.caller,
            Failed{.request = reduce.request.request, .code = code, .message = std::move(message)});
  abandon_target(reduce, code == Errc::kDeleted ? Errc::kDeleted : Errc::kAborted, turn);
  end_reduce(reduce, turn);
}

void TableState::abandon_target(ReduceRecord& reduce, Errc reason, const Turn& turn) {
  Entry& target = *reduce.target;
  if (!target.exists()) return;
  target.maker = nullptr;  // no way back into this reduce
  end_generation(target, reason, nullptr, Keep::kNewWaiters, turn);
  for (ReduceRecord::SlotTask& task : reduce.tasks)
    task.is_target = false;
}

// The reduce is over: its nodes drop what they made for it, except the target.
void TableState::end_reduce(ReduceRecord& reduce, const Turn& turn) {
  for (ReducePlan::Slot slot = 0; slot < reduce.tasks.size(); ++slot)
    cancel_task(reduce, slot, turn);
  Entry& target = *reduce.target;
  end_record(reduce);
  release_if_unused(target);
}

void TableState::end_record(ReduceRecord& reduce) {
  if (reduce.deadline != kNever) reduce_deadlines_.erase({reduce.deadline, &reduce});
  reduce.caller->reduces.erase(reduce.request_number());
  reduce.target->maker = nullptr;
  std::vector<Entry*> sources;
  for (const ReduceRecord::Contribution& contribution : reduce.contributions) {
    std::erase_if(contribution.entry->feeds,
                  [&](const auto& feed) { return feed.first == &reduce; });
    sources.push_back(contribution.entry);
  }
  reduces_.erase(reduce.number);
  for (Entry* source : sources)
    release_if_unused(*source);
}

}  // namespace lochos
