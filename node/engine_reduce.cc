// The node's part in reduces: combining streams as they arrive.
#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "compute/reduce_kernels.h"
#include "node/engine_impl.h"

namespace lochos {
namespace {

// Combined in one go by the engine thread: some tens of microseconds, so that edges and clients do
// not wait.
constexpr std::uint64_t kSliceBytes = 256 * 1024;

// A stream whose peer cannot be reached is tried again: first delay, and how often without
// progress before the directory is told.
constexpr Duration kFirstStreamRetry = std::chrono::milliseconds(10);
constexpr std::uint32_t kStreamTries = 6;

// How long the pull of what is not there yet is kept: the task that makes it, or the answer to its
// put, may be on its way here.
constexpr Duration kPullPatience = std::chrono::seconds(2);

// Edges of streams are numbered by the child itself: the directory does not know them.
constexpr EdgeNumber kStreamEdges = EdgeNumber{1} << 63;

}  // namespace

// ---- what clients ask ----

void EngineImpl::on(LocalClient& client, LocalReduce& m) {
  const std::string name = m.name.empty() ? m.target.to_hex() : m.name;
  const OperationNumber number = begin(client, m.request, "reduce", name, m.timeout);
  pass_on(number, Reduce{.request = 0,
                         .target = m.target,
                         .name = std::move(m.name),
                         .sources = std::move(m.sources),
                         .count = m.count,
                         .op = m.op,
                         .dtype = m.dtype,
                         .deterministic = m.deterministic,
                         .timeout = directory_timeout(m.timeout)});
}

void EngineImpl::on(ReduceReply& m) {
  const auto outstanding = take_outstanding(m.request);
  if (!outstanding) return;
  finish(outstanding->operation,
         LocalPayload(LocalReduced{m.size, m.generation, std::move(m.included)}));
}

// ---- what the directory says ----

void EngineImpl::on(ReduceTask& m) {
  const ReduceKey key{m.reduce, m.slot};
  if (const auto found = reduces_.find(key); found != reduces_.end()) {
    ReduceWork& work = *found->second;
    if (work.task.attempt > m.attempt) return;
    if (work.task.attempt == m.attempt) {
      add_streams(work, m.inputs);
      return;
    }
    end_reduce(work, Errc::kCancelled);
  }
  std::vector<ReduceInput> inputs = std::exchange(m.inputs, {});
  LocalObject* existing = index_.find(m.output);
  if (existing != nullptr && existing->state != State::kWanted) {
    report_reduce_failure(m, {}, Errc::kAlreadyExists,
                          "this node already has an object under the output's id");
    return;
  }
  LocalObject& output = index_.make(m.output, m.name);
  if (Status room = give_storage(output, m.size); !room) {
    index_.retire(output);
    report_reduce_failure(m, {}, room.error().code(), room.error().to_string());
    return;
  }
  output.origin = m.is_target;
  take_over_wanted(output);
  add_streams(begin_work(std::move(m), output), inputs);
}

// The output is there, with storage and id, but not yet in the index.
ReduceWork& EngineImpl::begin_work(ReduceTask task, LocalObject& output) {
  auto owner = std::make_unique<ReduceWork>();
  ReduceWork& work = *owner;
  work.task = std::move(task);
  work.output = &output;
  output.generation = work.task.generation;
  output.maker = &work;
  output.state = State::kFilling;
  index_.enter(output);
  index_.add_reference(output);
  reduces_.emplace(work.key(), std::move(owner));
  serve_parked(output);
  return work;
}

void EngineImpl::on(ReduceCancel& m) {
  const auto found = reduces_.find({m.reduce, m.slot});
  if (found != reduces_.end() && found->second->task.attempt <= m.attempt)
    end_reduce(*found->second, Errc::kCancelled);
}

void EngineImpl::on(Committed& m) {
  LocalObject* object = index_.find(m.id);
  if (object == nullptr || object->generation != m.generation) return;
  object->uncommitted = false;
  if (object->valid != object->size) return;  // it will be complete when it has arrived
  if (ReduceWork* work = object->maker; work != nullptr) {
    object->maker = nullptr;
    complete(*object);
    end_reduce(*work, Errc::kCancelled);
  } else if (object->state == State::kFetching && object->incoming == nullptr) {
    complete(*object);
  }
}

void EngineImpl::on(Restarted& m) {
  LocalObject* object = index_.find(m.id);
  if (object != nullptr && object->generation == m.generation) restart(*object);
}

// What is there of the object is void; its readers wait for what takes its place.
void EngineImpl::restart(LocalObject& object) {
  std::vector<OperationNumber> readers = std::exchange(object.waiters, {});
  const ObjectId id = object.id;
  const std::string name = object.name;
  withdraw(object, Error(Errc::kObjectLost, "it is being made anew"));
  if (!readers.empty()) seek_anew(id, name, std::move(readers));
}

void EngineImpl::seek_anew(const ObjectId& id, const std::string& name,
                           std::vector<OperationNumber> readers) {
  LocalObject& wanted = index_.make(id, name);
  index_.enter(wanted);
  for (const OperationNumber number : readers) {
    Operation& operation = operations_.at(number);
    operation.object = &wanted;
    // The bytes shown so far were another object's: the next report begins anew.
    operation.reported = 0;
    if (operation.pin != 0) close_pin(std::exchange(operation.pin, 0));
  }
  wanted.waiters = std::move(readers);
  request_object(wanted);
}

// A new life at the directory: the reduces of the old one are known to nobody. Whoever asked for
// them asks again.
void EngineImpl::forget_reduces() {
  forget_collectives();
  while (!reduces_.empty()) {
    ReduceWork& work = *reduces_.begin()->second;
    if (work.output->maker == &work && work.task.is_target) restart(*work.output);
    end_reduce(work, Errc::kCancelled);
  }
  std::vector<LocalObject*> uncommitted;
  index_.for_each([&](LocalObject& object) {
    if (object.uncommitted) uncommitted.push_back(&object);
  });
  for (LocalObject* object : uncommitted)
    restart(*object);
}

// ---- streams ----

void EngineImpl::add_streams(ReduceWork& work, const std::vector<ReduceInput>& inputs) {
  if (work.given_up) return;
  const ReduceKey key = work.key();
  const AttemptNumber attempt = work.task.attempt;
  for (const ReduceInput& input : inputs) {
    const bool known =
        std::any_of(work.streams.begin(), work.streams.end(), [&](const ReduceStream& s) {
          return s.from.id == input.id && s.from.generation == input.generation;
        });
    if (known) continue;
    const bool added =
        input.node == node_ ? add_local_stream(work, input) : add_remote_stream(work, input);
    // A stream that cannot be had ends the work.
    const auto found = reduces_.find(key);
    if (!added || found == reduces_.end() || found->second->task.attempt != attempt) return;
  }
  make_ready(work);
}

bool EngineImpl::add_local_stream(ReduceWork& work, const ReduceInput& input) {
  LocalObject* object = index_.find(input.id);
  const bool have = object != nullptr && object->generation == input.generation &&
                    (object->state == State::kFilling || object->state == State::kComplete);
  if (!have || object->size != work.task.size) {
    report_reduce_failure(work.task, input.id, Errc::kNotFound, "this node does not have it");
    give_up(work);
    return false;
  }
  index_.add_reference(*object);
  object->consumers.push_back(&work);
  work.streams.push_back({.from = input, .object = object});
  return true;
}

bool EngineImpl::add_remote_stream(ReduceWork& work, const ReduceInput& input) {
  LocalObject& staging = index_.make(input.id, "");
  staging.state = State::kFetching;
  staging.generation = input.generation;
  staging.feeds = &work;
  if (!std::exchange(work.in_place_taken, true)) {
    staging.size = work.task.size;
    staging.external = index_.data(*work.output);
    staging.shares = work.output;
    index_.add_reference(*work.output);
  } else if (Status room = give_storage(staging, work.task.size); !room) {
    index_.retire(staging);
    report_reduce_failure(work.task, {}, room.error().code(), room.error().to_string());
    give_up(work);
    return false;
  }
  index_.add_reference(staging);
  staging.consumers.push_back(&work);
  work.streams.push_back({.from = input, .object = &staging});
  start_stream(work, staging);
  return true;
}

ReduceStream& EngineImpl::stream_of(ReduceWork& work, const LocalObject& staging) {
  return *std::find_if(work.streams.begin(), work.streams.end(),
                       [&](const ReduceStream& s) { return s.object == &staging; });
}

void EngineImpl::start_stream(ReduceWork& work, LocalObject& staging) {
  const ReduceInput& from = stream_of(work, staging).from;
  const std::size_t slot = find_slot();
  slots_[slot] = std::make_unique<IncomingEdge>();
  IncomingEdge& edge = *slots_[slot];
  edge.slot = static_cast<std::uint32_t>(slot);
  edge.number = kStreamEdges | next_number_++;
  edge.object = &staging;
  edge.parent = from.node;
  edge.rails = from.rails;
  edge.parent_policy = from.policy;
  edge.chunk = work.task.chunk_bytes;
  edge.expected = true;
  edge.first = staging.valid;
  edge.started = now_;
  staging.incoming = &edge;
  index_.add_reference(staging);
  ++edges_started_;
  connect_edge(edge);
}

// An edge that fed a reduce has ended before its time. A peer that is only out of reach is tried
// again from the first missing chunk; the directory may know better meanwhile.
void EngineImpl::on_stream_failure(LocalObject& staging, const IncomingEdge& edge) {
  ReduceWork& work = *staging.feeds;
  ReduceStream& stream = stream_of(work, staging);
  ++edges_failed_;
  stream.fruitless = staging.valid > edge.first ? 1 : stream.fruitless + 1;
  const bool transient = edge.reason == Errc::kConnectionLost || edge.reason == Errc::kUnreachable;
  if (!transient || stream.fruitless > kStreamTries) {
    // A member that took its part of a collective back has told the directory why, and all will
    // hear of it; that its streams end says nothing more.
    const bool told = work.collective != nullptr && edge.reason == Errc::kCancelled;
    if (!told) {
      report_reduce_failure(work.task, stream.from.id, edge.reason,
                            "its stream from " + stream.from.node.to_string() + " ended");
    }
    give_up(work);
    return;
  }
  Timer timer;
  timer.reduce = work.key();
  timer.attempt = work.task.attempt;
  timer.object = staging.id;
  timers_.emplace(now_ + kFirstStreamRetry * (1 << (stream.fruitless - 1)), timer);
}

void EngineImpl::retry_stream(const Timer& timer) {
  const auto found = reduces_.find(timer.reduce);
  if (found == reduces_.end() || found->second->task.attempt != timer.attempt) return;
  ReduceWork& work = *found->second;
  for (ReduceStream& stream : work.streams) {
    LocalObject& staging = *stream.object;
    if (staging.feeds != &work || staging.id != *timer.object) continue;
    if (staging.incoming == nullptr && staging.valid < staging.size) start_stream(work, staging);
    return;
  }
}

void EngineImpl::report_reduce_failure(const ReduceTask& task, const ObjectId& input, Errc reason,
                                       std::string message) {
  log_info("reduce {} slot {} attempt {}: {}", task.reduce, task.slot, task.attempt, message);
  const auto found = reduces_.find({task.reduce, task.slot});
  if (found != reduces_.end() && found->second->collective != nullptr)
    return fail_collective(*found->second->collective, reason, std::move(message));
  directory_->send(ReduceFailed{.reduce = task.reduce,
                                .slot = task.slot,
                                .attempt = task.attempt,
                                .input = input,
                                .reason = reason,
                                .message = std::move(message)});
}

// ---- combining ----

void EngineImpl::make_ready(ReduceWork& work) {
  if (work.ready || work.streams.size() < work.task.expected_inputs) return;
  work.ready = true;
  ready_reduces_.push_back(&work);
}

// One slice for each, in turn.
bool EngineImpl::combine() {
  const bool busy = !ready_reduces_.empty();
  std::swap(ready_reduces_, combining_);
  for (ReduceWork* work : combining_) {
    if (work == nullptr) continue;
    work->ready = false;
    combine_slice(*work);
  }
  combining_.clear();
  return busy;
}

void EngineImpl::combine_slice(ReduceWork& work) {
  LocalObject& output = *work.output;
  if (output.state != State::kFilling || work.given_up) return;
  const std::uint64_t element = element_size(work.task.dtype);
  std::uint64_t end = output.size;
  for (const ReduceStream& stream : work.streams)
    end = std::min(end, stream.object->valid);
  if (work.streams.size() > 1) end -= end % element;
  const std::uint64_t begin = output.valid;
  if (end <= begin) return;
  const bool more = end - begin > kSliceBytes;
  if (more) end = begin + kSliceBytes;

  inputs_.clear();
  for (const ReduceStream& stream : work.streams)
    inputs_.push_back(index_.data(*stream.object) + begin);
  std::byte* const destination = index_.data(output) + begin;
  if (inputs_.size() > 1) {
    reduce_many(work.task.op, work.task.dtype, destination, inputs_, end - begin);
  } else if (inputs_[0] != destination) {
    std::memcpy(destination, inputs_[0], end - begin);
  }
  if (work.task.divisor > 1) scale(work.task.dtype, destination, end - begin, work.task.divisor);
  if (more) make_ready(work);
  advance(output, end);
  if (output.valid == output.size) finish_reduce(work);
}

// The output is whole: what it was made from is no longer needed here.
void EngineImpl::finish_reduce(ReduceWork& work) {
  release_streams(work);
  if (work.collective != nullptr) {
    --work.collective->unfinished;
    start_direct_pulls(*work.collective);
    finish_collective_if_done(*work.collective);
  } else if (work.task.is_target)
    directory_->send(ReduceDone{work.task.reduce, work.task.slot, work.task.attempt});
}

void EngineImpl::release_streams(ReduceWork& work) {
  for (ReduceStream& stream : std::exchange(work.streams, {})) {
    LocalObject& object = *stream.object;
    std::erase(object.consumers, &work);
    if (object.feeds == &work) {
      object.feeds = nullptr;
      if (object.incoming != nullptr) {
        stop_edge(*object.incoming, /*seek_another=*/false, Errc::kCancelled);
      }
      index_.retire(object);
    }
    index_.drop_reference(object);
  }
}

// The work cannot go on, and the directory has been told. A target stays as it is until the answer:
// its readers must learn whether it will be made anew, or not at all.
void EngineImpl::give_up(ReduceWork& work) {
  if (!work.task.is_target || work.collective != nullptr) return end_reduce(work, Errc::kCancelled);
  work.given_up = true;
  release_streams(work);
}

// The work is over, done or not. Its output goes unless it is a committed target.
void EngineImpl::end_reduce(ReduceWork& work, Errc reason) {
  std::replace(ready_reduces_.begin(), ready_reduces_.end(), &work,
               static_cast<ReduceWork*>(nullptr));
  std::replace(combining_.begin(), combining_.end(), &work, static_cast<ReduceWork*>(nullptr));
  const auto owner = std::move(reduces_.extract(work.key()).mapped());
  release_streams(work);
  LocalObject& output = *work.output;
  if (std::exchange(output.maker, nullptr) != nullptr && output.state != State::kRetired) {
    withdraw(output, Error(work.task.is_target ? Errc::kAborted : reason,
                           "the reduce that makes it has ended"));
  }
  index_.drop_reference(output);
}

// ---- pulls that came before their object ----

void EngineImpl::park(Connection& connection, const PullMessage& m) {
  parked_.emplace(m.id, ParkedPull{&connection, m, saturating_add(now_, kPullPatience)});
  Timer timer;
  timer.parked = true;
  timer.object = m.id;
  timers_.emplace(saturating_add(now_, kPullPatience), timer);
}

void EngineImpl::serve_parked(const LocalObject& object) {
  const auto [first, last] = parked_.equal_range(object.id);
  std::vector<ParkedPull> pulls;
  for (auto at = first; at != last; ++at)
    pulls.push_back(at->second);
  parked_.erase(first, last);
  for (const ParkedPull& pull : pulls)
    on_peer(*pull.connection, pull.pull);
}

void EngineImpl::expire_parked(const ObjectId& id) {
  const LocalObject* object = index_.find(id);
  if (object != nullptr && object->state == State::kClaiming) {
    // The directory has promised it to others before we hear of it. "Not here" would be final.
    Timer timer;
    timer.parked = true;
    timer.object = id;
    if (parked_.contains(id)) timers_.emplace(saturating_add(now_, kPullPatience), timer);
    return;
  }
  const auto [first, last] = parked_.equal_range(id);
  for (auto at = first; at != last;) {
    if (at->second.until > now_) {
      ++at;
      continue;
    }
    const ParkedPull pull = at->second;
    at = parked_.erase(at);
    links_.send(*pull.connection, PullEndMessage{pull.pull.slot, pull.pull.edge, Errc::kNotFound});
  }
}

bool EngineImpl::unpark(const Connection& connection, std::uint32_t slot, EdgeNumber edge) {
  for (auto at = parked_.begin(); at != parked_.end(); ++at) {
    const ParkedPull& pull = at->second;
    if (pull.connection != &connection || pull.pull.slot != slot || pull.pull.edge != edge)
      continue;
    parked_.erase(at);
    return true;
  }
  return false;
}

void EngineImpl::unpark_all(const Connection& connection) {
  std::erase_if(parked_, [&](const auto& entry) { return entry.second.connection == &connection; });
}

}  // namespace lochos
