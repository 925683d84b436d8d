// What local clients ask of the engine.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "node/engine_impl.h"

namespace lochos {
namespace {

// What a request's object is called, for error text.
template <class Message>
std::string name_of(const Message& m) {
  return m.name.empty() ? m.id.to_hex() : m.name;
}

}  // namespace

void EngineImpl::handle(LocalClient& client, LocalMessage message, Instant now) {
  now_ = now;
  std::visit([&](auto& m) { on(client, m); }, message);
}

void EngineImpl::forget(LocalClient& client, Instant now) {
  now_ = now;
  const auto found = clients_.find(&client);
  if (found == clients_.end()) return;
  // The client must not be called any more: its operations end without a reply.
  const Client gone = std::move(found->second);
  clients_.erase(found);
  for (const auto& [request, number] : gone.operations) {
    operations_.at(number).client = nullptr;
    give_up(number, Error(Errc::kClosed, "the client is gone"));
  }
  for (const WriterNumber writer : gone.writers)
    abandon(writer);
  for (const PinNumber pin : gone.pins)
    close_pin(pin);
  for (const RegistrationNumber registration : gone.registrations)
    registered_.remove(registration);
}

// ---- operations ----

OperationNumber EngineImpl::begin(LocalClient& client, LocalRequestNumber request, const char* name,
                                  std::string object_name, Duration timeout) {
  const OperationNumber number = next_number_++;
  Operation& operation = operations_[number];
  operation.client = &client;
  operation.request = request;
  operation.name = name;
  operation.object_name = std::move(object_name);
  set_deadline(number, operation, timeout);
  clients_[&client].operations[request] = number;
  return number;
}

// Nobody finds the operation any more.
EngineImpl::Operation EngineImpl::take_operation(Operations::iterator at) {
  Operation operation = std::move(at->second);
  if (operation.deadline != kNever) deadlines_.erase({operation.deadline, at->first});
  const auto client = clients_.find(operation.client);
  if (client != clients_.end()) client->second.operations.erase(operation.request);
  operations_.erase(at);
  return operation;
}

void EngineImpl::finish(OperationNumber number, Result<LocalPayload> result) {
  const auto found = operations_.find(number);
  if (found == operations_.end()) return;
  Operation operation = take_operation(found);
  if (operation.object != nullptr) std::erase(operation.object->waiters, number);
  if (CollectiveWork* work = std::exchange(operation.collective, nullptr); work != nullptr) {
    work->operation = 0;
    end_collective(*work);
  }
  if (operation.client == nullptr) return;
  if (!result) {
    result = fail(std::move(result.error())
                      .with_operation(operation.name)
                      .with_object(operation.object_name));
  }
  operation.client->deliver({operation.request, std::move(result)});
}

void EngineImpl::reply_error(LocalClient& client, LocalRequestNumber request, const char* name,
                             const std::string& object_name, Error error) {
  client.deliver({request, fail(std::move(error).with_operation(name).with_object(object_name))});
}

void EngineImpl::give_up(OperationNumber number, Error error) {
  const auto found = operations_.find(number);
  if (found == operations_.end()) return;
  Operation& operation = found->second;
  if (operation.failure) return;
  LocalObject* object = operation.object;
  if (object != nullptr && object->into == number) {
    end_into(*object, std::move(error));
    return;
  }
  const RequestNumber request = operation.directory_request;
  const WriterNumber writer = operation.writer;
  finish(number, fail(std::move(error)));
  if (request != 0 && outstanding_.erase(request) > 0) directory_->send(CancelWait{request});
  if (object == nullptr) return;
  if (object->erase_waiting == number) object->erase_waiting = 0;
  if (object->state == State::kClaiming && writer != 0) {
    // Nobody knows yet whether the directory has the Put; its answer will be undone.
    if (object->directory_request != 0) {
      Outstanding& put = outstanding_.at(object->directory_request);
      put.undo_put = true;
      put.object = nullptr;
      put.complete_put = object->valid == object->size;
      put.id = object->id;
      object->directory_request = 0;
    }
    close_writer(writer);
    withdraw(*object, Error(Errc::kAborted, "the producer gave up"));
    return;
  }
  stop_if_unwanted(*object);
}

Duration EngineImpl::directory_timeout(Duration timeout) {
  if (timeout == kNoTimeout) return timeout;
  return timeout - std::min<Duration>(timeout / 10, std::chrono::milliseconds(50));
}

void EngineImpl::pass_on(OperationNumber number, NodeMessage message) {
  const RequestNumber request = next_number_++;
  std::visit(
      [&](auto& m) {
        if constexpr (requires { m.request; }) m.request = request;
      },
      message);
  operations_.at(number).directory_request = request;
  directory_->send(message);
  Outstanding& outstanding = outstanding_[request];
  outstanding.operation = number;
  outstanding.message = std::move(message);
}

// ---- making objects ----

// Whether this node may make an object under the id: only a wish for it may be here already.
// Errors: kAlreadyExists.
Status EngineImpl::check_free(const ObjectId& id) const {
  const LocalObject* existing = index_.find(id);
  if (existing == nullptr || existing->state == State::kWanted) return {};
  return fail(Errc::kAlreadyExists, "this node has or fetches it");
}

// What is here under the id and keeps another from being put, but may have been erased elsewhere,
// with the directory's word of it still on its way: whoever puts after that erase must not be
// refused. Null: there is nothing to ask the directory.
const LocalObject* EngineImpl::possibly_erased(const ObjectId& id) const {
  const LocalObject* existing = index_.find(id);
  if (handling_again_ || check_free(id) || existing->state == State::kClaiming) return nullptr;
  return existing;
}

// Handles the message when the directory has answered a question: by then all that it had to say
// before has come.
void EngineImpl::handle_after_answer(LocalClient& client, const char* name,
                                     const LocalObject& existing, LocalMessage message) {
  std::visit(
      [&](auto& m) {
        if constexpr (requires { m.request, m.timeout; }) {
          const OperationNumber number =
              begin(client, m.request, name, existing.display_name(), m.timeout);
          operations_.at(number).again = std::make_unique<LocalMessage>(std::move(m));
          pass_on(number, Stat{0, existing.id});
        }
      },
      message);
}

// The directory has answered. False: the operation is no such message.
bool EngineImpl::handle_again(OperationNumber number) {
  const auto found = operations_.find(number);
  if (found == operations_.end() || found->second.again == nullptr) return false;
  const Operation operation = take_operation(found);
  handling_again_ = true;
  std::visit(
      [&](auto& m) {
        if constexpr (requires { m.timeout; }) {
          if (operation.deadline != kNever)
            m.timeout = std::max<Duration>(operation.deadline - now_, Duration{0});
        }
        on(*operation.client, m);
      },
      *operation.again);
  handling_again_ = false;
  return true;
}

// A new object of this node with room in the pool, not yet under its id. Errors: kAlreadyExists,
// kNoSpace.
Result<LocalObject*> EngineImpl::make_own(const ObjectId& id, const std::string& name,
                                          std::uint64_t size) {
  if (Status free = check_free(id); !free) return fail(std::move(free.error()));
  LocalObject& object = index_.make(id, name);
  object.origin = true;
  if (Status room = give_storage(object, size); !room) {
    index_.retire(object);
    return fail(std::move(room.error()));
  }
  return &object;
}

// Its writer keeps the object until close_writer().
WriterNumber EngineImpl::open_writer(LocalClient& client, LocalObject& object) {
  const WriterNumber writer = next_number_++;
  writers_[writer] = {&client, &object};
  clients_[&client].writers.insert(writer);
  index_.add_reference(object);
  return writer;
}

// Begins the operation that the directory's answer to the claim ends, and claims.
void EngineImpl::begin_claim(LocalClient& client, LocalRequestNumber request, const char* name,
                             Duration timeout, WriterNumber writer) {
  LocalObject& object = *writers_.at(writer).object;
  const OperationNumber number = begin(client, request, name, object.display_name(), timeout);
  Operation& operation = operations_.at(number);
  operation.object = &object;
  operation.writer = writer;
  object.waiters.push_back(number);
  claim(object);
}

void EngineImpl::on(LocalClient& client, LocalCreate& m) {
  if (const LocalObject* existing = possibly_erased(m.id))
    return handle_after_answer(client, "create", *existing, std::move(m));
  const auto made = make_own(m.id, m.name, m.size);
  if (!made) {
    reply_error(client, m.request, "create", name_of(m), made.error());
    return;
  }
  LocalObject& object = **made;
  const WriterNumber writer = open_writer(client, object);
  if (m.size <= kInlineObjectBytes) {
    // Claimed at seal, when its bytes can travel with the claim.
    object.state = State::kDraft;
    client.deliver({m.request, LocalPayload(LocalCreated{writer, object.block.offset, m.size})});
    return;
  }
  begin_claim(client, m.request, "create", m.timeout, writer);
}

void EngineImpl::on(LocalClient& client, LocalPutInline& m) {
  if (m.bytes.size() > kInlineObjectBytes) {
    reply_error(client, m.request, "put", name_of(m),
                Error(Errc::kInvalidArgument, "too large to be put in one message"));
    return;
  }
  if (const LocalObject* existing = possibly_erased(m.id))
    return handle_after_answer(client, "put", *existing, std::move(m));
  const auto made = make_own(m.id, m.name, m.bytes.size());
  if (!made) {
    reply_error(client, m.request, "put", name_of(m), made.error());
    return;
  }
  LocalObject& object = **made;
  if (!m.bytes.empty()) std::memcpy(index_.data(object), m.bytes.data(), m.bytes.size());
  object.valid = object.size;
  begin_claim(client, m.request, "put", m.timeout, open_writer(client, object));
}

// Puts the object under its id and asks the directory for it. Local readers that were waiting for
// the id wait for this object from now on.
void EngineImpl::claim(LocalObject& object) {
  take_over_wanted(object);
  object.state = State::kClaiming;
  index_.enter(object);
  send_put(object);
}

void EngineImpl::take_over_wanted(LocalObject& object) {
  LocalObject* wanted = index_.find(object.id);
  if (wanted == nullptr) return;
  LOCHOS_CHECK(wanted->state == State::kWanted);
  forget_request(*wanted);
  for (const OperationNumber waiter : wanted->waiters) {
    operations_.at(waiter).object = &object;
    object.waiters.push_back(waiter);
  }
  wanted->waiters.clear();
  index_.retire(*wanted);
}

void EngineImpl::on(LocalClient& client, LocalPublish& m) {
  const auto found = writers_.find(m.writer);
  if (found == writers_.end() || found->second.client != &client) return;
  LocalObject& object = *found->second.object;
  if (m.count > object.size || m.count <= object.valid) return;
  if (object.state == State::kFilling) advance(object, m.count);
}

void EngineImpl::on(LocalClient& client, LocalSeal& m) {
  const auto found = writers_.find(m.writer);
  if (found == writers_.end() || found->second.client != &client) {
    reply_error(client, m.request, "seal", "",
                Error(Errc::kInvalidArgument, "there is no such writer"));
    return;
  }
  LocalObject& object = *found->second.object;
  const std::string name = object.display_name();
  if (object.scratch) {
    reply_error(client, m.request, "seal", "",
                Error(Errc::kInvalidArgument, "it is no object but an operation's input"));
    return;
  }
  switch (object.state) {
    case State::kFilling:
      close_writer(m.writer);
      directory_->send(Seal{object.id, object.generation});
      advance(object, object.size);
      complete(object);
      client.deliver({m.request, LocalPayload(LocalDone{})});
      return;
    case State::kDraft:
      if (const LocalObject* existing = possibly_erased(object.id))
        return handle_after_answer(client, "seal", *existing, m);
      if (Status free = check_free(object.id); !free) {
        close_writer(m.writer);
        index_.retire(object);
        reply_error(client, m.request, "seal", name, std::move(free.error()));
        return;
      }
      object.valid = object.size;
      begin_claim(client, m.request, "seal", m.timeout, m.writer);
      return;
    case State::kRetired: {
      const Errc reason = object.retired_because;
      close_writer(m.writer);
      reply_error(client, m.request, "seal", name,
                  Error(reason, "it went while it was being filled"));
      return;
    }
    default:
      reply_error(client, m.request, "seal", name,
                  Error(Errc::kInvalidArgument, "it is not being filled"));
  }
}

void EngineImpl::on(LocalClient& client, LocalAbandon& m) {
  const auto found = writers_.find(m.writer);
  if (found != writers_.end() && found->second.client == &client) abandon(m.writer);
}

void EngineImpl::abandon(WriterNumber writer) {
  const auto found = writers_.find(writer);
  if (found == writers_.end()) return;
  LocalObject& object = *found->second.object;
  if (object.state == State::kFilling) directory_->send(Abandon{object.id, object.generation});
  // The writer's reference goes last: withdraw() must find the object alive.
  if (object.state != State::kRetired) {
    withdraw(object, Error(Errc::kAborted, "its producer gave up before it was complete"));
  }
  close_writer(writer);
}

void EngineImpl::close_writer(WriterNumber writer) {
  const auto found = writers_.find(writer);
  if (found == writers_.end()) return;
  const Writer closed = found->second;
  writers_.erase(found);
  const auto client = clients_.find(closed.client);
  if (client != clients_.end()) client->second.writers.erase(writer);
  index_.drop_reference(*closed.object);
}

// ---- reading ----

void EngineImpl::on(LocalClient& client, LocalGet& m) {
  const std::string name = name_of(m);
  const OperationNumber number = begin(client, m.request, "get", name, m.timeout);
  LocalObject* object = index_.find(m.id);
  if (object != nullptr && object->state == State::kComplete) {
    deliver_view(number, *object);
    return;
  }
  if (object == nullptr) {
    object = &index_.make(m.id, m.name);
    index_.enter(*object);
    request_object(*object);
  } else if (object->into != 0 && object->state == State::kWanted) {
    share(*object);
  }
  Operation& operation = operations_.at(number);
  operation.object = object;
  operation.progress = m.progress;
  object->waiters.push_back(number);
  if (m.progress && object->valid > 0) progressed_.insert(object);
}

LocalView EngineImpl::view_of(const LocalObject& object, PinNumber pin) const {
  LocalView view;
  view.pin = pin;
  view.offset = object.has_block ? object.block.offset : 0;
  view.size = object.size;
  view.generation = object.generation;
  view.external = object.external;
  return view;
}

void EngineImpl::deliver_view(OperationNumber number, LocalObject& object) {
  Operation& operation = operations_.at(number);
  if (object.external != nullptr && !operation.client->in_process()) {
    finish(number, fail(Errc::kUnsupported,
                        "the object lies in the memory of the process that embeds this node"));
    return;
  }
  const PinNumber pin = operation.pin != 0 ? operation.pin : open_pin(*operation.client, object);
  finish(number, LocalPayload(view_of(object, pin)));
}

void EngineImpl::report_progress(LocalObject& object) {
  if (object.state == State::kRetired || object.state == State::kComplete) return;
  // deliver() may re-enter and change the waiters.
  const std::vector<OperationNumber> waiters = object.waiters;
  for (const OperationNumber number : waiters) {
    const auto found = operations_.find(number);
    if (found == operations_.end()) continue;
    Operation& operation = found->second;
    if (!operation.progress || operation.reported == object.valid || object.external != nullptr)
      continue;
    if (operation.pin == 0) operation.pin = open_pin(*operation.client, object);
    operation.reported = object.valid;
    operation.client->deliver(
        {operation.request,
         LocalPayload(LocalProgress{operation.pin, object.block.offset, object.size, object.valid,
                                    object.generation})});
  }
}

PinNumber EngineImpl::open_pin(LocalClient& client, LocalObject& object) {
  const PinNumber pin = next_number_++;
  pins_[pin] = {&client, &object};
  clients_[&client].pins.insert(pin);
  index_.add_reference(object);
  return pin;
}

void EngineImpl::close_pin(PinNumber pin) {
  const auto found = pins_.find(pin);
  if (found == pins_.end()) return;
  const Pin closed = found->second;
  pins_.erase(found);
  const auto client = clients_.find(closed.client);
  if (client != clients_.end()) client->second.pins.erase(pin);
  index_.drop_reference(*closed.object);
}

void EngineImpl::on(LocalClient& client, LocalRelease& m) {
  const auto found = pins_.find(m.pin);
  if (found == pins_.end() || found->second.client != &client) return;
  close_pin(m.pin);
}

void EngineImpl::on(LocalClient& client, LocalCancel& m) {
  const auto found = clients_.find(&client);
  if (found == clients_.end()) return;
  const auto operation = found->second.operations.find(m.request);
  if (operation == found->second.operations.end()) return;
  give_up(operation->second, Error(Errc::kCancelled, "the caller cancelled it"));
}

void EngineImpl::stop_if_unwanted(LocalObject& object) {
  const bool fetching = object.state == State::kWanted || object.state == State::kFetching;
  if (!fetching || !object.waiters.empty() || !object.outgoing.empty()) return;
  withdraw(object, Error(Errc::kCancelled, "no reader is left"));
}

// ---- what only the directory knows ----

void EngineImpl::on(LocalClient& client, LocalWait& m) {
  if (m.ids.empty() || m.ids.size() > kMaxWaitIds || m.count == 0 || m.count > m.ids.size()) {
    reply_error(client, m.request, "wait", "",
                Error(Errc::kInvalidArgument,
                      fmt::format("wait for {} of {} objects: the count must be 1 to the number of "
                                  "objects, which is at most {}",
                                  m.count, m.ids.size(), kMaxWaitIds)));
    return;
  }
  const OperationNumber number = begin(client, m.request, "wait", "", m.timeout);
  operations_.at(number).ids = m.ids;
  pass_on(number, Wait{0, std::move(m.ids), m.count});
}

void EngineImpl::on(LocalClient& client, LocalStat& m) {
  const std::string name = name_of(m);
  const OperationNumber number = begin(client, m.request, "stat", name, m.timeout);
  operations_.at(number).ids = {m.id};
  pass_on(number, Stat{0, m.id});
}

void EngineImpl::on(LocalClient& client, LocalList& m) {
  const OperationNumber number = begin(client, m.request, "list", "", m.timeout);
  pass_on(number, List{0, m.after, std::clamp<std::uint32_t>(m.limit, 1, 1000)});
}

void EngineImpl::on(LocalClient& client, LocalErase& m) {
  const std::string name = name_of(m);
  const OperationNumber number = begin(client, m.request, "erase", name, m.timeout);
  operations_.at(number).ids = {m.id};
  pass_on(number, Erase{0, m.id});
}

void EngineImpl::on(LocalClient& client, LocalBarrier& m) {
  const OperationNumber number = begin(client, m.request, "barrier", m.name, m.timeout);
  pass_on(number, Barrier{0, m.name, m.members});
}

void EngineImpl::on(LocalClient& client, LocalStats& m) {
  client.deliver({m.request, LocalPayload(stats())});
}

}  // namespace lochos
