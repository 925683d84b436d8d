#include "tools/perf_link.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/check.h"
#include "base/units.h"
#include "transport/fabric/fabric_transport.h"
#include "transport/verbs/verbs_transport.h"

namespace lochos {
namespace {

constexpr Duration kConnectTimeout = std::chrono::seconds(5);
// Larger sends go in pieces: receive buffers are posted for all that may be under way.
constexpr std::uint64_t kMaxReceiveBuffer = 1ULL << 20;
constexpr std::uint64_t kReceiveMemory = 256ULL << 20;
// With --verify, how much memory the different places may take.
constexpr std::uint64_t kVerifyMemory = 64ULL << 20;
constexpr std::uint64_t kPlaceAlignment = 64;

std::uint64_t largest(const std::vector<std::uint64_t>& sizes) {
  return *std::max_element(sizes.begin(), sizes.end());
}

void fill_options(TransportOptions& options, const PerfParameters& parameters) {
  options.hello.purpose = HelloPurpose::kPerf;
  options.handshake_timeout = kConnectTimeout;  // nobody but our own other side knows the port
  options.queue_depth = std::max<std::size_t>(parameters.depth, 16);
  if (parameters.op != PerfOp::kSend) {
    options.receive_buffer_bytes = 1024;  // the end marker alone
    // An immediate takes a receive buffer too.
    options.receive_buffers = 64;
    return;
  }
  options.receive_buffer_bytes =
      std::clamp<std::uint64_t>(largest(parameters.sizes), 1024, kMaxReceiveBuffer);
  options.receive_buffers = std::min<std::uint64_t>(2 * parameters.depth + 16,
                                                    kReceiveMemory / options.receive_buffer_bytes);
  options.hello.max_message_bytes = static_cast<std::uint32_t>(options.receive_buffer_bytes);
}

}  // namespace

PerfLayout perf_layout(const PerfParameters& parameters, std::uint64_t size) {
  PerfLayout layout;
  layout.size = size;
  layout.stride = (size + kPlaceAlignment - 1) / kPlaceAlignment * kPlaceAlignment;
  if (!parameters.verify) return layout;
  const std::uint64_t room = std::max<std::uint64_t>(1, kVerifyMemory / layout.stride);
  layout.slots = std::min({room, parameters.depth, parameters.iterations});
  return layout;
}

Result<std::unique_ptr<Transport>> open_perf_transport(TransportKind kind,
                                                       const PerfParameters& parameters,
                                                       const SocketAddress& local,
                                                       const PerfRail& rail) {
  if (kind == TransportKind::kVerbs) {
    VerbsOptions options;
    fill_options(options, parameters);
    options.local = local.with_port(0);
    options.gid_index = rail.gid_index;
    return open_verbs_transport(options);
  }
  FabricOptions options;
  fill_options(options, parameters);
  options.provider = rail.provider;
  options.local = local.with_port(0);
  return open_fabric_transport(options);
}

Result<PerfMemoryArea> PerfMemoryArea::allocate(std::uint64_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return fail(Errc::kNoSpace,
                fmt::format("cannot allocate {} for the messages", format_size(bytes)));
  }
  ::madvise(memory, bytes, MADV_HUGEPAGE);  // an attempt; small pages work as well
  return PerfMemoryArea({static_cast<std::byte*>(memory), bytes});
}

PerfMemoryArea::PerfMemoryArea(PerfMemoryArea&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})) {}

PerfMemoryArea::~PerfMemoryArea() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

PerfLink::PerfLink(std::unique_ptr<Transport> transport, PerfControl& control, bool events)
    : control_(control),
      transport_(std::move(transport)),
      events_(events),
      last_progress_time_(SteadyClock().now()) {}

Result<std::unique_ptr<PerfLink>> PerfLink::establish(std::unique_ptr<Transport> transport,
                                                      const SocketAddress* address,
                                                      PerfControl& control,
                                                      const PerfParameters& parameters) {
  const Instant deadline = SteadyClock().now() + kConnectTimeout;
  std::unique_ptr<PerfLink> link(new PerfLink(std::move(transport), control, true));
  if (auto connected = link->connect(address, deadline); !connected)
    return fail(Error(connected.error())
                    .with_operation("connecting the measured connection")
                    .with_transport(to_string(link->transport().kind())));
  if (auto exchanged = link->exchange_memory(parameters, deadline); !exchanged)
    return fail(exchanged.error());
  link->events_ = parameters.events;
  return link;
}

