#include "transport/verbs/endpoint.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "transport/verbs/errors.h"

namespace lochos::verbs {
namespace {

constexpr int kResolveTimeoutMs = 5000;  // an upper bound; the caller's deadline counts

// How long the NIC waits for an acknowledgement before it sends again: 4.096 us * 2^17 = 0.54 s,
// at most four times as much on some devices. With the default of 3 retries a dead peer is noticed
// in about 2 s. Smaller values break connections over a short outage of the network.
constexpr std::uint8_t kAcknowledgeTimeout = 17;

// A receiver without free buffers asks the sender to come back after 0.64 ms (code 12).
constexpr std::uint8_t kReceiverNotReadyTimer = 12;

// 7: as often as it takes. A receiver that is slow, or stopped for some seconds, is not dead; the
// longest finite retry would declare it so after a few milliseconds. What bounds the wait is the
// caller's heartbeat, which closes the endpoint, and that ends the retries at once.
constexpr std::uint8_t kReceiverNotReadyRetries = 7;

// How long a broken device may take to give back outstanding requests.
constexpr Duration kDrainTimeout = std::chrono::seconds(3);

constexpr int kMaxOutstandingReads = 16;

std::uint8_t smaller(std::uint8_t asked, int limit) {
  return static_cast<std::uint8_t>(std::min<int>({asked, limit, kMaxOutstandingReads}));
}

}  // namespace

VerbsEndpoint::~VerbsEndpoint() {
  if (id_ && (state_ == State::kOpen)) rdma_disconnect(id_.get());
  die();
}

std::string VerbsEndpoint::describe() const {
  return fmt::format("verbs {} GID {} {} -> {}, MTU {}", rail_.device->to_string(), gid_index_,
                     rail_.local.host(), peer_.to_string(), mtu_);
}

Error VerbsEndpoint::decorate(Error error) const {
  return std::move(error)
      .with_peer(peer_.to_string())
      .with_transport("verbs")
      .with_nic(rail_.device->to_string());
}

// --- Set-up, active side

void VerbsEndpoint::connect(const SocketAddress& peer, Instant deadline) {
  peer_ = peer;
  deadline_ = deadline;
  const auto start = [&]() -> Status {
    rdma_cm_id* id = nullptr;
    auto created = check_minus_one(rdma_create_id(rail_.channel.get(), &id, this, RDMA_PS_TCP),
                                   "rdma_create_id");
    if (!created) return created;
    id_.reset(id);
    if (rail_.options.traffic_class >= 0) {
      auto type_of_service = static_cast<std::uint8_t>(rail_.options.traffic_class);
      auto set = check_minus_one(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS,
                                                 &type_of_service, sizeof type_of_service),
                                 "setting the traffic class");
      if (!set) return set;
    }
    // Binding to the rail's address keeps the connection on its port. For a peer of the other
    // family the system picks the address, and the port is checked once the route is known.
    // rdma_cm takes non-const addresses and does not write to them.
    const bool same_family = rail_.local.family() == peer.family();
    sockaddr* source = same_family ? const_cast<sockaddr*>(rail_.local.get()) : nullptr;
    return check_minus_one(
        rdma_resolve_addr(id, source, const_cast<sockaddr*>(peer.get()), kResolveTimeoutMs),
        fmt::format("resolving {} from {}", peer.to_string(), rail_.describe()));
  };
  if (auto started = start(); !started) fail_setup(std::move(started.error()));
}

Status VerbsEndpoint::on_address_resolved() {
  if (id_->verbs == nullptr || ibv_get_device_name(id_->verbs->device) != rail_.device->name() ||
      id_->port_num != rail_.device->port()) {
    return fail(Errc::kUnreachable,
                fmt::format("the route to {} does not go through this port", peer_.to_string()));
  }
  // Not every kind of link has this option; then the connection manager's own value holds.
  std::uint8_t timeout = kAcknowledgeTimeout;
  rdma_set_option(id_.get(), RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof timeout);
  return check_minus_one(rdma_resolve_route(id_.get(), kResolveTimeoutMs), "rdma_resolve_route");
}

