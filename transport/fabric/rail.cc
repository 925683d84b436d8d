#include "transport/fabric/rail.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>

#include "base/check.h"
#include "base/log.h"

namespace lochos::fabric {
namespace {

// Up to this many endpoints are asked directly: a read costs about what asking epoll costs.
constexpr std::size_t kDirectlyPolled = 6;
constexpr std::size_t kHarvestBatch = 64;
// With hot endpoints at hand epoll is asked only every so many turns.
constexpr std::size_t kTurnsBetweenHarvests = 8;
// What one read of a completion queue may return. A read makes the provider take in at most a
// prefetched 9000 bytes, and no arrival takes less than 48: the queue cannot grow between reads.
constexpr std::size_t kStagedEntries = 256;
// How stale news about connections may be while the owner polls without sleeping.
constexpr Duration kConnectionCheckInterval = std::chrono::milliseconds(1);
constexpr std::uint64_t kMaxTransferBytes = 1ULL << 30;  // its length travels in 32 bits
constexpr std::uint64_t kInlineBytes = 1024;
// Connection set-up takes several steps on both queue and listener; more than this in one turn and
// data would wait.
constexpr int kConnectionSteps = 4;

std::string interface_of(const SocketAddress& address) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != address.family()) continue;
    const SocketAddress candidate(entry->ifa_addr, address.length());
    if (candidate.with_port(0) == address.with_port(0)) return entry->ifa_name;
  }
  return {};
}

Error connect_error(int error, const SocketAddress& remote, std::span<const std::byte> refusal,
                    const Hello& local) {
  const std::string what = fmt::format("connect to {}", remote.to_string());
  if (!refusal.empty()) {
    return decode_refusal(refusal, local).with_operation(what).with_peer(remote.to_string());
  }
  switch (error) {
    case ECONNREFUSED:
      return system_error(error, what)
          .with_peer(remote.to_string())
          .with_cause("nothing listens there");
    case ENOPROTOOPT:
      return Error(Errc::kProtocol, what + ": what answers there is no data port of lochos")
          .with_peer(remote.to_string());
    case 0:
    case EIO:
    case EPIPE:
    case ENOTCONN:
    case ECONNRESET:
      return Error(Errc::kUnreachable, what + ": the connection was closed during the greeting")
          .with_peer(remote.to_string())
          .with_cause("what listens there is no lochos process, or it was ending");
    default:
      return fabric_error(error, what).with_peer(remote.to_string());
  }
}

}  // namespace

Rail::Rail(const FabricOptions& options, std::unique_ptr<Device> device)
    : options_(options), device_(std::move(device)), staged_(kStagedEntries) {
  limits_.max_transfer_bytes = std::min(kMaxTransferBytes, device_->max_message_bytes());
  limits_.max_message_bytes = std::min(options.receive_buffer_bytes, device_->max_message_bytes());
  limits_.inline_bytes = std::min(kInlineBytes, limits_.max_message_bytes);
  limits_.queue_depth = std::min(options.queue_depth, device_->transmit_depth());
  set_hello(options.hello);
}

Rail::~Rail() {
  // The provider `tcp` forgets what it has accepted and not yet reported when the passive endpoint
  // closes (seen with libfabric 1.17). What is in the queue becomes endpoints, which end below.
  for (int step = 0; listener_ && step < kConnectionSteps; ++step)
    read_event_queue();
  listener_.reset();
  endpoints_.clear();
  graveyard_.clear();
}

Result<std::unique_ptr<Transport>> Rail::open(const FabricOptions& options) {
  auto device = Device::open(options);
  if (!device) return fail(std::move(device).error());
  std::unique_ptr<Rail> rail(new Rail(options, std::move(*device)));
  if (Status opened = rail->open_queues(); !opened) return fail(std::move(opened).error());
  return rail;
}

