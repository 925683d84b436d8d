#include "transport/sim/transport.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace lochos::sim {
namespace {

constexpr std::uint64_t kMaxTransferBytes = 1ULL << 30;
constexpr std::uint64_t kInlineBytes = 1024;

}  // namespace

SimRegion::SimRegion(State& network, std::size_t host, std::span<std::byte> memory,
                     std::uint64_t key)
    : Region(memory, 0, key), network_(network), host_(host) {
  network_.host(host_).regions.emplace(key, memory);
}

SimRegion::~SimRegion() {
  network_.host(host_).regions.erase(remote_key());
}

SimTransport::SimTransport(State& network, std::size_t host, const SocketAddress& address,
                           const TransportOptions& options)
    : network_(network), host_(host), address_(address), free_receives_(options.receive_buffers) {
  limits_.max_transfer_bytes = kMaxTransferBytes;
  limits_.max_message_bytes = options.receive_buffer_bytes;
  limits_.inline_bytes = std::min(kInlineBytes, options.receive_buffer_bytes);
  limits_.queue_depth = options.queue_depth;
  set_hello(options.hello);
  State::Host& here = network_.host(host_);
  here.known = true;
  here.silent = false;
  here.transports.push_back(this);
  here.regions.emplace(kVoidKey, std::span<std::byte>());
}

SimTransport::~SimTransport() {
  State::Host& here = network_.host(host_);
  std::erase(here.transports, this);
  std::erase_if(here.listeners, [&](const auto& entry) { return entry.second == this; });
  for (const auto& endpoint : endpoints_) {
    if (endpoint->connection()->ends[endpoint->side()].endpoint == nullptr) continue;
    network_.hang_up(endpoint->connection(), endpoint->side(), "the peer's process ended");
  }
}

Result<std::unique_ptr<Region>> SimTransport::register_memory(std::span<std::byte> memory) {
  return std::make_unique<SimRegion>(network_, host_, memory, network_.random_key());
}

Result<SocketAddress> SimTransport::listen(const SocketAddress& address) {
  LOCHOS_CHECK(listening_port_ == 0);
  if (!address.is_unspecified() && network_.host_index(address) != host_) {
    return fail(Errc::kUnreachable,
                fmt::format("listen on {}: not an address of this host", address.to_string()));
  }
  auto& listeners = network_.host(host_).listeners;
  const std::uint16_t port = address.port() != 0 ? address.port() : network_.next_port();
  if (!listeners.try_emplace(port, this).second) {
    return fail(Errc::kAddressInUse, fmt::format("listen on {}", address.to_string()));
  }
  listening_port_ = port;
  return address_.with_port(port);
}

Endpoint* SimTransport::connect(const SocketAddress& address, Instant deadline) {
  auto connection = std::make_shared<Connection>();
  auto& endpoint =
      *endpoints_.emplace_back(std::make_unique<SimEndpoint>(*this, connection, 0, address));
  connection->ends[0].host = host_;
  connection->ends[1].host = network_.host_index(address);
  if (dead_) return &endpoint;
  connection->ends[0].endpoint = &endpoint;
  network_.connect(connection, address, deadline);
  return &endpoint;
}

void SimTransport::set_hello(const Hello& hello) {
  hello_ = hello;
  hello_.max_message_bytes = static_cast<std::uint32_t>(limits_.max_message_bytes);
}

SimEndpoint& SimTransport::accept(std::shared_ptr<Connection> connection,
                                  const SocketAddress& remote, const Hello& peer) {
  auto& endpoint = *endpoints_.emplace_back(
      std::make_unique<SimEndpoint>(*this, std::move(connection), 1, remote));
  endpoint.incoming = true;
  established(endpoint, peer);
  return endpoint;
}

void SimTransport::established(SimEndpoint& endpoint, const Hello& peer) {
  endpoint.state = SimEndpoint::State::kReady;
  endpoint.peer = peer;
  events_.push_back({.kind = ConnectionEvent::Kind::kEstablished,
                     .endpoint = &endpoint,
                     .incoming = endpoint.incoming,
                     .peer = peer});
}

