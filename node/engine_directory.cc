// What the directory says to the engine.
#include <cstring>

#include "base/check.h"
#include "base/log.h"
#include "node/engine_impl.h"

namespace lochos {

bool EngineImpl::poll_directory() {
  directory_events_.clear();
  directory_->poll(now_, directory_events_);
  for (ChannelEvent& event : directory_events_) {
    if (event.kind == ChannelEvent::Kind::kLost) continue;  // the channel logs; Joined will follow
    std::visit([&](auto& m) { on(m); }, event.message);
  }
  return !directory_events_.empty();
}

// ---- joining ----

// A new life at the directory (first join, a new directory, or after being fenced): it knows
// nothing of us. Tell what we hold, then ask again for everything we wait for.
void EngineImpl::on(Joined& m) {
  node_ = m.node;
  Hello hello;
  hello.node = m.node;
  hello.cluster = m.cluster;
  hello.max_message_bytes = kMaxPeerMessageBytes;
  for (Rail& rail : rails_)
    rail.transport->set_hello(hello);
  forget_reduces();

  // A Put that was to be undone died with the connection that knew it.
  std::erase_if(outstanding_, [](const auto& entry) { return entry.second.undo_put; });

  index_.for_each([&](LocalObject& object) {
    if (object.state != State::kComplete && object.state != State::kFilling) return;
    Hold hold{object.id,
              object.generation,
              object.name,
              object.size,
              object.state == State::kComplete,
              object.origin,
              {}};
    if (hold.complete && object.size <= kInlineObjectBytes) {
      const std::byte* data = index_.data(object);
      hold.inline_bytes = Bytes(data, data + object.size);
    }
    directory_->send(hold);
  });
  index_.for_each([&](LocalObject& object) {
    if (object.state == State::kClaiming) send_put(object);
    // A fetch that is running goes on; if its edge fails the object is asked for anew.
    if (object.state == State::kWanted ||
        (object.state == State::kFetching && object.incoming == nullptr)) {
      object.ask_at = kNever;
      request_object(object);
    }
  });
  for (auto& [request, outstanding] : outstanding_) {
    if (outstanding.message) directory_->send(*outstanding.message);
  }
}

std::optional<EngineImpl::Outstanding> EngineImpl::take_outstanding(RequestNumber request) {
  auto node = outstanding_.extract(request);
  if (node.empty()) return std::nullopt;
  return std::move(node.mapped());
}

LocalObject* EngineImpl::object_of(RequestNumber request) const {
  const auto found = outstanding_.find(request);
  return found == outstanding_.end() ? nullptr : found->second.object;
}

void EngineImpl::forget_request(LocalObject& object) {
  const RequestNumber request = std::exchange(object.directory_request, 0);
  if (request == 0) return;
  outstanding_.erase(request);
  directory_->send(CancelGet{request, object.id});
}

// ---- put ----

void EngineImpl::send_put(LocalObject& object) {
  if (object.directory_request == 0) {
    object.directory_request = next_number_++;
    outstanding_[object.directory_request].object = &object;
  }
  Put put{object.directory_request,    object.id, object.name, object.size,
          object.valid == object.size, {}};
  if (object.size <= kInlineObjectBytes) {
    const std::byte* data = index_.data(object);
    put.inline_bytes = Bytes(data, data + object.size);
    object.inlined = true;
  }
  directory_->send(put);
}

void EngineImpl::on(PutReply& m) {
  const auto outstanding = take_outstanding(m.request);
  if (!outstanding) return;
  if (outstanding->undo_put) {
    if (outstanding->complete_put) {
      directory_->send(Erase{next_number_++, outstanding->id});
    } else {
      directory_->send(Abandon{outstanding->id, m.generation});
    }
    return;
  }
  LocalObject& object = *outstanding->object;
  object.directory_request = 0;
  object.generation = m.generation;
  // The maker's operation is among the waiters; the others are readers.
  OperationNumber maker = 0;
  for (const OperationNumber number : object.waiters) {
    if (operations_.at(number).writer != 0) maker = number;
  }
  if (object.valid == object.size) {
    const WriterNumber writer = maker != 0 ? operations_.at(maker).writer : 0;
    object.state = State::kComplete;
    // Whoever combines may have heard of it before us. First: finishing may end the object.
    serve_parked(object);
    if (maker != 0) finish(maker, LocalPayload(LocalDone{}));
    close_writer(writer);
    complete(object);
    return;
  }
  object.state = State::kFilling;
  serve_parked(object);
  if (maker != 0) {
    const WriterNumber writer = operations_.at(maker).writer;
    finish(maker, LocalPayload(LocalCreated{writer, object.block.offset, object.size}));
  }
}

// ---- get ----

void EngineImpl::request_object(LocalObject& object) {
  if (object.directory_request == 0) {
    object.directory_request = next_number_++;
    outstanding_[object.directory_request].object = &object;
  }
  directory_->send(Get{object.directory_request, object.id, /*leaf=*/object.into != 0});
}

Status EngineImpl::give_storage(LocalObject& object, std::uint64_t size) {
  std::vector<std::pair<ObjectId, Generation>> evicted;
  Status allocated = index_.allocate(object, size, evicted);
  for (const auto& [id, generation] : evicted)
    directory_->send(Drop{id, generation});
  return allocated;
}

void EngineImpl::on(Inline& m) {
  LocalObject* object = object_of(m.request);
  if (object == nullptr || (object->state != State::kWanted && object->state != State::kFetching))
    return;
  outstanding_.erase(m.request);
  object->directory_request = 0;
  if (object->has_storage()) {
    // It was larger in an earlier life; its readers started on bytes that are no longer the
    // object's.
    withdraw(*object, Error(Errc::kObjectLost, "it was replaced while it was being fetched"));
    return;
  }
  if (object->into != 0) {
    receive_inline(*object, m);
    return;
  }
  if (Status room = give_storage(*object, m.bytes.size()); !room) {
    directory_->send(Drop{object->id, m.generation});
    withdraw(*object, std::move(room.error()));
    return;
  }
  object->generation = m.generation;
  object->inlined = true;
  if (object->name.empty()) object->name = m.name;
  if (!m.bytes.empty()) std::memcpy(index_.data(*object), m.bytes.data(), m.bytes.size());
  object->valid = object->size;
  complete(*object);
}

void EngineImpl::on(Assign& m) {
  LocalObject* object = object_of(m.request);
  const bool usable = object != nullptr &&
                      (object->state == State::kWanted || object->state == State::kFetching) &&
                      object->incoming == nullptr && m.chunk_bytes > 0;
  if (!usable)
    return;  // answered twice, or nobody wants it any more (and the directory has been told)
  if (object->has_storage() && (object->generation != m.generation || object->size != m.size)) {
    withdraw(*object, Error(Errc::kObjectLost, "it was replaced while it was being fetched"));
    return;
  }
  if (object->into != 0 && m.uncommitted && !object->has_storage()) {
    // A leaf that is complete is forgotten, and would not hear whether these bytes are the last.
    share(*object);
    return;
  }
  if (!object->has_storage()) {
    Status room = object->into != 0 ? give_buffer(*object, m.size) : give_storage(*object, m.size);
    if (!room && object->into != 0 && room.error().code() != Errc::kInvalidArgument) {
      log_warning("a get of {} goes through the pool, its buffer cannot be registered: {}",
                  object->display_name(), room.error().to_string());
      share(*object);
      return;
    }
    if (!room) {
      withdraw(*object, std::move(room.error()));
      return;
    }
    object->generation = m.generation;
    if (object->name.empty()) object->name = m.name;
    object->state = State::kFetching;
  }
  object->uncommitted = m.uncommitted;
  serve_parked(*object);  // pulls of those who heard of this copy before we did
  start_edge(*object, m);
}

void EngineImpl::complete(LocalObject& object) {
  object.state = State::kComplete;
  index_.touch(object);
  // A reader's deliver() may release its view at once; the object must outlive the loop.
  index_.add_reference(object);
  const std::vector<OperationNumber> waiters = object.waiters;
  for (const OperationNumber number : waiters) {
    if (operations_.contains(number)) deliver_view(number, object);
  }
  index_.drop_reference(object);
}

// ---- the end of objects ----

void EngineImpl::withdraw(LocalObject& object, Error reason) {
  const State was = object.state;
  object.retired_because = reason.code();
  index_.add_reference(object);  // outlives what follows
  if (object.external != nullptr && object.shares == nullptr && object.into == 0)
    draining_external_[object.id] = &object;
  index_.retire(object);
  if (was == State::kWanted || was == State::kFetching) forget_request(object);
  if (object.incoming != nullptr)
    stop_edge(*object.incoming, /*seek_another=*/false, reason.code());
  const std::vector<OutgoingEdge*> outgoing = object.outgoing;
  for (OutgoingEdge* edge : outgoing)
    end_outgoing(*edge, reason.code());
  // The maker, if it still waits for the claim, is among the waiters; its writer goes with the
  // failure.
  const std::vector<OperationNumber> waiters = object.waiters;
  for (const OperationNumber number : waiters) {
    const auto found = operations_.find(number);
    if (found == operations_.end()) continue;
    const WriterNumber writer = found->second.writer;
    const bool is_reader = object.size > 0 && writer == 0;
    Error error = is_reader ? Error(reason).with_bytes(object.valid, object.size) : reason;
    if (number == object.into && object.incoming != nullptr) {
      hold_back(number, std::move(error));
      continue;
    }
    finish(number, fail(std::move(error)));
    if (writer != 0) close_writer(writer);
  }
  index_.drop_reference(object);
}

void EngineImpl::on(Deleted& m) {
  LocalObject* object = index_.find(m.id);
  if (object == nullptr || object->generation != m.generation) return;
  withdraw(*object, Error(Errc::kDeleted, "it was erased"));
}

void EngineImpl::on(Withdrawn& m) {
  LocalObject* object = index_.find(m.id);
  if (object == nullptr || object->generation != m.generation) return;
  const char* text = m.reason == Errc::kAborted      ? "its producer gave up before it was complete"
                     : m.reason == Errc::kObjectLost ? "no complete copy is left; put it again"
                                                     : "the directory withdrew it";
  withdraw(*object, Error(m.reason, text));
}

// ---- answers that are passed through ----

void EngineImpl::on(Failed& m) {
  const auto outstanding = take_outstanding(m.request);
  if (!outstanding) return;
  if (handle_again(outstanding->operation)) return;
  Error error(m.code, m.message);
  if (outstanding->operation != 0) {
    finish(outstanding->operation, fail(std::move(error)));
    return;
  }
  if (outstanding->object == nullptr) return;
  LocalObject& object = *outstanding->object;
  object.directory_request = 0;
  if (object.state == State::kClaiming && m.code == Errc::kAlreadyExists) {
    // The id is somebody else's; local readers of the id want that object.
    std::vector<OperationNumber> readers;
    for (const OperationNumber number : object.waiters) {
      if (operations_.at(number).writer == 0) readers.push_back(number);
    }
    for (const OperationNumber number : readers)
      std::erase(object.waiters, number);
    const ObjectId id = object.id;
    const std::string name = object.name;
    withdraw(object, std::move(error));
    if (!readers.empty()) seek_anew(id, name, std::move(readers));
    return;
  }
  withdraw(object, std::move(error));
}

void EngineImpl::on(EraseReply& m) {
  const auto outstanding = take_outstanding(m.request);
  if (!outstanding || !operations_.contains(outstanding->operation)) return;
  const OperationNumber number = outstanding->operation;
  if (!m.existed) {
    finish(number, fail(Errc::kNotFound, "there is no such object"));
    return;
  }
  const ObjectId id = operations_.at(number).ids.at(0);
  // The directory's word to the holders may come after its answer to us.
  if (LocalObject* object = index_.find(id);
      object != nullptr && object->state == State::kComplete) {
    withdraw(*object, Error(Errc::kDeleted, "it was erased"));
  }
  // The caller may reuse its own memory as soon as it has the answer: no edge must be reading it
  // then.
  if (const auto draining = draining_external_.find(id); draining != draining_external_.end()) {
    draining->second->erase_waiting = number;
    operations_.at(number).object = draining->second;
    return;
  }
  finish(number, LocalPayload(LocalDone{}));
}

void EngineImpl::on(StatReply& m) {
  const auto outstanding = take_outstanding(m.request);
  if (!outstanding || !operations_.contains(outstanding->operation)) return;
  if (handle_again(outstanding->operation)) return;
  ObjectStat stat;
  stat.id = operations_.at(outstanding->operation).ids.at(0);
  stat.name = std::move(m.name);
  stat.size = m.size;
  stat.generation = m.generation;
  stat.sealed = m.sealed;
  stat.is_inline = m.is_inline;
  for (HolderEntry& holder : m.holders) {
    stat.holders.push_back(
        {holder.node, std::move(holder.node_name), holder.complete, holder.parent});
  }
  stat.holder_count = static_cast<std::uint32_t>(stat.holders.size());
  finish(outstanding->operation, LocalPayload(std::move(stat)));
}

void EngineImpl::on(ListReply& m) {
  const auto outstanding = take_outstanding(m.request);
  if (!outstanding) return;
  LocalListPage page;
  page.more = m.more;
  for (ListEntry& entry : m.entries) {
    ObjectStat stat;
    stat.id = entry.id;
    stat.name = std::move(entry.name);
    stat.size = entry.size;
    stat.sealed = entry.sealed;
    stat.holder_count = entry.holders;
    stat.generation = entry.generation;
    page.objects.push_back(std::move(stat));
  }
  finish(outstanding->operation, LocalPayload(std::move(page)));
}

void EngineImpl::on(WaitReply& m) {
  const auto outstanding = take_outstanding(m.request);
  if (!outstanding || !operations_.contains(outstanding->operation)) return;
  const std::unordered_set<ObjectId, ObjectIdHash> ready(m.ready.begin(), m.ready.end());
  const std::vector<ObjectId>& ids = operations_.at(outstanding->operation).ids;
  LocalReady positions;
  for (std::uint32_t i = 0; i < ids.size(); ++i) {
    if (ready.contains(ids[i])) positions.positions.push_back(i);
  }
  finish(outstanding->operation, LocalPayload(std::move(positions)));
}

void EngineImpl::on(BarrierReply& m) {
  const auto outstanding = take_outstanding(m.request);
  if (outstanding) finish(outstanding->operation, LocalPayload(LocalDone{}));
}

// ---- edges ----

void EngineImpl::on(EdgeRevoked& m) {
  LocalObject* object = index_.find(m.id);
  if (object == nullptr || object->incoming == nullptr || object->incoming->number != m.edge)
    return;
  stop_edge(*object->incoming, /*seek_another=*/true, m.reason);
}

}  // namespace lochos