Status Rail::open_queues() {
  epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) return fail(system_error(errno, "open an epoll set"));
  auto queue = device_->open_event_queue();
  if (!queue) return fail(std::move(queue).error());
  event_queue_ = std::move(*queue);
  auto fd = Device::wait_fd(*event_queue_);
  if (!fd) return fail(std::move(fd).error());
  epoll_event event{.events = EPOLLIN, .data = {.u64 = 0}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, *fd, &event) != 0) {
    return fail(system_error(errno, "watch the event queue"));
  }
  auto region = device_->register_memory(void_memory_);
  if (!region) return fail(std::move(region).error());
  void_region_ = std::move(*region);
  if (!device_->shares_receives()) return {};

  fi_rx_attr attributes = device_->receive_attributes();
  fid_ep* endpoint = nullptr;
  const int code = fi_srx_context(device_->domain(), &attributes, &endpoint, nullptr);
  if (code != 0) return fail(fabric_error(code, "open a shared receive queue"));
  shared_endpoint_.reset(endpoint);
  auto pool =
      ReceivePool::create(*device_, std::min(options_.receive_buffers, device_->receive_depth()),
                          limits_.max_message_bytes);
  if (!pool) return fail(std::move(pool).error());
  shared_pool_ = std::move(*pool);
  return shared_pool_->attach(endpoint);
}

std::string Rail::describe() const {
  if (options_.local.is_unspecified()) return device_->provider();
  const std::string interface = interface_of(options_.local);
  std::string text = fmt::format("{} {}", device_->provider(), options_.local.host());
  if (!interface.empty()) text += fmt::format(" ({})", interface);
  return text;
}

Result<std::unique_ptr<Region>> Rail::register_memory(std::span<std::byte> memory) {
  auto region = device_->register_memory(memory);
  if (!region) return fail(std::move(region).error());
  return std::move(*region);
}

Result<SocketAddress> Rail::listen(const SocketAddress& address) {
  LOCHOS_CHECK(listener_ == nullptr);
  auto listener = open_listener(*this, address);
  if (!listener) return fail(std::move(listener).error());
  listener_ = std::move(*listener);
  return listener_->address();
}

void Rail::set_hello(const Hello& hello) {
  options_.hello = hello;
  options_.hello.max_message_bytes = static_cast<std::uint32_t>(limits_.max_message_bytes);
}

std::array<std::byte, kGreetingBytes> Rail::greeting_bytes() const {
  return encode(Greeting{.hello = options_.hello,
                         .void_address = void_region_->remote_address(void_memory_.data()),
                         .void_key = void_region_->remote_key()});
}

Endpoint* Rail::connect(const SocketAddress& address, Instant deadline) {
  auto& endpoint =
      *endpoints_.emplace_back(std::make_unique<FabricEndpoint>(*this, false, address, deadline));
  connecting_.push_back(&endpoint);
  const InfoHandle info = device_->describe_endpoint(options_.local.with_port(0), &address);
  Status started = endpoint.open(*info);
  if (started) started = endpoint.start_connecting(greeting_bytes());
  if (!started) connecting_failed(endpoint, std::move(started).error());
  return &endpoint;
}

Status Rail::accept(fi_info& request, const Greeting& peer, const SocketAddress& remote,
                    Instant now) {
  auto endpoint = std::make_unique<FabricEndpoint>(*this, true, remote,
                                                   saturating_add(now, options_.handshake_timeout));
  if (Status opened = endpoint->open(request); !opened) return opened;
  endpoint->expect(peer);
  if (Status started = endpoint->start_accepting(greeting_bytes()); !started) return started;
  connecting_.push_back(endpoint.get());
  endpoints_.push_back(std::move(endpoint));
  return {};
}

// --- poll ---------------------------------------------------------------------------------------

std::size_t Rail::poll(std::span<Completion> completions) {
  give_back_receives();
  bury();
  begin_round();
  std::size_t count = 0;
  while (count < completions.size()) {
    if (first_finished_ != nullptr) {
      Slot& slot = *first_finished_;
      first_finished_ = slot.next;
      FabricEndpoint& endpoint = *slot.endpoint;
      completions[count++] = endpoint.take(slot);
      report_end_if_drained(endpoint);
    } else if (staged_next_ < staged_count_) {
      if (staged_endpoint_->translate(staged_[staged_next_++], completions[count])) ++count;
    } else if (!read_next_endpoint()) {
      break;
    }
  }
  return count;
}

void Rail::give_back_receives() {
  bool starved = false;
  for (Receive* receive : taken_receives_)
    starved |= receive->pool->repost(*receive);
  taken_receives_.clear();
  if (starved) make_all_hot();
}

