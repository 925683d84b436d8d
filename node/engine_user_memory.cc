// User memory in place of the pool: objects that are served from it, gets that go straight into it,
// and its registration.
#include <fmt/format.h>

#include <cstring>

#include "base/check.h"
#include "node/engine_impl.h"

namespace lochos {
namespace {

Error wrong_process() {
  return {Errc::kUnsupported, "memory of another process cannot be used"};
}

}  // namespace

const Region& EngineImpl::region_of(const LocalObject& object, std::size_t rail) const {
  const LocalObject* owner = &object;
  while (owner->shares != nullptr)
    owner = owner->shares;
  return owner->external_memory ? owner->external_memory->region(rail) : *pool_regions_[rail];
}

// ---- registration ----

void EngineImpl::on(LocalClient& client, LocalRegisterMemory& m) {
  auto number = client.in_process() ? registered_.add({m.address, m.size}) : fail(wrong_process());
  if (!number) {
    reply_error(client, m.request, "register memory", "", std::move(number.error()));
    return;
  }
  clients_[&client].registrations.insert(*number);
  client.deliver({m.request, LocalPayload(LocalRegistered{*number})});
}

void EngineImpl::on(LocalClient& client, LocalUnregisterMemory& m) {
  if (clients_[&client].registrations.erase(m.registration) > 0) {
    registered_.remove(m.registration);
  }
  client.deliver({m.request, LocalPayload(LocalDone{})});
}

// ---- putting ----

void EngineImpl::on(LocalClient& client, LocalPutUserMemory& m) {
  const auto refuse = [&](Error error) {
    reply_error(client, m.request, "put", name_of(m), std::move(error));
  };
  if (!client.in_process()) return refuse(wrong_process());
  if (const LocalObject* existing = possibly_erased(m.id))
    return handle_after_answer(client, "put", *existing, std::move(m));
  if (Status free = check_free(m.id); !free) return refuse(std::move(free.error()));
  std::shared_ptr<const RegisteredMemory> memory;
  if (m.size > 0) {
    // Read-only use; registration takes one pointer type for both directions.
    auto registered = registered_.use({const_cast<std::byte*>(m.address), m.size});
    if (!registered) return refuse(std::move(registered.error()));
    memory = std::move(*registered);
  }
  LocalObject& object = index_.make(m.id, m.name);
  object.origin = true;
  object.size = m.size;
  object.valid = m.size;
  object.external = m.address;
  object.external_memory = std::move(memory);
  begin_claim(client, m.request, "put", m.timeout, open_writer(client, object));
}

// ---- getting ----
//
// While `object.into` is set the object is a leaf at the directory: nobody pulls from it, and the
// directory forgets it when it is complete. So it must never turn into a copy; other local readers
// wait for a fetch of their own.

void EngineImpl::on(LocalClient& client, LocalGetInto& m) {
  if (!client.in_process()) {
    reply_error(client, m.request, "get", name_of(m), wrong_process());
    return;
  }
  if (index_.find(m.id) != nullptr) {  // here already, or on its way for others
    LocalGet get{m.request, m.id, m.name, m.timeout, /*progress=*/true};
    on(client, get);
    return;
  }
  const OperationNumber number = begin(client, m.request, "get", name_of(m), m.timeout);
  LocalObject& object = index_.make(m.id, m.name);
  object.into = number;
  object.buffer = {m.address, m.capacity};
  object.waiters.push_back(number);
  Operation& operation = operations_.at(number);
  operation.object = &object;
  operation.progress = true;  // should it go through the pool after all
  index_.enter(object);
  request_object(object);
}

// Nothing has arrived yet, and somebody else here wants the object, or the buffer cannot be used:
// one ordinary fetch serves them all.
void EngineImpl::share(LocalObject& object) {
  LOCHOS_CHECK(object.state == State::kWanted);
  forget_request(object);
  object.into = 0;
  object.buffer = {};
  request_object(object);
}

// Errors: kInvalidArgument if the object does not fit; what the registration says.
Status EngineImpl::give_buffer(LocalObject& object, std::uint64_t size) {
  if (size > object.buffer.size()) {
    return fail(Errc::kInvalidArgument,
                fmt::format("the object has {} bytes, the buffer {}", size, object.buffer.size()));
  }
  auto memory = registered_.use(object.buffer.first(size));
  if (!memory) return fail(std::move(memory.error()));
  object.size = size;
  object.external = object.buffer.data();
  object.external_memory = std::move(*memory);
  return {};
}

void EngineImpl::receive_inline(LocalObject& object, const Inline& m) {
  if (m.bytes.size() > object.buffer.size()) {
    withdraw(object,
             Error(Errc::kInvalidArgument, fmt::format("the object has {} bytes, the buffer {}",
                                                       m.bytes.size(), object.buffer.size())));
    return;
  }
  if (!m.bytes.empty()) std::memcpy(object.buffer.data(), m.bytes.data(), m.bytes.size());
  object.size = object.valid = m.bytes.size();
  object.generation = m.generation;
  complete_into(object);
}

void EngineImpl::complete_into(LocalObject& object) {
  index_.add_reference(object);  // outlives what follows
  const OperationNumber receiver = std::exchange(object.into, 0);
  std::vector<OperationNumber> others = std::exchange(object.waiters, {});
  std::erase(others, receiver);
  object.external_memory.reset();  // before the caller hears that its memory is its own again
  index_.retire(object);
  if (!others.empty()) seek_anew(object.id, object.name, std::move(others));
  finish(receiver, LocalPayload(LocalReceived{object.size, object.generation}));
  index_.drop_reference(object);
}

// The get into the buffer gives up; other readers of the object do not.
void EngineImpl::end_into(LocalObject& object, Error error) {
  const ObjectId id = object.id;
  const std::string name = object.name;
  std::vector<OperationNumber> others = std::exchange(object.waiters, {object.into});
  std::erase(others, object.into);
  withdraw(object, std::move(error));
  if (!others.empty()) seek_anew(id, name, std::move(others));
}

// The parent may still be writing: the answer comes with the end of the edge.
void EngineImpl::hold_back(OperationNumber number, Error error) {
  Operation& operation = operations_.at(number);
  if (operation.deadline != kNever) deadlines_.erase({operation.deadline, number});
  operation.deadline = kNever;
  operation.failure = std::make_unique<Error>(std::move(error));
}

void EngineImpl::answer_held_back(LocalObject& object) {
  const auto found = operations_.find(object.into);
  if (found == operations_.end() || !found->second.failure) return;
  object.external_memory.reset();
  finish(found->first, fail(std::move(*found->second.failure)));
}

}  // namespace lochos
