#include "transport/sim/state.h"

#include <algorithm>

#include "transport/sim/transport.h"

namespace lochos::sim {

bool State::step(Instant limit) {
  if (events_.empty() || events_.top().time > limit) {
    if (limit != kNever) now_ = std::max(now_, limit);
    return false;
  }
  // The queue gives only const access; the event is popped before it runs and may push others.
  auto action = std::move(const_cast<Event&>(events_.top()).action);
  now_ = events_.top().time;
  events_.pop();
  action();
  return true;
}

void State::at(Instant time, std::function<void()> action) {
  events_.push({std::max(time, now_), next_order_++, std::move(action)});
}

std::size_t State::host_index(const SocketAddress& address) {
  const auto [entry, added] = host_names_.try_emplace(address.host(), hosts_.size());
  if (added) {
    hosts_.push_back({});
    hosts_.back().name = entry->first;
    hosts_.back().bytes_per_second = model_.bytes_per_second;
  }
  return entry->second;
}

Duration State::delay() {
  if (model_.jitter <= Duration::zero()) return model_.latency;
  std::uniform_int_distribution<Duration::rep> extra(0, model_.jitter.count());
  return model_.latency + Duration(extra(random_));
}

std::uint64_t State::window_bytes() const {
  const double round_trip = seconds(2 * (model_.latency + model_.jitter));
  return std::max<std::uint64_t>(
      4 * kSegmentBytes, static_cast<std::uint64_t>(2 * round_trip * model_.bytes_per_second));
}

void State::heal(std::size_t from, std::size_t to) {
  if (cuts_.erase({from, to}) == 0) return;
  auto again = std::move(swallowed_[{from, to}]);
  swallowed_.erase({from, to});
  for (auto& action : again)
    action();
}

std::vector<std::shared_ptr<Connection>> State::connections() {
  std::vector<std::shared_ptr<Connection>> living;
  std::erase_if(connections_, [](const auto& connection) { return connection.expired(); });
  for (const auto& connection : connections_)
    living.push_back(connection.lock());
  return living;
}

void State::reset(std::size_t a, std::size_t b) {
  for (const auto& connection : connections()) {
    const std::size_t first = connection->ends[0].host;
    const std::size_t second = connection->ends[1].host;
    if ((first == a && second == b) || (first == b && second == a)) {
      break_off(connection, "the connection was reset");
    }
  }
}

void State::kill(std::size_t index, bool reset) {
  Host& host = hosts_[index];
  host.silent = !reset;
  host.listeners.clear();
  host.senders.clear();
  host.on_resume.clear();
  for (const auto& connection : connections()) {
    for (const int side : {0, 1}) {
      Connection::End& end = connection->ends[side];
      if (end.host != index || end.endpoint == nullptr) continue;
      end.endpoint->disappear();
      if (reset) hang_up(connection, side, "the peer's process was killed");
    }
  }
  for (SimTransport* transport : host.transports)
    transport->die();
}

void State::resume(std::size_t index) {
  hosts_[index].paused = false;
  auto waiting = std::move(hosts_[index].on_resume);
  hosts_[index].on_resume.clear();
  for (auto& action : waiting)
    action();
}

}  // namespace lochos::sim

namespace lochos {

class SimNetwork::State : public sim::State {
 public:
  using sim::State::State;
};

SimNetwork::SimNetwork(std::uint64_t seed, SimLinkModel model)
    : state_(std::make_unique<State>(seed, model)) {}

SimNetwork::~SimNetwork() = default;

Instant SimNetwork::now() const {
  return state_->now();
}

std::unique_ptr<Transport> SimNetwork::open_transport(const SocketAddress& host,
                                                      const TransportOptions& options) {
  return std::make_unique<sim::SimTransport>(*state_, state_->host_index(host), host.with_port(0),
                                             options);
}

bool SimNetwork::step(Instant limit) {
  return state_->step(limit);
}

void SimNetwork::cut(const SocketAddress& from, const SocketAddress& to) {
  state_->cut(state_->host_index(from), state_->host_index(to));
}

void SimNetwork::heal(const SocketAddress& from, const SocketAddress& to) {
  state_->heal(state_->host_index(from), state_->host_index(to));
}

void SimNetwork::reset_connections(const SocketAddress& a, const SocketAddress& b) {
  state_->reset(state_->host_index(a), state_->host_index(b));
}

void SimNetwork::kill(const SocketAddress& host, bool reset) {
  state_->kill(state_->host_index(host), reset);
}

void SimNetwork::set_bandwidth(const SocketAddress& host, double bytes_per_second) {
  state_->host(state_->host_index(host)).bytes_per_second = bytes_per_second;
}

void SimNetwork::pause(const SocketAddress& host) {
  state_->host(state_->host_index(host)).paused = true;
}

void SimNetwork::resume(const SocketAddress& host) {
  state_->resume(state_->host_index(host));
}

}  // namespace lochos