void Rail::bury() {
  if (graveyard_.empty()) return;
  for (const auto& dead : graveyard_) {
    for (auto* list : {&connecting_, &watched_, &hot_, &touched_}) {
      std::erase(*list, dead.get());
    }
    std::replace(round_.begin(), round_.end(), dead.get(), static_cast<FabricEndpoint*>(nullptr));
  }
  graveyard_.clear();
}

bool Rail::polls_directly() const {
  return watched_.size() <= kDirectlyPolled;
}

void Rail::begin_round() {
  if (armed_ ||
      (!polls_directly() && (hot_.empty() || ++turns_since_harvest_ >= kTurnsBetweenHarvests))) {
    harvest();
  }
  if (round_next_ < round_.size()) return;
  round_next_ = 0;
  round_.clear();
  if (polls_directly()) {
    round_ = watched_;
    for (FabricEndpoint* endpoint : hot_) {
      endpoint->hot = false;
      touch(*endpoint);
    }
    hot_.clear();
    return;
  }
  std::swap(round_, hot_);
  for (FabricEndpoint* endpoint : round_)
    endpoint->hot = false;
}

bool Rail::read_next_endpoint() {
  while (round_next_ < round_.size()) {
    FabricEndpoint* endpoint = round_[round_next_++];
    if (endpoint == nullptr || endpoint->completion_queue() == nullptr) continue;
    const ssize_t count = endpoint->read(staged_);
    if (count > 0) {
      staged_endpoint_ = endpoint;
      staged_next_ = 0;
      staged_count_ = static_cast<std::size_t>(count);
      make_hot(*endpoint);
      touch(*endpoint);
      return true;
    }
    if (count == -FI_EAVAIL) {
      auto error = endpoint->read_failure();
      if (error) endpoint->retire(std::move(*error));
      --round_next_;  // there may be more
      return true;
    }
    if (endpoint->state() == FabricEndpoint::State::kDraining) {
      endpoint->flush();
      report_end_if_drained(*endpoint);
      return true;
    }
    if (polls_directly()) {
      touch(*endpoint);
    } else if (!settle(*endpoint)) {
      make_hot(*endpoint);
    }
  }
  return false;
}

void Rail::harvest() {
  armed_ = false;
  turns_since_harvest_ = 0;
  std::array<epoll_event, kHarvestBatch> ready;
  const int count = ::epoll_wait(epoll_.get(), ready.data(), static_cast<int>(ready.size()), 0);
  for (int index = 0; index < count; ++index) {
    void* source = ready[static_cast<std::size_t>(index)].data.ptr;
    if (source == nullptr) {
      connections_ready_ = true;
    } else {
      make_hot(*static_cast<FabricEndpoint*>(source));
    }
  }
}

void Rail::make_hot(FabricEndpoint& endpoint) {
  if (endpoint.hot) return;
  endpoint.hot = true;
  hot_.push_back(&endpoint);
}

void Rail::make_all_hot() {
  for (FabricEndpoint* endpoint : watched_)
    make_hot(*endpoint);
}

void Rail::touch(FabricEndpoint& endpoint) {
  if (!polls_directly()) return make_hot(endpoint);
  if (endpoint.touched) return;
  endpoint.touched = true;
  touched_.push_back(&endpoint);
}

void Rail::watch(FabricEndpoint& endpoint) {
  watched_.push_back(&endpoint);
  if (polls_directly()) {
    touch(endpoint);
  } else {
    make_all_hot();  // those that were polled directly are not settled
  }
}

void Rail::unwatch(FabricEndpoint& endpoint) {
  std::erase(watched_, &endpoint);
  forget_descriptors(endpoint);
}

void Rail::forget_descriptors(FabricEndpoint& endpoint) {
  for (const pollfd& old : endpoint.descriptors) {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, old.fd, nullptr);
  }
  endpoint.descriptors.clear();
}

bool Rail::settle(FabricEndpoint& endpoint) {
  if (endpoint.completion_queue() == nullptr) return true;
  fid* queue = &endpoint.completion_queue()->fid;
  if (fi_trywait(device_->fabric(), &queue, 1) != 0) return false;
  device_->wait_descriptors(*endpoint.completion_queue(), wanted_);
  const auto same = [](const pollfd& a, const pollfd& b) {
    return a.fd == b.fd && a.events == b.events;
  };
  if (std::ranges::equal(wanted_, endpoint.descriptors, same)) return true;
  for (const pollfd& old : endpoint.descriptors) {
    const bool stays =
        std::ranges::any_of(wanted_, [&](const pollfd& wanted) { return wanted.fd == old.fd; });
    if (!stays) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, old.fd, nullptr);
  }
  for (const pollfd& wanted : wanted_) {
    epoll_event event{.events = static_cast<std::uint32_t>(wanted.events),
                      .data = {.ptr = &endpoint}};
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, wanted.fd, &event) != 0) {
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wanted.fd, &event);
    }
  }
  std::swap(endpoint.descriptors, wanted_);
  return true;
}