PerfLink::~PerfLink() {
  // The memory must not go before the endpoint is drained.
  if (endpoint_ != nullptr && !closed_) {
    endpoint_->close();
    drain();
  }
}

void PerfLink::drain() {
  const Instant deadline = SteadyClock().now() + std::chrono::seconds(2);
  std::array<Completion, 64> completions;
  while (!closed_) {
    const Instant now = SteadyClock().now();
    if (now >= deadline) break;
    const std::size_t done = transport_->poll(completions);
    (void)take_connection_events(now);
    if (!closed_ && done == 0 && transport_->arm()) {
      pollfd fd{transport_->event_fd(), POLLIN, 0};
      ::poll(&fd, 1, 10);
    }
  }
  // What could not be drained may still be read by the device: it stays until the process ends.
  if (!closed_) {
    (void)region_.release();
    (void)memory_.release();
    (void)transport_.release();
  }
}

Status PerfLink::connect(const SocketAddress* address, Instant deadline) {
  Endpoint* connecting = address == nullptr ? nullptr : transport_->connect(*address, deadline);
  std::array<ConnectionEvent, 4> events{};
  std::array<Completion, 4> completions;
  for (;;) {
    const Instant now = SteadyClock().now();
    const std::size_t count = transport_->poll_connections(now, events);
    for (const ConnectionEvent& event : std::span(events).first(count)) {
      if (event.kind == ConnectionEvent::Kind::kFailed) return fail(event.error);
      if (event.kind == ConnectionEvent::Kind::kClosed) continue;
      if (connecting != nullptr && event.endpoint != connecting) continue;
      endpoint_ = event.endpoint;
      return {};
    }
    if (now >= deadline) return fail(Errc::kTimedOut, "the measured connection was not made");
    (void)transport_->poll(completions);
    if (auto pumped = control_.pump(); !pumped) return pumped;
    if (transport_->arm()) sleep(now);
    pollfd stopped{control_.stop_fd(), POLLIN, 0};
    if (::poll(&stopped, 1, 0) > 0) return fail(Errc::kCancelled, "interrupted");
  }
}

Status PerfLink::exchange_memory(const PerfParameters& parameters, Instant deadline) {
  for (const std::uint64_t size : parameters.sizes)
    area_bytes_ = std::max(area_bytes_, perf_layout(parameters, size).bytes());
  auto area = PerfMemoryArea::allocate(2 * area_bytes_);
  if (!area) return fail(area.error());
  memory_ = std::make_unique<PerfMemoryArea>(std::move(*area));
  std::fill(memory_->bytes().begin(), memory_->bytes().end(), std::byte{0x5a});  // take all pages
  auto region = transport_->register_memory(memory_->bytes());
  if (!region) return fail(region.error());
  region_ = std::move(*region);

  const Limits& limits = transport_->limits();
  const PerfMemory ours{region_->remote_address(incoming().data()),
                        region_->remote_address(outgoing().data()), region_->remote_key(),
                        limits.max_transfer_bytes, limits.max_message_bytes};
  if (auto sent = control_.send(ours); !sent) return sent;
  auto theirs = control_.receive_a<PerfMemory>(deadline);
  if (!theirs) return fail(theirs.error());
  remote_ = *theirs;
  if (max_piece(PerfOp::kWrite) == 0 || max_piece(PerfOp::kSend) == 0)
    return fail(Errc::kProtocol, "the other side can take no bytes at all");
  return {};
}

std::uint64_t PerfLink::max_piece(PerfOp op) const {
  const Limits& limits = transport_->limits();
  if (op == PerfOp::kSend) return std::min(limits.max_message_bytes, remote_.max_message);
  return std::min(limits.max_transfer_bytes, remote_.max_transfer);
}

