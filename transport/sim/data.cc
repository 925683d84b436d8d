// How bytes move in a simulated network.
#include <algorithm>
#include <cstring>

#include "transport/sim/state.h"
#include "transport/sim/transport.h"

namespace lochos::sim {
namespace {

Duration time_for(std::uint64_t bytes, double bytes_per_second) {
  return Duration(static_cast<Duration::rep>(static_cast<double>(bytes) / bytes_per_second * 1e9));
}

}  // namespace

void State::send(const std::shared_ptr<Connection>& connection, int side) {
  Connection::End& end = connection->ends[side];
  if (end.queued || end.waiting.empty() || end.endpoint == nullptr ||
      end.bytes_in_flight >= window_bytes() || end.silent_since != kNever) {
    return;
  }
  end.queued = true;
  hosts_[end.host].senders.push_back({connection, side});
  start_sending(end.host);
}

void State::start_sending(std::size_t host_index) {
  Host& host = hosts_[host_index];
  while (!host.sending && !host.senders.empty()) {
    Sender sender = std::move(host.senders.front());
    host.senders.pop_front();
    Connection::End& end = sender.connection->ends[sender.side];
    end.queued = false;
    if (end.endpoint == nullptr || end.waiting.empty()) continue;
    const Packet& packet = end.waiting.front();
    const std::uint64_t left = packet.bytes_to_send() - packet.sent_bytes;
    const std::uint64_t bytes = std::min(left, kSegmentBytes);
    const Duration sending_time = time_for(bytes + kHeaderBytes, host.bytes_per_second);
    host.sending = true;
    after(sending_time, [this, sender = std::move(sender), bytes, sending_time, host_index] {
      hosts_[host_index].sending = false;
      segment_sent(sender, bytes, sending_time);
      start_sending(host_index);
    });
  }
}

void State::segment_sent(Sender sender, std::uint64_t bytes, Duration sending_time) {
  const auto& connection = sender.connection;
  Connection::End& end = connection->ends[sender.side];
  if (end.endpoint == nullptr || end.waiting.empty()) return;
  const std::size_t to = connection->ends[1 - sender.side].host;
  if (is_cut(end.host, to) || hosts_[to].silent) {
    swallowed(connection, sender.side);
    return;
  }
  Packet& packet = end.waiting.front();
  packet.sent_bytes += bytes;
  const bool last = packet.sent_bytes == packet.bytes_to_send();
  end.bytes_in_flight += bytes + kHeaderBytes;
  if (last) {
    end.travelling.push_back(std::move(packet));
    end.waiting.pop_front();
  }
  // A receiver whose interface is idle takes in what is being sent while it is being sent.
  Host& receiver = hosts_[to];
  const Duration receiving_time = time_for(bytes + kHeaderBytes, receiver.bytes_per_second);
  Instant arrival = std::max(now_ + delay(), end.last_arrival);
  arrival = std::max(arrival + std::max(Duration::zero(), receiving_time - sending_time),
                     receiver.receiving_until + receiving_time);
  receiver.receiving_until = arrival;
  end.last_arrival = arrival;
  at(arrival, [this, connection, side = sender.side, bytes, last] {
    segment_received(connection, side, bytes, last);
  });
  send(connection, sender.side);
}

void State::swallowed(const std::shared_ptr<Connection>& connection, int side) {
  Connection::End& end = connection->ends[side];
  const std::size_t to = connection->ends[1 - side].host;
  end.silent_since = now_;
  swallowed_[{end.host, to}].push_back([this, connection, side] {
    connection->ends[side].silent_since = kNever;
    send(connection, side);
  });
  after(kSilenceLimit, [connection, side, since = now_] {
    Connection::End& silent = connection->ends[side];
    if (silent.silent_since != since || silent.endpoint == nullptr) return;
    silent.endpoint->end(Error(Errc::kConnectionLost, "the peer does not answer any more")
                             .with_peer(silent.endpoint->remote().to_string()));
  });
}

void State::segment_received(const std::shared_ptr<Connection>& connection, int side,
                             std::uint64_t bytes, bool last) {
  Connection::End& sender = connection->ends[side];
  const Connection::End& receiver = connection->ends[1 - side];
  if (sender.endpoint == nullptr || receiver.endpoint == nullptr) return;
  if (last) ++sender.undelivered;
  sender.withheld_bytes += bytes + kHeaderBytes;
  deliver_waiting(connection, side);
}

void State::deliver_waiting(const std::shared_ptr<Connection>& connection, int side) {
  Connection::End& sender = connection->ends[side];
  if (sender.endpoint == nullptr || connection->ends[1 - side].endpoint == nullptr) return;
  while (sender.undelivered > 0 && !sender.travelling.empty()) {
    if (!deliver(connection, side, sender.travelling.front())) return;
    if (sender.endpoint == nullptr) return;  // that broke the connection
    sender.travelling.pop_front();
    --sender.undelivered;
  }
  sender.bytes_in_flight -= sender.withheld_bytes;
  sender.withheld_bytes = 0;
  send(connection, side);
}

std::span<std::byte> State::remote_memory(std::size_t host_index, const WorkRequest& request) {
  const auto& regions = hosts_[host_index].regions;
  const auto region = regions.find(request.remote_key);
  if (region == regions.end()) return {};
  const std::uint64_t size = region->second.size();
  if (request.remote_address > size || request.length > size - request.remote_address) return {};
  return region->second.subspan(request.remote_address, request.length);
}

bool State::deliver(const std::shared_ptr<Connection>& connection, int side, const Packet& packet) {
  SimEndpoint& receiver = *connection->ends[1 - side].endpoint;
  const WorkRequest& request = packet.request;
  if (packet.read_response) {
    std::memcpy(request.local, packet.copy.data(), packet.copy.size());
    receiver.complete(packet.sequence, Completion::Status::kDone);
    return true;
  }
  if (request.opcode == Opcode::kSend) {
    if (request.length > receiver.transport().limits().max_message_bytes) {
      break_off(connection, "a message was larger than the receiver takes");
      return true;
    }
    if (!receiver.transport().take_receive_buffer()) return false;
    const std::byte* data = packet.copy.empty() ? request.local : packet.copy.data();
    receiver.arrive({.kind = Completion::Kind::kMessage,
                     .endpoint = &receiver,
                     .bytes = request.length,
                     .message = {}},
                    std::vector<std::byte>(data, data + request.length));
    acknowledge(connection, side, packet.sequence);
    return true;
  }
  const auto memory = remote_memory(connection->ends[1 - side].host, request);
  if (memory.size() != request.length) {
    break_off(connection, "a request named memory that is not registered at the peer");
    return true;
  }
  if (request.opcode == Opcode::kRead) {
    Packet response{.request = request,
                    .sequence = packet.sequence,
                    .copy = {memory.begin(), memory.end()},
                    .read_response = true};
    connection->ends[1 - side].waiting.push_back(std::move(response));
    send(connection, 1 - side);
    return true;
  }
  if (request.length > 0) std::memcpy(memory.data(), request.local, request.length);
  if (request.opcode == Opcode::kWriteImmediate) {
    receiver.arrive({.kind = Completion::Kind::kImmediate,
                     .immediate = request.immediate,
                     .endpoint = &receiver,
                     .bytes = request.length,
                     .message = {}},
                    {});
  }
  acknowledge(connection, side, packet.sequence);
  return true;
}

void State::acknowledge(const std::shared_ptr<Connection>& connection, int side,
                        std::uint64_t sequence) {
  const std::size_t from = connection->ends[1 - side].host;
  const std::size_t to = connection->ends[side].host;
  const auto tell = [this, connection, side, sequence] {
    after(model_.latency, [connection, side, sequence] {
      SimEndpoint* sender = connection->ends[side].endpoint;
      if (sender != nullptr) sender->complete(sequence, Completion::Status::kDone);
    });
  };
  if (!is_cut(from, to)) {
    tell();
    return;
  }
  swallowed_[{from, to}].push_back(tell);
  after(kSilenceLimit, [connection, side, sequence] {
    SimEndpoint* sender = connection->ends[side].endpoint;
    if (sender == nullptr || !sender->is_outstanding(sequence)) return;
    sender->end(Error(Errc::kConnectionLost, "the peer does not answer any more")
                    .with_peer(sender->remote().to_string()));
  });
}

}  // namespace lochos::sim