void Rail::finished(Slot& slot) {
  slot.next = nullptr;
  if (first_finished_ == nullptr) {
    first_finished_ = &slot;
  } else {
    last_finished_->next = &slot;
  }
  last_finished_ = &slot;
}

void Rail::report_end_if_drained(FabricEndpoint& endpoint) {
  if (endpoint.state() != FabricEndpoint::State::kDrained || endpoint.outstanding() > 0 ||
      endpoint.end_reported) {
    return;
  }
  endpoint.end_reported = true;
  events_.push_back({.kind = ConnectionEvent::Kind::kClosed,
                     .endpoint = &endpoint,
                     .incoming = endpoint.incoming(),
                     .peer = endpoint.peer().hello,
                     .error = endpoint.reason()});
}

bool Rail::arm() {
  if (first_finished_ != nullptr || staged_next_ < staged_count_ || !events_.empty() ||
      connections_ready_ || (!hot_.empty() && !polls_directly()) || !taken_receives_.empty()) {
    return false;
  }
  while (!touched_.empty()) {
    FabricEndpoint& endpoint = *touched_.back();
    if (endpoint.state() == FabricEndpoint::State::kDraining) return false;
    if (!settle(endpoint)) return false;
    endpoint.touched = false;
    touched_.pop_back();
  }
  // Asking the completion queues may have put events into the event queue; and asking that one
  // clears its signal, so what is in it must be read now.
  fid* queue = &event_queue_->fid;
  if (fi_trywait(device_->fabric(), &queue, 1) != 0 || read_event_queue()) {
    connections_ready_ = true;
    return false;
  }
  armed_ = true;
  return true;
}

// --- connections --------------------------------------------------------------------------------

std::size_t Rail::poll_connections(Instant now, std::span<ConnectionEvent> events) {
  if (armed_) harvest();
  if (connections_ready_ || now >= next_connection_check_) {
    connections_ready_ = false;
    next_connection_check_ = saturating_add(now, kConnectionCheckInterval);
    for (int step = 0; step < kConnectionSteps; ++step) {
      if (listener_) listener_->progress(now);
      if (!read_event_queue()) break;
    }
  }
  expire(now);
  std::size_t count = 0;
  while (count < events.size() && !events_.empty()) {
    events[count] = std::move(events_.front());
    events_.pop_front();
    auto* endpoint = static_cast<FabricEndpoint*>(events[count].endpoint);
    if (events[count].kind == ConnectionEvent::Kind::kEstablished) {
      endpoint->opened();
    } else {
      const auto owner = std::find_if(endpoints_.begin(), endpoints_.end(),
                                      [&](const auto& item) { return item.get() == endpoint; });
      graveyard_.push_back(std::move(*owner));
      endpoints_.erase(owner);
    }
    ++count;
  }
  return count;
}

Instant Rail::next_deadline() const {
  Instant next = listener_ ? listener_->next_deadline() : kNever;
  for (const FabricEndpoint* endpoint : connecting_)
    next = std::min(next, endpoint->deadline());
  return next;
}

void Rail::expire(Instant now) {
  for (std::size_t index = connecting_.size(); index-- > 0;) {
    FabricEndpoint& endpoint = *connecting_[index];
    if (endpoint.deadline() > now) continue;
    connecting_failed(endpoint, Error(Errc::kTimedOut, fmt::format("connect to {}: no answer",
                                                                   endpoint.remote().to_string()))
                                    .with_peer(endpoint.remote().to_string())
                                    .with_cause("the host is down, or a firewall drops packets"));
  }
}