void PerfLink::append_message(PerfOp op, const PerfLayout& layout, std::uint64_t slot,
                              Opcode last_write, std::vector<WorkRequest>& requests) const {
  const std::uint64_t piece = max_piece(op);
  for (std::uint64_t done = 0; done < layout.size; done += piece) {
    const std::uint64_t at = slot * layout.stride + done;
    WorkRequest request;
    request.length = std::min(piece, layout.size - done);
    request.region = region_.get();
    request.remote_key = remote_.key;
    request.local = (op == PerfOp::kRead ? incoming() : outgoing()).data() + at;
    request.remote_address = (op == PerfOp::kRead ? remote_.outgoing : remote_.incoming) + at;
    switch (op) {
      case PerfOp::kWrite:
        request.opcode = done + request.length == layout.size ? last_write : Opcode::kWrite;
        break;
      case PerfOp::kSend:
        request.opcode = Opcode::kSend;
        if (request.length <= transport_->limits().inline_bytes) request.region = nullptr;
        break;
      case PerfOp::kRead:
        request.opcode = Opcode::kRead;
        break;
    }
    requests.push_back(request);
  }
}

Status PerfLink::idle(std::optional<std::uint64_t> progress) {
  const bool looking = ++idle_turns_ % kTurnsBetweenLooks == 0 || std::exchange(woken_, false);
  if (!looking && !events_) return {};
  const Instant now = SteadyClock().now();
  if (!progress || *progress != last_progress_) {
    last_progress_ = progress.value_or(0);
    last_progress_time_ = now;
  } else if (now - last_progress_time_ > kStallTimeout) {
    return fail(Error(Errc::kTimedOut,
                      fmt::format("nothing has moved for {}", format_duration(kStallTimeout)))
                    .with_peer(endpoint_->describe())
                    .with_cause("the other side is stopped, or the way to it is cut"));
  }
  // A connection's end is an event of the transport; the rest is seen when sleep() was woken by it.
  if (auto well = looking ? look(now) : take_connection_events(now); !well) return well;
  if (events_ && transport_->arm()) sleep(now);
  return {};
}

Status PerfLink::look(Instant now) {
  if (auto connection = take_connection_events(now); !connection) {
    // The control connection often knows better why: the other side's last words.
    if (auto pumped = control_.pump(); !pumped) return pumped;
    return connection;
  }
  std::array<pollfd, 2> fds{pollfd{control_.fd(), POLLIN, 0},
                            pollfd{control_.stop_fd(), POLLIN, 0}};
  if (::poll(fds.data(), fds.size(), 0) <= 0) return {};
  if (fds[1].revents != 0) return fail(Errc::kCancelled, "interrupted");
  return control_.pump();
}

Status PerfLink::take_connection_events(Instant now) {
  std::array<ConnectionEvent, 4> events{};
  const std::size_t count = transport_->poll_connections(now, events);
  for (const ConnectionEvent& event : std::span(events).first(count)) {
    if (event.endpoint != endpoint_ || event.kind != ConnectionEvent::Kind::kClosed) continue;
    closed_ = true;
    return fail(event.error);
  }
  return {};
}

void PerfLink::sleep(Instant now) {
  std::array<pollfd, 3> fds{pollfd{transport_->event_fd(), POLLIN, 0},
                            pollfd{control_.fd(), POLLIN, 0},
                            pollfd{control_.stop_fd(), POLLIN, 0}};
  const Instant until = std::min(transport_->next_deadline(), now + std::chrono::seconds(1));
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(until - now).count();
  ::poll(fds.data(), fds.size(), static_cast<int>(std::max<std::int64_t>(ms, 0)));
  woken_ = fds[0].revents == 0;
}

Status PerfLink::wait_for_control() {
  const bool events = std::exchange(events_, true);
  std::array<Completion, 64> completions;
  std::uint64_t progress = last_progress_;
  Status status;
  last_progress_time_ = SteadyClock().now();
  while (status && !control_.has_message()) {
    const std::size_t done = transport_->poll(completions);
    progress += done;
    if (done == 0) status = idle(progress);
    if (status && !control_.has_message()) status = control_.pump();
  }
  events_ = events;
  last_progress_time_ = SteadyClock().now();
  return control_.has_message() ? Status{} : status;
}

}  // namespace lochos
