// Networks that exist only in this process, in virtual time: for tests and simulation.
//
// A `SimNetwork` owns time, links and faults; each `SimTransport` it makes is one rail of one
// simulated host. Single-threaded. The same seed and the same calls give the same run.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "transport/transport.h"

namespace lochos {

struct SimLinkModel {
  Duration latency = std::chrono::microseconds(10);
  Duration jitter{0};  // uniform extra latency, per message; order on a connection is kept
  double bytes_per_second = 1.25e9;  // of a host's interface, each direction, shared by its flows
};

class SimNetwork final : public Clock {
 public:
  explicit SimNetwork(std::uint64_t seed, SimLinkModel model = {});
  ~SimNetwork() override;

  Instant now() const override;

  // A rail of the simulated host `host` (any IP address; its identity in this network). The
  // transport must not outlive the network.
  std::unique_ptr<Transport> open_transport(const SocketAddress& host,
                                            const TransportOptions& options);

  // Runs the next event, at most until `limit`. False if there was none: time is then `limit` (if
  // it is not kNever).
  bool step(Instant limit = kNever);

  // Faults. A cut path loses everything sent on it from now on, silently; one-way.
  void cut(const SocketAddress& from, const SocketAddress& to);
  void heal(const SocketAddress& from, const SocketAddress& to);
  // Breaks all connections between the two at once; both sides hear of it.
  void reset_connections(const SocketAddress& a, const SocketAddress& b);
  // The host is gone: its transports do nothing more; peers hear of it only if `reset`.
  void kill(const SocketAddress& host, bool reset);
  // Slows or restores one host's interface.
  void set_bandwidth(const SocketAddress& host, double bytes_per_second);
  // A paused host neither polls nor answers; its "NIC" still accepts writes (as RDMA does).
  void pause(const SocketAddress& host);
  void resume(const SocketAddress& host);

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace lochos
