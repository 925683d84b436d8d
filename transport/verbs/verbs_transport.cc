// The factory of the verbs backend, and its progress.
#include "transport/verbs/verbs_transport.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <unordered_map>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "base/unique_fd.h"
#include "transport/verbs/endpoint.h"
#include "transport/verbs/errors.h"
#include "transport/verbs/listener.h"
#include "transport/verbs/rail.h"

namespace lochos {
namespace verbs {
namespace {

// Queue entries taken in one call.
constexpr std::size_t kPollBatch = 32;

// While completions keep coming, the connection manager is asked only this often: asking is a
// system call.
constexpr Duration kConnectionPollInterval = std::chrono::milliseconds(1);

// The end of a short send is reported this late at most, when nothing else happens.
constexpr Duration kLazyInterval = std::chrono::milliseconds(5);

// Receive buffers are shared by all peers, so there are more than TransportOptions asks for one.
constexpr std::size_t kReceiveSharing = 4;

// The completion queue starts with room for this many connections, and grows.
constexpr std::size_t kExpectedEndpoints = 16;

// The largest write that keeps software RoCE efficient and other users' latency bounded; a device
// may allow more.
constexpr std::uint64_t kMaxTransferBytes = 64ULL << 20;

// Inline data that is asked for; devices that have less are asked again.
constexpr std::uint32_t kInlineBytes = 256;

class VerbsTransport final : public Transport {
 public:
  explicit VerbsTransport(std::unique_ptr<VerbsRail> rail) : rail_(std::move(rail)) {}
  Status start();

  TransportKind kind() const override { return TransportKind::kVerbs; }
  std::string describe() const override { return rail_->describe(); }
  const Limits& limits() const override { return rail_->limits; }
  Result<std::unique_ptr<Region>> register_memory(std::span<std::byte> memory) override;
  Result<SocketAddress> listen(const SocketAddress& address) override;
  Endpoint* connect(const SocketAddress& address, Instant deadline) override;
  void set_hello(const Hello& hello) override;
  std::size_t poll(std::span<Completion> completions) override;
  std::size_t poll_connections(Instant now, std::span<ConnectionEvent> events) override;
  int event_fd() const override { return epoll_.get(); }
  bool arm() override;
  Instant next_deadline() const override;

 private:
  bool take_entries();
  bool may_sleep_through_sends() const;
  std::size_t take(const ibv_wc& entry, std::span<Completion> room);
  std::size_t deliver(std::span<Completion> room);
  void finish_drains();
  void handle_connection_events();
  void handle(const CmEvent& event);
  void expire_setups();
  void adopt(std::unique_ptr<VerbsEndpoint> endpoint);
  void free_ended();
  std::size_t report(std::span<ConnectionEvent> events);
  VerbsEndpoint* find(std::uint32_t queue_pair);

  const std::unique_ptr<VerbsRail> rail_;  // outlives all below
  UniqueFd epoll_;
  std::unique_ptr<Listener> listener_;
  std::unordered_map<VerbsEndpoint*, std::unique_ptr<VerbsEndpoint>> endpoints_;
  std::vector<VerbsEndpoint*> setting_up_;
  std::vector<VerbsEndpoint*> ended_;  // reported; freed by the next call
  std::vector<std::uint32_t> lent_;    // message buffers that the caller may still read

