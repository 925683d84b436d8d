// The node's part in collective operations of known groups. Each stream of the plan is the work of
// a reduce (engine_reduce.cc) that the engine gives itself; what the directory adds is where the
// other members are.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "node/engine_impl.h"

namespace lochos {
namespace {

// Collective operations are numbered apart from the directory's reduces.
constexpr ReduceNumber kCollectiveBit = ReduceNumber{1} << 63;
constexpr AttemptNumber kOnlyAttempt = 1;

// Members that the root of a gather pulls from at once: two keep its link busy while one ends and
// the next begins; many at once overflow the queue before it, and everybody waits for
// retransmissions. (Not for all-to-all: there a turn that is late delays others' turns, which costs
// more.)
constexpr std::size_t kDirectPulls = 2;

// No name's hash and no caller's random id meets it by accident.
ObjectId stream_id(CollectiveNumber number, const CollectiveStreamName& name) {
  const std::uint64_t what = (static_cast<std::uint64_t>(name.what) << 32) | name.block;
  std::uint64_t mixed = number * 0x9e3779b97f4a7c15U;
  for (const std::uint64_t part : {what, std::uint64_t{name.rank}}) {
    mixed = (mixed ^ part) * 0xbf58476d1ce4e5b9U;
    mixed ^= mixed >> 31;
  }
  const std::array<std::uint64_t, 4> words{mixed, ~number, what, name.rank};
  ObjectId id;
  std::memcpy(id.bytes.data(), words.data(), sizeof words);
  return id;
}

// Several members may live on one node.
std::uint32_t slot_of(const CollectiveSpec& spec, std::size_t stream) {
  return static_cast<std::uint32_t>(stream) * spec.members + spec.rank;
}

std::uint64_t input_bytes(const CollectiveSpec& spec) {
  const bool from_root =
      spec.kind == CollectiveKind::kBroadcast || spec.kind == CollectiveKind::kScatter;
  return from_root && spec.rank != spec.root ? 0 : spec.size;
}

}  // namespace

// ---- what clients ask ----

void EngineImpl::on(LocalClient& client, LocalScratch& m) {
  LocalObject& object = index_.make(ObjectId{}, "");
  if (Status room = give_storage(object, m.size); !room) {
    index_.retire(object);
    reply_error(client, m.request, "buffer", "", std::move(room.error()));
    return;
  }
  object.state = State::kDraft;
  object.scratch = true;
  const WriterNumber writer = open_writer(client, object);
  client.deliver({m.request, LocalPayload(LocalCreated{writer, object.block.offset, m.size})});
}

void EngineImpl::on(LocalClient& client, LocalCollective& m) {
  const char* const kind = to_string(m.spec.kind).data();
  if (const Status valid = check(m.spec); !valid) {
    reply_error(client, m.request, kind, m.name, valid.error());
    return;
  }
  LocalObject* input = nullptr;
  if (m.writer != 0) {
    const auto found = writers_.find(m.writer);
    if (found == writers_.end() || found->second.client != &client ||
        !found->second.object->scratch) {
      reply_error(client, m.request, kind, m.name,
                  Error(Errc::kInvalidArgument, "there is no such input"));
      return;
    }
    input = found->second.object;
  }
  const std::uint64_t expected = input_bytes(m.spec);
  const std::uint64_t given = input != nullptr ? input->size : 0;
  const bool no_input = input == nullptr && expected > 0;
  if (given != expected && !no_input) {
    reply_error(
        client, m.request, kind, m.name,
        Error(Errc::kInvalidArgument, fmt::format("the input has {} bytes; rank {} must give {}",
                                                  given, m.spec.rank, expected)));
    return;
  }
  auto owner = std::make_unique<CollectiveWork>();
  CollectiveWork& work = *owner;
  work.spec = m.spec;
  if (input != nullptr) {
    index_.add_reference(*input);
    close_writer(m.writer);
    input->valid = input->size;
    index_.retire(*input);  // it goes with its last reference
  }
  work.input = input;
  if (no_input) {
    work.refusal = Error(Errc::kNoSpace, "there is no room for its input");
  } else if (m.spec.kind == CollectiveKind::kBroadcast && m.spec.rank == m.spec.root) {
    work.result = input;  // what it sends is what it has
    if (input != nullptr) index_.add_reference(*input);
  } else {
    LocalObject& result = index_.make(ObjectId{}, "");
    if (Status room = give_storage(result, result_bytes(m.spec)); room) {
      index_.add_reference(result);
      work.result = &result;
    } else {
      work.refusal = std::move(room.error());
    }
    index_.retire(result);
  }
  const OperationNumber number = begin(client, m.request, kind, m.name, m.timeout);
  work.operation = number;
  operations_.at(number).collective = &work;
  collectives_.emplace(&work, std::move(owner));
  pass_on(number, CollectiveJoin{0, std::move(m.name), m.spec, directory_timeout(m.timeout)});
}

// ---- what the directory says ----

void EngineImpl::on(CollectivePeers& m) {
  const auto outstanding = outstanding_.find(m.request);
  if (outstanding == outstanding_.end()) return;
  const auto operation = operations_.find(outstanding->second.operation);
  if (operation == operations_.end() || operation->second.collective == nullptr) return;
  CollectiveWork& work = *operation->second.collective;
  if (work.number == 0) {
    work.number = m.collective;
    work.spec.schedule = m.schedule;
    // The plan's blocks are parts of memory: they must be those of a schedule that exists.
    if (Status valid = check(work.spec); !valid) {
      give_up(work.operation, Error(Errc::kProtocol, valid.error().message()));
      return;
    }
    if (work.refusal) {
      fail_collective(work, work.refusal->code(), work.refusal->to_string());
    } else if (!begin_collective(work, m.chunk_bytes)) {
      return;
    }
  }
  if (work.refusal) return;  // it takes nothing from anybody until all are told
  for (const CollectivePeer& peer : m.peers) {
    if (std::erase(work.missing, peer.rank) > 0) add_peer(work, peer);
  }
  finish_collective_if_done(work);
}

void EngineImpl::on(CollectiveEnd& m) {
  std::vector<CollectiveWork*> ended;
  for (const auto& [work, owner] : collectives_) {
    if (work->number == m.collective) ended.push_back(work);
  }
  for (CollectiveWork* work : ended)
    end_collective(*work);
}

// ---- streams ----

// Everything that peers may pull exists from now on, if not yet its bytes.
bool EngineImpl::begin_collective(CollectiveWork& work, std::uint64_t chunk_bytes) {
  const CollectiveSpec& spec = work.spec;
  work.plan = plan_collective(spec);
  for (std::uint32_t rank = 0; rank < spec.members; ++rank) {
    if (pulls_from(spec, spec.rank, rank)) work.missing.push_back(rank);
  }
  for (const std::uint32_t block : work.plan.own_blocks) {
    if (work.input == nullptr) break;  // of no bytes
    const CollectiveBlock at = input_block(spec, block);
    LocalObject& slice = slice_of(*work.input, at.offset, at.bytes);
    slice.id = stream_id(work.number, {CollectiveStreamName::What::kOwn, block, spec.rank});
    slice.generation = work.number;
    slice.valid = slice.size;
    slice.state = State::kComplete;
    slice.origin = true;
    index_.enter(slice);
    index_.add_reference(slice);
    work.own_blocks.push_back(&slice);
    serve_parked(slice);
  }
  // What goes from the own input straight into the result is a stream too: it is cut into slices of
  // time like the others.
  if (work.plan.copied.bytes > 0) {
    work.plan.streams.push_back({{CollectiveStreamName::What::kCopy, spec.members, spec.rank},
                                 {},
                                 work.plan.copied.bytes,
                                 true,
                                 work.plan.copied_to});
  }
  work.unfinished = static_cast<std::uint32_t>(work.plan.streams.size());
  for (std::size_t i = 0; i < work.plan.streams.size(); ++i) {
    const CollectiveStream& stream = work.plan.streams[i];
    LocalObject* output = nullptr;
    if (stream.in_result) {
      output = &slice_of(*work.result, stream.result_offset, stream.bytes);
    } else {
      output = &index_.make(ObjectId{}, "");
      if (Status room = give_storage(*output, stream.bytes); !room) {
        index_.retire(*output);
        fail_collective(work, room.error().code(), room.error().to_string());
        return false;
      }
    }
    ReduceTask task;
    task.reduce = kCollectiveBit | work.number;
    task.slot = slot_of(spec, i);
    task.attempt = kOnlyAttempt;
    task.output = stream_id(work.number, stream.name);
    task.generation = work.number;
    task.size = stream.bytes;
    task.chunk_bytes = chunk_bytes;
    task.op = spec.op;
    task.dtype = spec.dtype;
    const bool last_sum = stream.in_result && stream.inputs.size() > 1;
    task.divisor = last_sum && spec.op == ReduceOp::kAverage ? spec.members : 1;
    task.expected_inputs =
        static_cast<std::uint32_t>(std::max<std::size_t>(stream.inputs.size(), 1));
    output->id = task.output;
    ReduceWork& reduce = begin_work(std::move(task), *output);
    reduce.collective = &work;
    work.streams.push_back(reduce.key());
  }
  for (std::size_t i = 0; i < work.streams.size(); ++i) {
    const CollectiveStream& stream = work.plan.streams[i];
    ReduceWork& reduce = *reduces_.at(work.streams[i]);
    if (stream.inputs.empty()) add_own_copy(work, reduce);
    for (const CollectiveStreamName& input : stream.inputs) {
      if (input.rank == spec.rank) add_collective_input(work, reduce, input, nullptr);
    }
  }
  return true;
}

// A part of another object, which it keeps alive. Not in the index.
LocalObject& EngineImpl::slice_of(LocalObject& whole, std::uint64_t offset, std::uint64_t bytes) {
  LocalObject& slice = index_.make(ObjectId{}, "");
  slice.size = bytes;
  slice.external = index_.data(whole) + offset;
  slice.shares = &whole;
  index_.add_reference(whole);
  return slice;
}

void EngineImpl::add_own_copy(CollectiveWork& work, ReduceWork& reduce) {
  LocalObject& slice = slice_of(*work.input, work.plan.copied.offset, work.plan.copied.bytes);
  slice.valid = slice.size;
  slice.state = State::kComplete;
  index_.add_reference(slice);
  slice.consumers.push_back(&reduce);
  reduce.streams.push_back({.from = {}, .object = &slice});
  index_.retire(slice);
  make_ready(reduce);
}

void EngineImpl::add_collective_input(CollectiveWork& work, ReduceWork& reduce,
                                      const CollectiveStreamName& name,
                                      const CollectivePeer* peer) {
  ReduceInput input;
  input.id = stream_id(work.number, name);
  input.generation = work.number;
  input.node = node_;
  if (peer != nullptr) {
    input.node = peer->node;
    input.rails = peer->rails;
    input.policy = peer->policy;
  }
  add_streams(reduce, {input});
}

void EngineImpl::add_peer(CollectiveWork& work, const CollectivePeer& peer) {
  if (work.spec.kind == CollectiveKind::kGather) {
    for (std::size_t i = 0; i < work.plan.streams.size(); ++i) {
      const std::vector<CollectiveStreamName>& inputs = work.plan.streams[i].inputs;
      if (!inputs.empty() && inputs[0].rank == peer.rank) work.waiting.emplace(i, peer);
    }
    start_direct_pulls(work);
    return;
  }
  for (std::size_t i = 0; i < work.plan.streams.size(); ++i) {
    for (const CollectiveStreamName& input : work.plan.streams[i].inputs) {
      if (input.rank != peer.rank) continue;
      const auto reduce = reduces_.find(work.streams[i]);
      if (reduce != reduces_.end()) add_collective_input(work, *reduce->second, input, &peer);
    }
  }
}

void EngineImpl::start_direct_pulls(CollectiveWork& work) {
  std::erase_if(work.direct, [&](const ReduceKey& key) {
    const auto found = reduces_.find(key);
    return found == reduces_.end() || found->second->output->valid == found->second->output->size;
  });
  while (work.direct.size() < kDirectPulls && !work.waiting.empty()) {
    const auto next = work.waiting.extract(work.waiting.begin());
    const auto reduce = reduces_.find(work.streams[next.key()]);
    if (reduce == reduces_.end()) continue;
    work.direct.push_back(reduce->first);
    add_collective_input(work, *reduce->second, work.plan.streams[next.key()].inputs[0],
                         &next.mapped());
  }
}

// ---- the end ----

void EngineImpl::finish_collective_if_done(CollectiveWork& work) {
  if (work.unfinished > 0 || work.operation == 0 || work.number == 0) return;
  const OperationNumber number = std::exchange(work.operation, 0);
  Operation& operation = operations_.at(number);
  operation.collective = nullptr;
  outstanding_.erase(std::exchange(operation.directory_request, 0));
  directory_->send(CollectiveDone{work.number, work.spec.rank});
  LocalView view;
  if (work.result != nullptr)
    view = view_of(*work.result, open_pin(*operation.client, *work.result));
  finish(number, LocalPayload(view));
}

void EngineImpl::fail_collective(CollectiveWork& work, Errc reason, std::string message) {
  directory_->send(CollectiveFailed{work.number, work.spec.rank, reason, std::move(message)});
}

// Nobody needs anything of it any more.
void EngineImpl::end_collective(CollectiveWork& work) {
  const auto owner = std::move(collectives_.extract(&work).mapped());
  if (work.operation != 0) operations_.at(work.operation).collective = nullptr;
  for (const ReduceKey& key : work.streams) {
    if (const auto found = reduces_.find(key); found != reduces_.end())
      end_reduce(*found->second, Errc::kCancelled);
  }
  for (LocalObject* slice : work.own_blocks) {
    withdraw(*slice, Error(Errc::kCancelled, "the collective operation has ended"));
    index_.drop_reference(*slice);
  }
  if (work.result != nullptr) index_.drop_reference(*work.result);
  if (work.input != nullptr) index_.drop_reference(*work.input);
}

// A new life at the directory: it knows nothing of them, and members cannot find each other again
// in the middle. Those that it has not answered yet are asked for again.
void EngineImpl::forget_collectives() {
  std::vector<CollectiveWork*> begun;
  for (const auto& [work, owner] : collectives_) {
    if (work->number != 0) begun.push_back(work);
  }
  for (CollectiveWork* work : begun) {
    const OperationNumber number = work->operation;
    end_collective(*work);
    if (number == 0) continue;
    outstanding_.erase(operations_.at(number).directory_request);
    finish(number, fail(Errc::kAborted, "the directory was lost in the middle of the operation"));
  }
}

}  // namespace lochos
