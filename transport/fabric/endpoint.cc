#include "transport/fabric/endpoint.h"

#include <fmt/format.h>

#include <algorithm>

#include "transport/fabric/rail.h"
#include "transport/fabric/socket.h"

namespace lochos::fabric {

FabricEndpoint::FabricEndpoint(Rail& rail, bool incoming, const SocketAddress& remote,
                               Instant deadline)
    : rail_(rail), incoming_(incoming), remote_(remote), deadline_(deadline) {}

FabricEndpoint::~FabricEndpoint() = default;

Status FabricEndpoint::make_slots() {
  const Limits& limits = rail_.limits();
  copies_ = std::make_unique_for_overwrite<std::byte[]>(limits.queue_depth * limits.inline_bytes);
  if (rail_.device().needs_local_registration()) {
    auto region = rail_.device().register_memory(
        {copies_.get(), static_cast<std::size_t>(limits.queue_depth * limits.inline_bytes)});
    if (!region) return fail(std::move(region).error());
    copies_region_ = std::move(*region);
  }
  slots_.resize(limits.queue_depth);
  for (std::size_t index = slots_.size(); index-- > 0;) {
    slots_[index].endpoint = this;
    slots_[index].copy = copies_.get() + index * limits.inline_bytes;
    slots_[index].next = free_;
    free_ = &slots_[index];
  }
  return {};
}

Status FabricEndpoint::open(fi_info& info) {
  if (Status made = make_slots(); !made) return made;
  Device& device = rail_.device();
  // Our own requests and as many arrivals again; more are kept too, but in memory allocated then.
  auto queue =
      device.open_completion_queue(std::max<std::size_t>(2 * rail_.limits().queue_depth, 512));
  if (!queue) return fail(std::move(queue).error());
  queue_ = std::move(*queue);

  descriptor_hint_ = next_descriptor(rail_.epoll_fd());
  fid_ep* endpoint = nullptr;
  int code = fi_endpoint(device.domain(), &info, &endpoint, this);
  if (code != 0) return fail(fabric_error(code, "open a libfabric endpoint"));
  endpoint_.reset(endpoint);
  code = fi_ep_bind(endpoint, &rail_.event_queue()->fid, 0);
  if (code == 0) code = fi_ep_bind(endpoint, &queue_->fid, FI_TRANSMIT | FI_RECV);
  if (code == 0 && rail_.shared_receives() != nullptr) {
    code = fi_ep_bind(endpoint, &rail_.shared_receives()->fid, 0);
  }
  if (code == 0) code = fi_enable(endpoint);
  if (code != 0) return fail(fabric_error(code, "set up a libfabric endpoint"));
  if (rail_.shared_receives() != nullptr) return {};

  const std::size_t count = std::min(rail_.options().receive_buffers, device.receive_depth());
  auto pool = ReceivePool::create(device, count, rail_.limits().max_message_bytes);
  if (!pool) return fail(std::move(pool).error());
  own_receives_ = std::move(*pool);
  return own_receives_->attach(endpoint);
}

Status FabricEndpoint::start_connecting(std::span<const std::byte> greeting) {
  const int code = fi_connect(endpoint_.get(), remote_.get(), greeting.data(), greeting.size());
  if (code != 0) return fail(fabric_error(code, fmt::format("connect to {}", remote_.to_string())));
  return {};
}

Status FabricEndpoint::start_accepting(std::span<const std::byte> greeting) {
  const int code = fi_accept(endpoint_.get(), greeting.data(), greeting.size());
  if (code != 0) return fail(fabric_error(code, "accept a connection"));
  return {};
}

void FabricEndpoint::abandon() {
  if (own_receives_) own_receives_->detach();
  endpoint_.reset();
  state_ = State::kDrained;
  end_reported = true;
}

void FabricEndpoint::established() {
  state_ = State::kReady;
  if (incoming_ || !rail_.device().uses_tcp_sockets()) return;
  // An accepted socket was ours first and is tuned already; this one the provider made.
  sockaddr_storage name{}, peer_name{};
  std::size_t name_length = sizeof name, peer_length = sizeof peer_name;
  if (fi_getname(&endpoint_->fid, &name, &name_length) != 0 ||
      fi_getpeer(endpoint_.get(), &peer_name, &peer_length) != 0) {
    return;
  }
  const int fd = find_socket(
      SocketAddress(reinterpret_cast<sockaddr*>(&name), static_cast<socklen_t>(name_length)),
      SocketAddress(reinterpret_cast<sockaddr*>(&peer_name), static_cast<socklen_t>(peer_length)),
      descriptor_hint_);
  if (fd >= 0) tune_socket(fd);
}

void FabricEndpoint::opened() {
  state_ = State::kOpen;
  rail_.watch(*this);
  if (reason_) retire(*reason_);  // it ended before its owner saw it begin
}

void FabricEndpoint::close() {
  Error reason(Errc::kClosed, "closed by this side");
  switch (state_) {
    case State::kConnecting:
      rail_.connecting_failed(*this, std::move(reason));
      break;
    case State::kReady:
    case State::kOpen:
      retire(std::move(reason));
      break;
    case State::kDraining:
    case State::kDrained:
      break;
  }
}

void FabricEndpoint::retire(Error reason) {
  if (!reason_) reason_ = std::move(reason);
  if (state_ != State::kOpen) return;  // opened() goes on from here
  // From here on nobody can write through this endpoint, and the provider touches no request's
  // memory any more: it has copied or cancelled all of them, and its queue says which.
  rail_.forget_descriptors(*this);
  if (own_receives_) own_receives_->detach();
  endpoint_.reset();
  state_ = State::kDraining;
  rail_.touch(*this);
}

void FabricEndpoint::flush() {
  std::vector<Slot*> left;
  for (Slot& slot : slots_) {
    if (slot.state == Slot::State::kPosted) left.push_back(&slot);
  }
  std::sort(left.begin(), left.end(),
            [](const Slot* a, const Slot* b) { return a->sequence < b->sequence; });
  for (Slot* slot : left)
    finish(*slot, Completion::Status::kFlushed);
  rail_.unwatch(*this);
  queue_.reset();
  state_ = State::kDrained;
}

std::string FabricEndpoint::describe() const {
  std::string text = fmt::format("{} {} {}", rail_.device().provider(), incoming_ ? "from" : "to",
                                 remote_.to_string());
  if (peer_.hello.node) text += fmt::format(" (node {})", peer_.hello.node.to_string());
  return text;
}

}  // namespace lochos::fabric