  std::array<ibv_wc, kPollBatch> entries_{};
  std::size_t entry_ = 0;
  std::size_t entry_count_ = 0;
  bool broken_ = false;
  bool busy_ = false;  // the latest poll() returned something
  Instant connections_polled_{};
  Instant lazy_deadline_ = kNever;  // when to look for the end of sends that raise no event
};

Status VerbsTransport::start() {
  epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  for (const int fd : {rail_->channel->fd, rail_->completions->fd()}) {
    epoll_event event{};
    event.events = EPOLLIN;
    if (auto done = check_minus_one(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event),
                                    "watching the device's event channels");
        !done) {
      return done;
    }
  }
  return {};
}

Result<std::unique_ptr<Region>> VerbsTransport::register_memory(std::span<std::byte> memory) {
  return VerbsRegion::open(rail_->device, memory);
}

Result<SocketAddress> VerbsTransport::listen(const SocketAddress& address) {
  LOCHOS_CHECK(listener_ == nullptr);
  auto listener = Listener::open(*rail_, address);
  if (!listener) return fail(std::move(listener.error()));
  listener_ = std::move(*listener);
  return listener_->address();
}

Endpoint* VerbsTransport::connect(const SocketAddress& address, Instant deadline) {
  auto endpoint = std::make_unique<VerbsEndpoint>(*rail_);
  VerbsEndpoint* handle = endpoint.get();
  adopt(std::move(endpoint));
  handle->connect(address, deadline);
  return handle;
}

void VerbsTransport::set_hello(const Hello& hello) {
  rail_->options.hello = hello;
  if (hello.max_message_bytes == 0) {
    rail_->options.hello.max_message_bytes =
        static_cast<std::uint32_t>(rail_->limits.max_message_bytes);
  }
}

// --- Completions

std::size_t VerbsTransport::poll(std::span<Completion> completions) {
  for (const std::uint32_t buffer : lent_)
    rail_->receives->give_back(buffer);
  lent_.clear();
  rail_->receives->post_returned();
  rail_->completions->consume_event();
  lazy_deadline_ = kNever;

  std::size_t count = deliver(completions);
  while (count < completions.size() && (entry_ < entry_count_ || take_entries())) {
    count += take(entries_[entry_++], completions.subspan(count));
    count += deliver(completions.subspan(count));
  }
  rail_->receives->post_returned();  // immediates gave theirs back at once
  for (const Completion& completion : completions.first(count)) {
    if (completion.kind == Completion::Kind::kMessage) {
      lent_.push_back(rail_->receives->index_of(completion.message.data()));
    }
  }
  busy_ = count > 0;
  return count;
}

// Refills entries_. False: the queue is empty.
bool VerbsTransport::take_entries() {
  if (broken_) return false;
  const int taken = rail_->completions->poll(entries_);
  if (taken < 0) {
    broken_ = true;
    log_error("{}: the completion queue is broken", describe());
    for (auto& [endpoint, owner] : endpoints_)
      endpoint->close();
  }
  entry_ = 0;
  entry_count_ = static_cast<std::size_t>(std::max(taken, 0));
  return entry_count_ > 0;
}

std::size_t VerbsTransport::take(const ibv_wc& entry, std::span<Completion> room) {
  VerbsEndpoint* endpoint = find(entry.qp_num);
  const bool received = (entry.wr_id & kReceiveBit) != 0;
  if (endpoint == nullptr) {  // its queue pair is gone
    if (received) {
      rail_->receives->give_back(static_cast<std::uint32_t>(entry.wr_id & ~kReceiveBit));
    }
    return 0;
  }
  if (received) return endpoint->receive(entry, room.front()) ? 1 : 0;
  endpoint->end_request(entry);
  return 0;
}

std::size_t VerbsTransport::deliver(std::span<Completion> room) {
  std::size_t count = 0;
  auto& deliverable = rail_->deliverable;
  while (!deliverable.empty() && count < room.size()) {
    VerbsEndpoint* endpoint = deliverable.back();
    count += endpoint->deliver(room.subspan(count));
    if (endpoint->is_deliverable()) break;  // no more room
    std::erase(deliverable, endpoint);
  }
  return count;
}

VerbsEndpoint* VerbsTransport::find(std::uint32_t queue_pair) {
  const auto found = rail_->by_queue_pair.find(queue_pair);
  return found == rail_->by_queue_pair.end() ? nullptr : found->second;
}

// In a conversation of short messages, waking for the end of each own send would double the
// wake-ups for nothing: the next arrival wakes too, and if none comes a deadline does. A queue that
// fills up is no conversation: there the sender waits for room.
bool VerbsTransport::may_sleep_through_sends() const {
  return rail_->outstanding > 0 && rail_->outstanding == rail_->outstanding_lazy &&
         rail_->outstanding <= rail_->limits.queue_depth / 4 && rail_->draining.empty();
}

bool VerbsTransport::arm() {
  const bool lazy = may_sleep_through_sends();
  rail_->completions->arm(lazy ? CompletionQueue::Wake::kArrivals
                               : CompletionQueue::Wake::kEverything);
  lazy_deadline_ = lazy ? saturating_add(rail_->now, kLazyInterval) : kNever;
  if (entry_ == entry_count_) take_entries();
  finish_drains();
  return entry_ == entry_count_ && rail_->deliverable.empty() && rail_->events.empty();
}

// --- Connections

std::size_t VerbsTransport::poll_connections(Instant now, std::span<ConnectionEvent> events) {
  rail_->now = now;
  free_ended();
  if (!busy_ || now - connections_polled_ >= kConnectionPollInterval) {
    connections_polled_ = now;
    handle_connection_events();
  }
  busy_ = false;
  expire_setups();
  finish_drains();
  return report(events);
}

void VerbsTransport::handle_connection_events() {
  while (auto event = next_event(rail_->channel.get()))
    handle(*event);
}

void VerbsTransport::handle(const CmEvent& event) {
  if (event.type == RDMA_CM_EVENT_CONNECT_REQUEST) {
    if (auto endpoint = listener_->judge(event)) adopt(std::move(endpoint));
  } else if (event.id->context != nullptr) {
    static_cast<VerbsEndpoint*>(event.id->context)->handle(event);
  } else if (event.type == RDMA_CM_EVENT_DEVICE_REMOVAL) {
    log_error("{}: the RDMA device was removed", describe());
  }
}

void VerbsTransport::adopt(std::unique_ptr<VerbsEndpoint> endpoint) {
  VerbsEndpoint* handle = endpoint.get();
  setting_up_.push_back(handle);
  endpoints_.emplace(handle, std::move(endpoint));
}

void VerbsTransport::expire_setups() {
  for (VerbsEndpoint* endpoint : setting_up_) {
    if (endpoint->is_setting_up() && endpoint->deadline() <= rail_->now) endpoint->expire();
  }
  std::erase_if(setting_up_, [&](VerbsEndpoint* endpoint) {
    if (endpoint->is_setting_up()) return false;
    // An incoming one that failed was never reported: nobody else will free it.
    if (endpoint->is_dead() && endpoint->is_incoming()) endpoints_.erase(endpoint);
    return true;
  });
}

// An endpoint may end only when the completion queue was seen empty: what its peer sent before the
// end is still in there.
void VerbsTransport::finish_drains() {
  if (rail_->draining.empty() || entry_ < entry_count_ || take_entries()) return;
  const std::vector<VerbsEndpoint*> draining = rail_->draining;  // finish_drain() removes itself
  for (VerbsEndpoint* endpoint : draining)
    endpoint->finish_drain();
}

std::size_t VerbsTransport::report(std::span<ConnectionEvent> events) {
  std::size_t count = 0;
  for (; count < events.size() && !rail_->events.empty(); ++count) {
    events[count] = std::move(rail_->events.front());
    rail_->events.pop_front();
    auto* endpoint = static_cast<VerbsEndpoint*>(events[count].endpoint);
    if (events[count].kind == ConnectionEvent::Kind::kEstablished) {
      endpoint->announce();
    } else {
      ended_.push_back(endpoint);
    }
  }
  return count;
}

void VerbsTransport::free_ended() {
  for (VerbsEndpoint* endpoint : ended_) {
    std::erase(setting_up_, endpoint);
    endpoints_.erase(endpoint);
  }
  ended_.clear();
}

Instant VerbsTransport::next_deadline() const {
  Instant next = lazy_deadline_;
  for (const VerbsEndpoint* endpoint : setting_up_)
    next = std::min(next, endpoint->deadline());
  for (const VerbsEndpoint* endpoint : rail_->draining) {
    next = std::min(next, endpoint->deadline());
  }
  return next;
}

// --- Opening

Status check_options(const VerbsOptions& options) {
  const auto refuse = [](std::string message) {
    return fail(Errc::kInvalidArgument, std::move(message));
  };
  if (options.mtu != 0 && !mtu_from_bytes(options.mtu)) {
    return refuse(fmt::format("{} is no RDMA MTU: 256, 512, 1024, 2048 or 4096", options.mtu));
  }
  if (options.service_level > 15) {
    return refuse(fmt::format("service level {} is not in 0 … 15", options.service_level));
  }
  if (options.traffic_class > 255) {
    return refuse(fmt::format("traffic class {} is not in 0 … 255", options.traffic_class));
  }
  if (options.retry_count < 0 || options.retry_count > 6) {
    return refuse(fmt::format("retry count {} is not in 0 … 6 (7 never gives up on some devices)",
                              options.retry_count));
  }
  if (options.queue_depth == 0 || options.receive_buffers == 0) {
    return refuse("queue depth and receive buffers cannot be 0");
  }
  return {};
}

// What to say when no device has the address: those that exist, and what they have.
Error no_device_for(const SocketAddress& address) {
  auto ports = list_verbs_ports();
  if (!ports) return std::move(ports.error());
  std::string text = fmt::format("no RDMA device has the address {}; there are:", address.host());
  for (const VerbsPort& port : *ports) {
    text += fmt::format(" {}/{} ({}, {}) with GIDs {}.", port.device, port.port, port.interface,
                        port.state, gid_table(port.gids));
  }
  return Error(Errc::kUnsupported, std::move(text));
}

// An id bound to `address` knows which device and port that is.
Result<IdHandle> bind(rdma_event_channel* channel, const SocketAddress& address) {
  rdma_cm_id* raw = nullptr;
  if (auto done =
          check_minus_one(rdma_create_id(channel, &raw, nullptr, RDMA_PS_TCP), "rdma_create_id");
      !done) {
    return fail(std::move(done.error()));
  }
  IdHandle id(raw);
  const SocketAddress any_port = address.with_port(0);
  if (rdma_bind_addr(raw, const_cast<sockaddr*>(any_port.get())) != 0 || raw->verbs == nullptr) {
    return fail(no_device_for(address));
  }
  return id;
}

// The GID to use. The connection manager picks it by the address we bind to, so a GID index is
// honoured by binding to the address that it stands for.
Result<VerbsGid> choose_gid(const Device& device, const VerbsOptions& options,
                            const SocketAddress& local) {
  const std::vector<VerbsGid> gids = list_gids(device.context(), device.port());
  if (options.gid_index >= 0) {
    const auto found = std::find_if(gids.begin(), gids.end(), [&](const VerbsGid& gid) {
      return gid.index == options.gid_index;
    });
    if (found != gids.end()) return *found;
    return fail(Error(Errc::kInvalidArgument,
                      fmt::format("GID index {} of {} is empty; valid are: {}", options.gid_index,
                                  device.to_string(), gid_table(gids)))
                    .with_transport("verbs"));
  }
  const auto fits = [&](const VerbsGid& gid) { return gid_address(gid) == local; };
  auto found = std::find_if(gids.begin(), gids.end(), [&](const VerbsGid& gid) {
    return fits(gid) && gid.type == "RoCE v2";
  });
  if (found == gids.end()) found = std::find_if(gids.begin(), gids.end(), fits);
  return found != gids.end() ? *found : VerbsGid{};  // InfiniBand: no GID is an IP address
}

// Makes a queue pair to learn how much inline data this device really takes.
Result<std::uint64_t> probe_inline_bytes(const VerbsRail& rail) {
  for (std::uint32_t bytes = kInlineBytes;; bytes /= 2) {
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = rail.completions->handle();
    attributes.srq = rail.receives->handle();
    attributes.cap = {.max_send_wr = static_cast<std::uint32_t>(rail.limits.queue_depth),
                      .max_recv_wr = 0,
                      .max_send_sge = 1,
                      .max_recv_sge = 0,
                      .max_inline_data = bytes};
    attributes.qp_type = IBV_QPT_RC;
    const QueuePairHandle probe(ibv_create_qp(rail.device->domain(), &attributes));
    if (probe) return attributes.cap.max_inline_data;
    if (bytes == 0) {
      return fail(pinning_error(errno, "creating a queue pair",
                                rail.limits.queue_depth * sizeof(ibv_send_wr)));
    }
  }
}

Status open_channel(VerbsRail& rail) {
  auto channel = check_null<EventChannelHandle>(
      rdma_create_event_channel(), "opening the RDMA connection manager (/dev/infiniband/rdma_cm)");
  if (!channel) return fail(std::move(channel.error()).with_fix("modprobe rdma_ucm"));
  rail.channel = std::move(*channel);
  const int flags = fcntl(rail.channel->fd, F_GETFL);
  return check_minus_one(fcntl(rail.channel->fd, F_SETFL, flags | O_NONBLOCK),
                         "making the event channel non-blocking");
}

// Finds device, port, GID and MTU.
Status open_device(VerbsRail& rail) {
  auto id = bind(rail.channel.get(), rail.options.local);
  if (!id) return fail(std::move(id.error()));
  auto device = Device::open(ibv_get_device_name((*id)->verbs->device), (*id)->port_num);
  if (!device) return fail(std::move(device.error()));
  rail.device = std::move(*device);
  rail.local = rail.options.local.with_port(0);
  auto gid = choose_gid(*rail.device, rail.options, rail.local);
  if (!gid) return fail(std::move(gid.error()));
  rail.gid = std::move(*gid);
  const bool ethernet = rail.device->port_attributes().link_layer == IBV_LINK_LAYER_ETHERNET;
  if (rail.options.gid_index >= 0 && ethernet && !(gid_address(rail.gid) == rail.local)) {
    rail.local = gid_address(rail.gid);
    auto other = bind(rail.channel.get(), rail.local);
    if (!other || ibv_get_device_name((*other)->verbs->device) != rail.device->name()) {
      return fail(Errc::kInvalidArgument,
                  fmt::format("GID {} ({}) of {} belongs to no address of this host; valid are: {}",
                              rail.gid.index, rail.gid.gid, rail.device->to_string(),
                              gid_table(list_gids(rail.device->context(), rail.device->port()))));
    }
  }
  const ibv_mtu port_mtu = rail.device->port_attributes().active_mtu;
  rail.mtu = rail.options.mtu == 0 ? port_mtu : *mtu_from_bytes(rail.options.mtu);
  if (rail.mtu > port_mtu) {
    return fail(Error(Errc::kInvalidArgument,
                      fmt::format("MTU {} is more than the {} that {} has now", rail.options.mtu,
                                  mtu_bytes(port_mtu), rail.device->to_string()))
                    .with_fix("raise the MTU of the network interface (4200 for an RDMA MTU of "
                              "4096), or ask for less"));
  }
  return {};
}

Status open_queues(VerbsRail& rail) {
  const ibv_device_attr& attributes = rail.device->attributes();
  const VerbsOptions& options = rail.options;
  rail.limits.queue_depth =
      std::min(options.queue_depth, static_cast<std::size_t>(attributes.max_qp_wr));
  rail.limits.max_message_bytes = options.receive_buffer_bytes;
  rail.limits.max_transfer_bytes =
      std::min<std::uint64_t>(rail.device->port_attributes().max_msg_sz, kMaxTransferBytes);
  const std::size_t buffers = options.receive_buffers * kReceiveSharing;
  auto completions =
      CompletionQueue::open(rail.device, buffers + kExpectedEndpoints * rail.limits.queue_depth);
  if (!completions) return fail(std::move(completions.error()));
  rail.completions = std::move(*completions);
  auto receives = ReceiveQueue::open(rail.device, buffers, options.receive_buffer_bytes);
  if (!receives) return fail(std::move(receives.error()));
  rail.receives = std::move(*receives);
  if (auto reserved = rail.completions->reserve(rail.receives->count()); !reserved) return reserved;
  auto inline_bytes = probe_inline_bytes(rail);
  if (!inline_bytes) return fail(std::move(inline_bytes.error()));
  rail.limits.inline_bytes = *inline_bytes;
  return {};
}

}  // namespace

std::string VerbsRail::describe() const {
  return fmt::format("verbs {} GID {} {} ({})", device->to_string(), gid.index, local.host(),
                     gid.interface);
}

}  // namespace verbs

Result<std::unique_ptr<Transport>> open_verbs_transport(const VerbsOptions& options) {
  using namespace verbs;
  auto rail = std::make_unique<VerbsRail>();
  rail->options = options;
  for (const auto step : {+[](VerbsRail& r) { return check_options(r.options); }, &open_channel,
                          &open_device, &open_queues}) {
    if (auto done = step(*rail); !done) {
      return fail(std::move(done.error())
                      .with_operation("opening an RDMA port")
                      .with_transport("verbs")
                      .with_nic(rail->device ? rail->device->to_string() : ""));
    }
  }
  auto transport = std::make_unique<VerbsTransport>(std::move(rail));
  transport->set_hello(options.hello);
  if (auto started = transport->start(); !started) return fail(std::move(started.error()));
  return transport;
}

}  // namespace lochos
