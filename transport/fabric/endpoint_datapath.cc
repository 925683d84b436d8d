#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "transport/fabric/endpoint.h"
#include "transport/fabric/rail.h"

namespace lochos::fabric {
namespace {

// With 8 bytes of remote completion data the upper half carries the length, which the provider
// `tcp` does not report to the receiver.
constexpr int kLengthShift = 32;

bool arrives(const WorkRequest& request) {
  return request.opcode == Opcode::kWriteImmediate;
}

std::string_view name(Opcode opcode) {
  switch (opcode) {
    case Opcode::kSend:
      return "send";
    case Opcode::kWrite:
    case Opcode::kWriteImmediate:
      return "write";
    case Opcode::kRead:
      return "read";
  }
  return "request";
}

}  // namespace

std::size_t FabricEndpoint::post(std::span<const WorkRequest> requests) {
  std::size_t accepted = 0;
  while (state_ == State::kOpen && accepted < requests.size() && free_ != nullptr &&
         post_one(requests[accepted])) {
    ++accepted;
  }
  if (accepted > 0) rail_.touch(*this);
  return accepted;
}

bool FabricEndpoint::post_one(const WorkRequest& request) {
  const Limits& limits = rail_.limits();
  LOCHOS_CHECK(request.length <= (request.opcode == Opcode::kSend ? limits.max_message_bytes
                                                                  : limits.max_transfer_bytes));
  // Small requests are copied by the provider and end at once, without a completion of its own. It
  // may queue them without bound, so those it has not confirmed are counted: a later request that
  // does complete confirms all before it.
  if (request.opcode != Opcode::kRead && request.length <= rail_.device().inject_bytes() &&
      next_sequence_ - confirmed_sequence_ <= limits.queue_depth) {
    return inject(request);
  }
  Slot& slot = acquire(request);
  const ssize_t code = submit(request, slot);
  if (code == 0) return true;
  --outstanding_;
  release(slot);
  if (code != -FI_EAGAIN) break_off(code, name(request.opcode));
  return false;
}

bool FabricEndpoint::inject(const WorkRequest& request) {
  const std::size_t length = request.length;
  const bool empty = length == 0;
  const std::byte none{};
  const std::byte* data = empty ? &none : request.local;
  const std::uint64_t address = empty ? peer_.void_address : request.remote_address;
  const std::uint64_t key = empty ? peer_.void_key : request.remote_key;
  ssize_t code = 0;
  if (request.opcode == Opcode::kSend) {
    code = fi_inject(endpoint_.get(), data, length, 0);
  } else if (arrives(request)) {
    code = fi_inject_writedata(endpoint_.get(), data, length, completion_data(request), 0, address,
                               key);
  } else {
    code = fi_inject_write(endpoint_.get(), data, length, 0, address, key);
  }
  if (code == 0) {
    finish(acquire(request), Completion::Status::kDone);
    return true;
  }
  if (code != -FI_EAGAIN) break_off(code, name(request.opcode));
  return false;
}

ssize_t FabricEndpoint::submit(const WorkRequest& request, Slot& slot) {
  if (request.opcode == Opcode::kSend) return submit_send(request, slot);
  if (request.opcode != Opcode::kRead) return submit_write(request, slot);
  const auto* region = static_cast<const FabricRegion*>(request.region);
  return fi_read(endpoint_.get(), request.local, request.length, region->descriptor(), 0,
                 request.remote_address, request.remote_key, &slot.provider);
}

ssize_t FabricEndpoint::submit_send(const WorkRequest& request, Slot& slot) {
  if (request.region != nullptr) {
    const auto* region = static_cast<const FabricRegion*>(request.region);
    return fi_send(endpoint_.get(), request.local, request.length, region->descriptor(), 0,
                   &slot.provider);
  }
  LOCHOS_CHECK(request.length <= rail_.limits().inline_bytes);
  if (request.length > 0) std::memcpy(slot.copy, request.local, request.length);
  void* descriptor = copies_region_ ? copies_region_->descriptor() : nullptr;
  return fi_send(endpoint_.get(), slot.copy, request.length, descriptor, 0, &slot.provider);
}

ssize_t FabricEndpoint::submit_write(const WorkRequest& request, Slot& slot) {
  const bool empty = request.length == 0;
  const auto* region = static_cast<const FabricRegion*>(request.region);
  LOCHOS_CHECK(region != nullptr || empty);
  std::byte* data = empty ? slot.copy : request.local;
  void* descriptor = region != nullptr ? region->descriptor()
                     : copies_region_  ? copies_region_->descriptor()
                                       : nullptr;
  const std::uint64_t address = empty ? peer_.void_address : request.remote_address;
  const std::uint64_t key = empty ? peer_.void_key : request.remote_key;
  if (arrives(request)) {
    return fi_writedata(endpoint_.get(), data, request.length, descriptor, completion_data(request),
                        0, address, key, &slot.provider);
  }
  return fi_write(endpoint_.get(), data, request.length, descriptor, 0, address, key,
                  &slot.provider);
}

std::uint64_t FabricEndpoint::completion_data(const WorkRequest& request) const {
  if (rail_.device().completion_data_bytes() < 8) return request.immediate;
  return request.length << kLengthShift | request.immediate;
}

ssize_t FabricEndpoint::read(std::span<fi_cq_data_entry> entries) {
  return fi_cq_read(queue_.get(), entries.data(), entries.size());
}

std::optional<Error> FabricEndpoint::read_failure() {
  fi_cq_err_entry entry{};
  if (fi_cq_readerr(queue_.get(), &entry, 0) < 0) return std::nullopt;
  if ((entry.flags & FI_RECV) != 0) {
    if (entry.op_context != nullptr) {
      Receive& receive = *static_cast<Receive*>(entry.op_context);
      receive.pool->taken(receive);
      rail_.repost_later(receive);
    }
  } else if ((entry.flags & (FI_REMOTE_WRITE | FI_REMOTE_READ)) == 0 &&
             entry.op_context != nullptr) {
    Slot& slot = *static_cast<Slot*>(entry.op_context);
    if (slot.state == Slot::State::kPosted) finish(slot, Completion::Status::kFlushed);
  }
  if (entry.err == FI_ECANCELED) return std::nullopt;
  return fabric_error(entry.err, fmt::format("connection to {}", remote_.to_string()));
}

bool FabricEndpoint::translate(const fi_cq_data_entry& entry, Completion& completion) {
  if ((entry.flags & FI_RECV) != 0) {
    Receive& receive = *static_cast<Receive*>(entry.op_context);
    receive.pool->taken(receive);
    rail_.repost_later(receive);
    completion = {.kind = Completion::Kind::kMessage,
                  .endpoint = this,
                  .bytes = entry.len,
                  .message = {receive.buffer, entry.len}};
    return true;
  }
  if ((entry.flags & FI_REMOTE_CQ_DATA) != 0 && (entry.flags & FI_WRITE) == 0) {
    const bool has_length = rail_.device().completion_data_bytes() >= 8;
    completion = {.kind = Completion::Kind::kImmediate,
                  .immediate = static_cast<std::uint32_t>(entry.data),
                  .endpoint = this,
                  .bytes = has_length ? entry.data >> kLengthShift : entry.len,
                  .message = {}};
    return true;
  }
  if (entry.op_context == nullptr) return false;
  Slot& slot = *static_cast<Slot*>(entry.op_context);
  if (slot.state != Slot::State::kPosted) return false;
  slot.state = Slot::State::kFinished;
  slot.status = Completion::Status::kDone;
  confirmed_sequence_ = std::max(confirmed_sequence_, slot.sequence);
  completion = take(slot);
  return true;
}

Completion FabricEndpoint::take(Slot& slot) {
  const Completion completion{.kind = Completion::Kind::kRequest,
                              .status = slot.status,
                              .endpoint = this,
                              .context = slot.context,
                              .bytes = slot.bytes,
                              .message = {}};
  --outstanding_;
  release(slot);
  return completion;
}

void FabricEndpoint::finish(Slot& slot, Completion::Status status) {
  slot.state = Slot::State::kFinished;
  slot.status = status;
  rail_.finished(slot);
}

Slot& FabricEndpoint::acquire(const WorkRequest& request) {
  Slot& slot = *free_;
  free_ = slot.next;
  slot.next = nullptr;
  slot.context = request.context;
  slot.bytes = request.length;
  slot.sequence = next_sequence_++;
  slot.state = Slot::State::kPosted;
  ++outstanding_;
  return slot;
}

void FabricEndpoint::release(Slot& slot) {
  slot.state = Slot::State::kFree;
  slot.next = free_;
  free_ = &slot;
}

void FabricEndpoint::break_off(std::int64_t code, std::string_view what) {
  retire(fabric_error(code, fmt::format("{} to {}", what, remote_.to_string())));
}

}  // namespace lochos::fabric