bool Rail::read_event_queue() {
  bool any = false;
  for (;;) {
    // The provider `tcp` takes the cause of a connection that ends during the greeting from errno,
    // also where no call has set it; an old EAGAIN there would make it wait for ever.
    errno = 0;
    std::uint32_t event = 0;
    alignas(fi_eq_cm_entry) std::array<std::byte, sizeof(fi_eq_cm_entry) + kMaxRequestDataBytes>
        buffer;
    const ssize_t count = fi_eq_read(event_queue_.get(), &event, buffer.data(), buffer.size(), 0);
    if (count == -FI_EAVAIL) {
      on_event_error();
    } else if (count >= static_cast<ssize_t>(sizeof(fi_eq_cm_entry))) {
      const auto& entry = *reinterpret_cast<const fi_eq_cm_entry*>(buffer.data());
      on_event(
          event, entry,
          std::span(buffer).first(static_cast<std::size_t>(count)).subspan(sizeof(fi_eq_cm_entry)));
    } else {
      return any;
    }
    any = true;
  }
}

void Rail::on_event(std::uint32_t event, const fi_eq_cm_entry& entry,
                    std::span<const std::byte> data) {
  switch (event) {
    case FI_CONNREQ: {
      InfoHandle request(entry.info);
      if (listener_) listener_->on_request(*entry.fid, std::move(request), data);
      break;
    }
    case FI_CONNECTED:
      on_connected(*static_cast<FabricEndpoint*>(entry.fid->context), data);
      break;
    case FI_SHUTDOWN:
      on_shutdown(*static_cast<FabricEndpoint*>(entry.fid->context), 0, {});
      break;
    default:
      break;
  }
}

void Rail::on_event_error() {
  std::array<std::byte, kMaxRequestDataBytes> data;
  fi_eq_err_entry entry{};
  entry.err_data = data.data();
  entry.err_data_size = data.size();
  if (fi_eq_readerr(event_queue_.get(), &entry, 0) < 0 || entry.fid == nullptr ||
      entry.fid->fclass != FI_CLASS_EP) {
    return;
  }
  const std::size_t bytes = entry.err_data == data.data() ? entry.err_data_size : 0;
  on_shutdown(*static_cast<FabricEndpoint*>(entry.fid->context), entry.err,
              std::span(data).first(std::min(bytes, data.size())));
}

void Rail::on_connected(FabricEndpoint& endpoint, std::span<const std::byte> data) {
  if (endpoint.state() != FabricEndpoint::State::kConnecting) return;
  if (!endpoint.incoming()) {
    auto greeting = decode_greeting(data, options_.hello);
    if (!greeting) {
      connecting_failed(endpoint, std::move(greeting).error().with_operation(
                                      fmt::format("connect to {}", endpoint.remote().to_string())));
      return;
    }
    endpoint.expect(*greeting);
  }
  std::erase(connecting_, &endpoint);
  endpoint.established();
  events_.push_back({.kind = ConnectionEvent::Kind::kEstablished,
                     .endpoint = &endpoint,
                     .incoming = endpoint.incoming(),
                     .peer = endpoint.peer().hello});
}

void Rail::on_shutdown(FabricEndpoint& endpoint, int error, std::span<const std::byte> data) {
  if (endpoint.state() == FabricEndpoint::State::kConnecting) {
    connecting_failed(endpoint, connect_error(error, endpoint.remote(), data, options_.hello));
    return;
  }
  endpoint.retire(Error(Errc::kConnectionLost, "the connection was closed by the peer or broke")
                      .with_peer(endpoint.remote().to_string())
                      .with_transport(device_->provider())
                      .with_cause("the peer's process ended, or the path to it was cut"));
}

void Rail::connecting_failed(FabricEndpoint& endpoint, Error error) {
  std::erase(connecting_, &endpoint);
  endpoint.abandon();
  if (endpoint.incoming()) {
    // Nobody knows of it yet, so nobody hears of its end.
    log_warning("a connection from {} broke during the greeting: {}", endpoint.remote().to_string(),
                error.to_string());
    const auto owner = std::find_if(endpoints_.begin(), endpoints_.end(),
                                    [&](const auto& item) { return item.get() == &endpoint; });
    graveyard_.push_back(std::move(*owner));
    endpoints_.erase(owner);
    return;
  }
  events_.push_back({.kind = ConnectionEvent::Kind::kFailed,
                     .endpoint = &endpoint,
                     .peer = {},
                     .error = std::move(error)});
}

}  // namespace lochos::fabric
