// One end of a simulated connection. Single-threaded; owned by its transport.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "transport/transport.h"

namespace lochos::sim {

class SimEndpoint;
class SimTransport;

// Every host has memory of length 0 under this key.
inline constexpr std::uint64_t kVoidKey = 0;

// A request on its way: waiting for the interface, being sent, or sent and not yet delivered.
struct Packet {
  WorkRequest request;
  std::uint64_t sequence = 0;
  std::vector<std::byte> copy;  // what post() copied of a message without a region
  bool read_response = false;   // made by the network, for a read of the other side
  std::uint64_t sent_bytes = 0;

  std::uint64_t bytes_to_send() const {
    return request.opcode == Opcode::kRead && !read_response ? 0 : request.length;
  }
};

// Two ends and what travels between them. Ends disappear one by one; whatever still travels holds
// the connection alive and finds nobody there.
struct Connection {
  struct End {
    SimEndpoint* endpoint = nullptr;  // null once closed, lost or killed
    std::size_t host = 0;
    // Of this end's sending direction:
    std::deque<Packet> waiting;     // in the order of posting; the first may be partly sent
    std::deque<Packet> travelling;  // sent whole, not delivered
    std::uint64_t bytes_in_flight = 0;
    std::uint64_t undelivered = 0;     // arrived whole, but the peer had no buffer for a message
    std::uint64_t withheld_bytes = 0;  // arrived behind those
    Instant last_arrival = Instant::min();
    Instant silent_since = kNever;  // the path swallows what is sent since then
    bool queued = false;            // in its host's list of senders
  };
  End ends[2];  // 0 connected, 1 accepted
};

class SimEndpoint final : public Endpoint {
 public:
  enum class State : std::uint8_t { kConnecting, kReady, kOpen, kEnded };

  SimEndpoint(SimTransport& transport, std::shared_ptr<Connection> connection, int side,
              const SocketAddress& remote)
      : transport_(transport), connection_(std::move(connection)), side_(side), remote_(remote) {}
  ~SimEndpoint() override { disappear(); }

  std::size_t post(std::span<const WorkRequest> requests) override;
  void close() override;
  std::size_t outstanding() const override { return outstanding_; }
  std::string describe() const override;

  // Nothing reaches this end any more; what it had posted is forgotten by the network.
  void disappear();
  // The connection is over: requests are flushed, the owner will hear `reason`.
  void end(Error reason);
  // A request is done.
  void complete(std::uint64_t sequence, Completion::Status status);
  // Something came from the peer.
  void arrive(Completion completion, std::vector<std::byte> message);
  void opened();
  // The owner takes the completion of a request.
  void taken() { --outstanding_; }
  bool is_outstanding(std::uint64_t sequence) const { return accepted_.contains(sequence); }

  SimTransport& transport() { return transport_; }
  const std::shared_ptr<Connection>& connection() const { return connection_; }
  int side() const { return side_; }
  const SocketAddress& remote() const { return remote_; }

  State state = State::kConnecting;
  bool incoming = false;
  Hello peer;
  std::optional<Error> reason;
  bool end_reported = false;

 private:
  struct Accepted {
    std::uint64_t context;
    std::uint64_t bytes;
  };

  SimTransport& transport_;
  const std::shared_ptr<Connection> connection_;
  const int side_;
  const SocketAddress remote_;
  std::map<std::uint64_t, Accepted> accepted_;  // by sequence; not completed
  std::size_t outstanding_ = 0;                 // accepted and completion not taken
  std::uint64_t next_sequence_ = 0;
  // What came before the owner saw kEstablished.
  std::vector<std::pair<Completion, std::vector<std::byte>>> early_;
};

}  // namespace lochos::sim