void SimTransport::failed(SimEndpoint& endpoint, Error error) {
  endpoint.disappear();
  endpoint.state = SimEndpoint::State::kEnded;
  endpoint.end_reported = true;
  events_.push_back({.kind = ConnectionEvent::Kind::kFailed,
                     .endpoint = &endpoint,
                     .peer = {},
                     .error = std::move(error)});
}

void SimTransport::push(Completion completion, std::vector<std::byte> message) {
  completions_.push_back({completion, std::move(message)});
}

void SimTransport::report_end_if_drained(SimEndpoint& endpoint) {
  if (endpoint.state != SimEndpoint::State::kEnded || endpoint.outstanding() > 0 ||
      endpoint.end_reported) {
    return;
  }
  // Arrivals of it may still wait to be polled; its end must not overtake them.
  for (const Record& record : completions_) {
    if (record.completion.endpoint == &endpoint) return;
  }
  endpoint.end_reported = true;
  events_.push_back({.kind = ConnectionEvent::Kind::kClosed,
                     .endpoint = &endpoint,
                     .incoming = endpoint.incoming,
                     .peer = endpoint.peer,
                     .error = *endpoint.reason});
}

bool SimTransport::take_receive_buffer() {
  if (free_receives_ == 0) return false;
  --free_receives_;
  return true;
}

void SimTransport::die() {
  dead_ = true;
}

bool SimTransport::silent() const {
  return dead_ || network_.host(host_).paused;
}

std::size_t SimTransport::poll(std::span<Completion> completions) {
  graveyard_.clear();
  returned_messages_.clear();
  if (silent()) return 0;
  if (taken_receives_ > 0) {
    const bool starved = free_receives_ == 0;
    free_receives_ += taken_receives_;
    taken_receives_ = 0;
    for (std::size_t index = 0; starved && index < endpoints_.size(); ++index) {
      const SimEndpoint& endpoint = *endpoints_[index];
      const int sender = 1 - endpoint.side();
      if (endpoint.connection()->ends[sender].undelivered > 0) {
        network_.deliver_waiting(endpoint.connection(), sender);
      }
    }
  }
  std::size_t count = 0;
  while (count < completions.size() && !completions_.empty()) {
    Record record = std::move(completions_.front());
    completions_.pop_front();
    auto& endpoint = static_cast<SimEndpoint&>(*record.completion.endpoint);
    Completion& completion = completions[count++] = record.completion;
    if (completion.kind == Completion::Kind::kRequest) endpoint.taken();
    if (completion.kind == Completion::Kind::kMessage) {
      ++taken_receives_;
      returned_messages_.push_back(std::move(record.message));
      completion.message = returned_messages_.back();
    }
    report_end_if_drained(endpoint);
  }
  return count;
}

std::size_t SimTransport::poll_connections(Instant, std::span<ConnectionEvent> events) {
  if (silent()) return 0;
  std::size_t count = 0;
  while (count < events.size() && !events_.empty()) {
    ConnectionEvent& event = events[count++] = std::move(events_.front());
    events_.pop_front();
    auto& endpoint = static_cast<SimEndpoint&>(*event.endpoint);
    if (event.kind == ConnectionEvent::Kind::kEstablished) {
      endpoint.opened();
    } else {
      bury(endpoint);
    }
  }
  return count;
}

void SimTransport::bury(SimEndpoint& endpoint) {
  const auto owner = std::find_if(endpoints_.begin(), endpoints_.end(),
                                  [&](const auto& item) { return item.get() == &endpoint; });
  graveyard_.push_back(std::move(*owner));
  endpoints_.erase(owner);
}

bool SimTransport::arm() {
  return silent() || (completions_.empty() && events_.empty() && taken_receives_ == 0);
}

}  // namespace lochos::sim
