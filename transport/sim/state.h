// What a simulated network is made of: time, hosts with their interfaces, paths, connections.
// Single-threaded. state.cc is time, hosts and faults; handshake.cc makes and ends connections;
// data.cc moves bytes.
//
// Each host has one interface that sends one segment at a time, in turn for each connection that
// has something to send (so flows share it fairly), and receives segments one after the other.
// A connection has a window, so that a slow or crowded receiver slows its senders. A path that is
// cut swallows what is sent; the connection tries again when it is healed, and is lost after
// kSilenceLimit, as TCP and RDMA do it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "transport/sim/endpoint.h"
#include "transport/sim/sim_network.h"

namespace lochos::sim {

class SimTransport;

// Interfaces take turns after this much: small enough to be fair, large enough that a simulation of
// a thousand hosts ends today.
inline constexpr std::uint64_t kSegmentBytes = 64 * 1024;
// What every message costs beyond its bytes.
inline constexpr std::uint64_t kHeaderBytes = 64;
inline constexpr Duration kSilenceLimit = std::chrono::seconds(8);
inline constexpr Duration kConnectRetry = std::chrono::milliseconds(200);

class State {
 public:
  struct Sender {
    std::shared_ptr<Connection> connection;
    int side = 0;
  };

  struct Host {
    std::string name;
    double bytes_per_second = 0;
    bool known = false;  // a transport was opened here once
    bool paused = false;
    bool silent = false;  // killed without a reset: answers nothing
    std::vector<SimTransport*> transports;
    std::map<std::uint16_t, SimTransport*> listeners;
    std::map<std::uint64_t, std::span<std::byte>> regions;  // by key
    std::deque<Sender> senders;  // connections with something to send, in turn
    bool sending = false;
    Instant receiving_until = Instant::min();
    std::vector<std::function<void()>> on_resume;  // what waits for the host to be there again
  };

  State(std::uint64_t seed, const SimLinkModel& model) : model_(model), random_(seed) {}

  // Time.
  Instant now() const { return now_; }
  bool step(Instant limit);
  void at(Instant time, std::function<void()> action);
  void after(Duration delay, std::function<void()> action) { at(now_ + delay, std::move(action)); }

  // Hosts and paths.
  std::size_t host_index(const SocketAddress& address);
  Host& host(std::size_t index) { return hosts_[index]; }
  bool is_cut(std::size_t from, std::size_t to) const { return cuts_.contains({from, to}); }
  Duration delay();  // of one message: latency and jitter
  std::uint64_t random_key() { return random_(); }
  std::uint16_t next_port() { return ++last_port_; }

  // Faults.
  void cut(std::size_t from, std::size_t to) { cuts_.insert({from, to}); }
  void heal(std::size_t from, std::size_t to);
  void reset(std::size_t a, std::size_t b);
  void kill(std::size_t index, bool reset);
  void resume(std::size_t index);

  // Connections.
  void connect(const std::shared_ptr<Connection>& connection, const SocketAddress& remote,
               Instant deadline);
  // The end `side` is gone; the other one hears of it if the path allows.
  void hang_up(const std::shared_ptr<Connection>& connection, int side, const std::string& why);
  // Both ends break at once.
  void break_off(const std::shared_ptr<Connection>& connection, const std::string& why);

  // Data: `side` has something to send.
  void send(const std::shared_ptr<Connection>& connection, int side);
  // Goes on with what `side` has sent and its peer had no receive buffer for.
  void deliver_waiting(const std::shared_ptr<Connection>& connection, int side);

 private:
  struct Event {
    Instant time;
    std::uint64_t order;
    std::function<void()> action;
    bool operator>(const Event& other) const {
      return time != other.time ? time > other.time : order > other.order;
    }
  };

  void request_connection(const std::shared_ptr<Connection>& connection,
                          const SocketAddress& remote, Instant deadline);
  void answer_connection(const std::shared_ptr<Connection>& connection,
                         const SocketAddress& remote);
  void confirm_connection(const std::shared_ptr<Connection>& connection, const Hello& hello);
  void fail_connection(const std::shared_ptr<Connection>& connection, Error error);

  void start_sending(std::size_t host_index);
  void segment_sent(Sender sender, std::uint64_t bytes, Duration sending_time);
  void segment_received(const std::shared_ptr<Connection>& connection, int side,
                        std::uint64_t bytes, bool last);
  bool deliver(const std::shared_ptr<Connection>& connection, int side, const Packet& packet);
  void acknowledge(const std::shared_ptr<Connection>& connection, int side, std::uint64_t sequence);
  std::span<std::byte> remote_memory(std::size_t host_index, const WorkRequest& request);
  void swallowed(const std::shared_ptr<Connection>& connection, int side);
  std::uint64_t window_bytes() const;
  std::vector<std::shared_ptr<Connection>> connections();

  const SimLinkModel model_;
  std::mt19937_64 random_;
  Instant now_{std::chrono::seconds(1)};
  std::uint64_t next_order_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::deque<Host> hosts_;
  std::map<std::string, std::size_t> host_names_;
  std::set<std::pair<std::size_t, std::size_t>> cuts_;
  std::uint16_t last_port_ = 10000;
  // What a cut path has swallowed, to be tried again when it is healed.
  std::map<std::pair<std::size_t, std::size_t>, std::vector<std::function<void()>>> swallowed_;
  std::vector<std::weak_ptr<Connection>> connections_;
  std::size_t prune_at_ = 64;  // how many connections there may be before dead ones are forgotten
};

}  // namespace lochos::sim
