// How simulated connections begin and end.
#include <fmt/format.h>

#include <algorithm>

#include "transport/sim/state.h"
#include "transport/sim/transport.h"

namespace lochos::sim {

void State::connect(const std::shared_ptr<Connection>& connection, const SocketAddress& remote,
                    Instant deadline) {
  if (connections_.size() >= prune_at_) {
    std::erase_if(connections_, [](const auto& old) { return old.expired(); });
    prune_at_ = 2 * connections_.size() + 64;
  }
  connections_.push_back(connection);
  at(deadline, [this, connection, remote] {
    fail_connection(connection, Error(Errc::kTimedOut,
                                      fmt::format("connect to {}: no answer", remote.to_string()))
                                    .with_peer(remote.to_string()));
  });
  request_connection(connection, remote, deadline);
}

void State::request_connection(const std::shared_ptr<Connection>& connection,
                               const SocketAddress& remote, Instant deadline) {
  const std::size_t from = connection->ends[0].host;
  const std::size_t to = connection->ends[1].host;
  if (connection->ends[0].endpoint == nullptr || now_ >= deadline) return;
  const Host& target = hosts_[to];
  if (is_cut(from, to) || is_cut(to, from) || !target.known || target.silent) {
    after(kConnectRetry, [this, connection, remote, deadline] {
      request_connection(connection, remote, deadline);
    });
    return;
  }
  after(delay(), [this, connection, remote] { answer_connection(connection, remote); });
}

void State::answer_connection(const std::shared_ptr<Connection>& connection,
                              const SocketAddress& remote) {
  Host& target = hosts_[connection->ends[1].host];
  SimEndpoint* asking = connection->ends[0].endpoint;
  if (asking == nullptr || target.silent) return;
  if (target.paused) {  // the handshake needs the program, not only its interface
    target.on_resume.push_back(
        [this, connection, remote] { answer_connection(connection, remote); });
    return;
  }
  const auto listener = target.listeners.find(remote.port());
  if (listener == target.listeners.end()) {
    after(delay(), [this, connection, remote] {
      fail_connection(connection,
                      Error(Errc::kUnreachable,
                            fmt::format("connect to {}: connection refused", remote.to_string()))
                          .with_peer(remote.to_string())
                          .with_cause("nothing listens there"));
    });
    return;
  }
  SimTransport& acceptor = *listener->second;
  auto hello = decode_hello(encode(asking->transport().hello()), acceptor.hello());
  if (!hello) {
    const auto refusal = encode_refusal(hello.error(), acceptor.hello());
    after(delay(), [this, connection, refusal, remote] {
      if (connection->ends[0].endpoint == nullptr) return;
      const Hello& local = connection->ends[0].endpoint->transport().hello();
      fail_connection(connection, decode_refusal(refusal, local).with_peer(remote.to_string()));
    });
    return;
  }
  const SocketAddress source = asking->transport().address().with_port(next_port());
  connection->ends[1].endpoint = &acceptor.accept(connection, source, *hello);
  connection->ends[1].last_arrival = now_ + delay();
  at(connection->ends[1].last_arrival,
     [this, connection, hello = acceptor.hello()] { confirm_connection(connection, hello); });
}

void State::confirm_connection(const std::shared_ptr<Connection>& connection, const Hello& hello) {
  SimEndpoint* asking = connection->ends[0].endpoint;
  if (asking == nullptr) {  // it gave up meanwhile
    hang_up(connection, 0, "the peer gave up connecting");
    return;
  }
  auto checked = decode_hello(encode(hello), asking->transport().hello());
  if (!checked) {
    fail_connection(connection, checked.error());
    hang_up(connection, 0, "the peer refused the greeting");
    return;
  }
  asking->transport().established(*asking, *checked);
}

void State::fail_connection(const std::shared_ptr<Connection>& connection, Error error) {
  SimEndpoint* asking = connection->ends[0].endpoint;
  if (asking == nullptr || asking->state != SimEndpoint::State::kConnecting) return;
  asking->transport().failed(*asking, std::move(error));
}

void State::hang_up(const std::shared_ptr<Connection>& connection, int side,
                    const std::string& why) {
  const std::size_t from = connection->ends[side].host;
  const std::size_t to = connection->ends[1 - side].host;
  const auto tell = [this, connection, side, why] {
    after(delay(), [connection, side, why] {
      SimEndpoint* other = connection->ends[1 - side].endpoint;
      if (other != nullptr) {
        other->end(Error(Errc::kConnectionLost, why).with_peer(other->remote().to_string()));
      }
    });
  };
  if (is_cut(from, to)) {
    swallowed_[{from, to}].push_back(tell);
  } else {
    tell();
  }
}

void State::break_off(const std::shared_ptr<Connection>& connection, const std::string& why) {
  for (Connection::End& end : connection->ends) {
    if (end.endpoint == nullptr) continue;
    end.endpoint->end(
        Error(Errc::kConnectionLost, why).with_peer(end.endpoint->remote().to_string()));
  }
}

}  // namespace lochos::sim