Status VerbsEndpoint::on_route_resolved() {
  if (auto made = create_queue_pair(); !made) return made;
  if (auto moved = to_init(); !moved) return moved;
  const auto greeting = encode(Greeting{.hello = rail_.options.hello, .mtu = rail_.mtu});
  rdma_conn_param parameters = connection_parameters(greeting);
  state_ = State::kConnecting;
  return check_minus_one(rdma_connect(id_.get(), &parameters), "rdma_connect");
}

Status VerbsEndpoint::on_response(const CmEvent& event) {
  auto greeting = decode_greeting(event.greeting(), rail_.options.hello);
  if (!greeting) return fail(std::move(greeting.error()));
  if (auto moved = to_ready(nullptr, greeting->mtu); !moved) return moved;
  if (auto done = check_minus_one(rdma_establish(id_.get()), "rdma_establish"); !done) return done;
  opened(greeting->hello);
  return {};
}

// --- Set-up, passive side

Status VerbsEndpoint::accept(IdHandle& id, const CmEvent& request, const Greeting& greeting,
                             Instant deadline) {
  incoming_ = true;
  deadline_ = deadline;
  state_ = State::kAccepting;
  const sockaddr* address = rdma_get_peer_addr(id.get());
  peer_ = SocketAddress(
      address, address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
  peer_hello_ = greeting.hello;
  id_ = std::move(id);
  id_->context = this;
  const auto prepare = [&]() -> Status {
    if (auto made = create_queue_pair(); !made) return made;
    if (auto moved = to_init(); !moved) return moved;
    if (auto moved = to_ready(&request, greeting.mtu); !moved) return moved;
    const auto answer = encode(Greeting{.hello = rail_.options.hello, .mtu = rail_.mtu});
    rdma_conn_param parameters = connection_parameters(answer);
    const auto& limits = rail_.device->attributes();
    parameters.responder_resources = smaller(request.responder_resources, limits.max_qp_rd_atom);
    parameters.initiator_depth = smaller(request.initiator_depth, limits.max_qp_init_rd_atom);
    return check_minus_one(rdma_accept(id_.get(), &parameters), "rdma_accept");
  };
  auto prepared = prepare();
  if (!prepared) {
    destroy_queue_pair();
    id = std::move(id_);
    state_ = State::kDead;
    return fail(decorate(std::move(prepared.error())));
  }
  return {};
}

// --- Set-up, both sides

void VerbsEndpoint::handle(const CmEvent& event) {
  Status done;
  switch (event.type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      if (state_ == State::kResolving) done = on_address_resolved();
      break;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      if (state_ == State::kResolving) done = on_route_resolved();
      break;
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
      if (state_ == State::kConnecting) done = on_response(event);
      break;
    case RDMA_CM_EVENT_ESTABLISHED:
      if (state_ == State::kAccepting) opened(*peer_hello_);
      break;
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:
    case RDMA_CM_EVENT_ADDR_CHANGE:
      break;
    default:  // all others report an end
      if (is_setting_up()) {
        fail_setup(connect_error(event, rail_.options.hello));
      } else if (event.type == RDMA_CM_EVENT_DEVICE_REMOVAL) {
        begin_drain(Error(Errc::kConnectionLost, "the RDMA device was removed"));
      } else {
        begin_drain(Error(Errc::kConnectionLost, "the peer closed the connection")
                        .with_cause("the peer's process ended, or it gave up on this side"));
      }
  }
  if (!done) fail_setup(std::move(done.error()));
}

rdma_conn_param VerbsEndpoint::connection_parameters(std::span<const std::byte> greeting) const {
  const auto& limits = rail_.device->attributes();
  rdma_conn_param parameters{};
  parameters.private_data = greeting.data();
  parameters.private_data_len = static_cast<std::uint8_t>(greeting.size());
  parameters.responder_resources = smaller(UINT8_MAX, limits.max_qp_rd_atom);
  parameters.initiator_depth = smaller(UINT8_MAX, limits.max_qp_init_rd_atom);
  parameters.retry_count = static_cast<std::uint8_t>(rail_.options.retry_count);
  parameters.rnr_retry_count = kReceiverNotReadyRetries;
  parameters.srq = 1;
  parameters.qp_num = queue_pair_->qp_num;
  return parameters;
}

Status VerbsEndpoint::create_queue_pair() {
  const std::size_t depth = rail_.limits.queue_depth;
  if (auto reserved = rail_.completions->reserve(depth); !reserved) return reserved;
  ibv_qp_init_attr attributes{};
  attributes.qp_context = this;
  attributes.send_cq = rail_.completions->handle();
  attributes.recv_cq = rail_.completions->handle();
  attributes.srq = rail_.receives->handle();
  attributes.cap.max_send_wr = static_cast<std::uint32_t>(depth);
  attributes.cap.max_send_sge = 1;
  attributes.cap.max_inline_data = static_cast<std::uint32_t>(rail_.limits.inline_bytes);
  attributes.qp_type = IBV_QPT_RC;
  queue_pair_.reset(ibv_create_qp(rail_.device->domain(), &attributes));
  if (!queue_pair_) {
    const int cause = errno;
    rail_.completions->release(depth);
    return fail(pinning_error(cause, "creating a queue pair", depth * sizeof(ibv_send_wr)));
  }
  rail_.by_queue_pair[queue_pair_->qp_num] = this;
  ring_.resize(depth);
  return {};
}

Status VerbsEndpoint::modify(ibv_qp_attr& attributes, int mask, std::string_view step) {
  return check_errno_returned(ibv_modify_qp(queue_pair_.get(), &attributes, mask),
                              fmt::format("moving a queue pair to {}", step));
}

Status VerbsEndpoint::to_init() {
  ibv_qp_attr attributes{};
  int mask = 0;
  attributes.qp_state = IBV_QPS_INIT;
  if (auto filled = check_minus_one(rdma_init_qp_attr(id_.get(), &attributes, &mask),
                                    "rdma_init_qp_attr for INIT");
      !filled) {
    return filled;
  }
  attributes.qp_access_flags =
      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  return modify(attributes, mask | IBV_QP_ACCESS_FLAGS, "INIT");
}

// To "ready to receive" and "ready to send", with the path that the connection manager found and
// our own choices. `request` on the passive side.
Status VerbsEndpoint::to_ready(const CmEvent* request, std::optional<ibv_mtu> peer_mtu) {
  const auto& limits = rail_.device->attributes();
  const VerbsOptions& options = rail_.options;
  ibv_qp_attr attributes{};
  int mask = 0;
  attributes.qp_state = IBV_QPS_RTR;
  if (auto filled = check_minus_one(rdma_init_qp_attr(id_.get(), &attributes, &mask),
                                    "rdma_init_qp_attr for RTR");
      !filled) {
    return filled;
  }
  attributes.path_mtu = std::min({attributes.path_mtu, rail_.mtu, peer_mtu.value_or(rail_.mtu)});
  attributes.min_rnr_timer = kReceiverNotReadyTimer;
  if (options.service_level >= 0) {
    attributes.ah_attr.sl = static_cast<std::uint8_t>(options.service_level);
  }
  if (options.traffic_class >= 0) {
    attributes.ah_attr.grh.traffic_class = static_cast<std::uint8_t>(options.traffic_class);
  }
  if (request != nullptr) {
    attributes.max_dest_rd_atomic = smaller(request->responder_resources, limits.max_qp_rd_atom);
  }
  if (auto moved = modify(attributes, mask, "RTR"); !moved) return moved;

  attributes = {};
  attributes.qp_state = IBV_QPS_RTS;
  if (auto filled = check_minus_one(rdma_init_qp_attr(id_.get(), &attributes, &mask),
                                    "rdma_init_qp_attr for RTS");
      !filled) {
    return filled;
  }
  attributes.timeout = kAcknowledgeTimeout;
  attributes.retry_cnt = static_cast<std::uint8_t>(options.retry_count);
  attributes.rnr_retry = kReceiverNotReadyRetries;
  if (request != nullptr) {
    attributes.max_rd_atomic = smaller(request->initiator_depth, limits.max_qp_init_rd_atom);
  }
  mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;
  if (auto moved = modify(attributes, mask, "RTS"); !moved) return moved;
  return check_path();
}

// The connection manager chose the source GID by the address we bound to. A GID index that was
// asked for is a promise: better no connection than another GID.
Status VerbsEndpoint::check_path() {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  if (auto queried = check_errno_returned(
          ibv_query_qp(queue_pair_.get(), &attributes, IBV_QP_AV | IBV_QP_PATH_MTU, &initial),
          "ibv_query_qp");
      !queried) {
    return queried;
  }
  gid_index_ = attributes.ah_attr.grh.sgid_index;
  mtu_ = mtu_bytes(attributes.path_mtu);
  const int wanted = rail_.options.gid_index;
  if (wanted < 0 || gid_index_ == wanted) return {};
  return fail(
      Error(Errc::kUnsupported, fmt::format("GID index {} was asked for, and the connection "
                                            "manager uses {} for {}",
                                            wanted, gid_index_, rail_.local.host()))
          .with_cause("both stand for the same address, for different RoCE versions")
          .with_fix(fmt::format("ask for {}, or set the RoCE version of the connection manager: "
                                "cma_roce_mode -d {} -p {} -m 1|2",
                                gid_index_, rail_.device->name(), rail_.device->port())));
}

void VerbsEndpoint::opened(const Hello& peer) {
  state_ = State::kOpen;
  deadline_ = kNever;
  peer_hello_ = peer;
  rail_.events.push_back({.kind = ConnectionEvent::Kind::kEstablished,
                          .endpoint = this,
                          .incoming = incoming_,
                          .peer = peer});
}

void VerbsEndpoint::announce() {
  announced_ = true;
  if (!kept_back_.empty()) rail_.deliverable.push_back(this);
}

void VerbsEndpoint::expire() {
  fail_setup(Error(Errc::kTimedOut, state_ == State::kResolving
                                        ? "no answer while resolving the address"
                                        : "no answer to the connection request")
                 .with_cause("the peer is down, or UDP port 4791 is blocked"));
}

void VerbsEndpoint::fail_setup(Error error) {
  Error full = decorate(std::move(error));
  die();
  if (incoming_) {
    log_debug("an incoming connection was not completed: {}", full.to_string());
    return;
  }
  rail_.events.push_back({.kind = ConnectionEvent::Kind::kFailed,
                          .endpoint = this,
                          .incoming = false,
                          .peer = {},
                          .error = std::move(full).with_operation("connecting")});
}

// --- The end

void VerbsEndpoint::close() {
  Error error(Errc::kClosed, "closed by this side");
  if (is_setting_up()) {
    fail_setup(std::move(error));
  } else {
    begin_drain(std::move(error));
  }
}

void VerbsEndpoint::begin_drain(Error error) {
  if (state_ != State::kOpen) return;
  state_ = State::kDraining;
  end_ = decorate(std::move(error));
  deadline_ = saturating_add(rail_.now, kDrainTimeout);
  rdma_disconnect(id_.get());  // tells the peer; that it may be gone already does not matter
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  if (auto moved = modify(attributes, IBV_QP_STATE, "ERR"); !moved) {
    log_warning("{}: {}", describe(), moved.error().to_string());
  }
  rail_.draining.push_back(this);
}

void VerbsEndpoint::finish_drain() {
  if (delivered_ < posted_ || !kept_back_.empty()) {
    if (rail_.now < deadline_) return;
    // The device does not give its requests back. Without a queue pair it cannot touch memory.
    destroy_queue_pair();
    if (ended_ < posted_) {
      flushed_from_ = std::min(flushed_from_, ended_);
      ended_ = posted_;
      rail_.deliverable.push_back(this);
    }
    return;
  }
  die();
  rail_.events.push_back({.kind = ConnectionEvent::Kind::kClosed,
                          .endpoint = this,
                          .incoming = incoming_,
                          .peer = *peer_hello_,
                          .error = *end_});
}

void VerbsEndpoint::destroy_queue_pair() {
  if (!queue_pair_) return;
  rail_.by_queue_pair.erase(queue_pair_->qp_num);
  queue_pair_.reset();
  rail_.completions->release(rail_.limits.queue_depth);
}

void VerbsEndpoint::die() {
  destroy_queue_pair();
  id_.reset();
  for (; delivered_ < posted_; ++delivered_) {  // only if the transport itself goes
    --rail_.outstanding;
    if (ring_[delivered_ % ring_.size()].lazy) --rail_.outstanding_lazy;
  }
  for (const Completion& arrival : kept_back_) {
    if (arrival.kind == Completion::Kind::kMessage) {
      rail_.receives->give_back(rail_.receives->index_of(arrival.message.data()));
    }
  }
  kept_back_.clear();
  std::erase(rail_.deliverable, this);
  std::erase(rail_.draining, this);
  deadline_ = kNever;
  state_ = State::kDead;
}

}  // namespace lochos::verbs
