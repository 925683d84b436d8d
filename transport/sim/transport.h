// A rail of a simulated host. Single-threaded; belongs to the test, must not outlive the network.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "transport/sim/endpoint.h"
#include "transport/sim/state.h"
#include "transport/transport.h"

namespace lochos::sim {

class SimRegion final : public Region {
 public:
  SimRegion(State& network, std::size_t host, std::span<std::byte> memory, std::uint64_t key);
  ~SimRegion() override;

 private:
  State& network_;
  const std::size_t host_;
};

class SimTransport final : public Transport {
 public:
  SimTransport(State& network, std::size_t host, const SocketAddress& address,
               const TransportOptions& options);
  ~SimTransport() override;

  TransportKind kind() const override { return TransportKind::kSim; }
  std::string describe() const override { return "sim " + address_.host(); }
  const Limits& limits() const override { return limits_; }
  Result<std::unique_ptr<Region>> register_memory(std::span<std::byte> memory) override;
  Result<SocketAddress> listen(const SocketAddress& address) override;
  Endpoint* connect(const SocketAddress& address, Instant deadline) override;
  void set_hello(const Hello& hello) override;
  std::size_t poll(std::span<Completion> completions) override;
  std::size_t poll_connections(Instant now, std::span<ConnectionEvent> events) override;
  int event_fd() const override { return -1; }
  bool arm() override;
  Instant next_deadline() const override { return kNever; }

  // For the network and the endpoints.
  State& network() { return network_; }
  std::size_t host() const { return host_; }
  const Hello& hello() const { return hello_; }
  const SocketAddress& address() const { return address_; }
  SimEndpoint& accept(std::shared_ptr<Connection> connection, const SocketAddress& remote,
                      const Hello& peer);
  void established(SimEndpoint& endpoint, const Hello& peer);
  void failed(SimEndpoint& endpoint, Error error);
  void push(Completion completion, std::vector<std::byte> message);
  void report_end_if_drained(SimEndpoint& endpoint);
  bool take_receive_buffer();
  // Its host was killed: it neither reports nor does anything any more.
  void die();

 private:
  struct Record {
    Completion completion;
    std::vector<std::byte> message;
  };

  bool silent() const;
  void bury(SimEndpoint& endpoint);

  State& network_;
  const std::size_t host_;
  const SocketAddress address_;
  Limits limits_;
  Hello hello_;
  std::uint16_t listening_port_ = 0;
  std::size_t free_receives_;
  std::size_t taken_receives_ = 0;  // their messages were returned by the last poll()
  std::deque<Record> completions_;
  std::vector<std::vector<std::byte>> returned_messages_;
  std::deque<ConnectionEvent> events_;
  std::vector<std::unique_ptr<SimEndpoint>> endpoints_;
  std::vector<std::unique_ptr<SimEndpoint>> graveyard_;  // freed by the next poll()
  bool dead_ = false;
};

}  // namespace lochos::sim
