// One connection of the libfabric backend. Engine thread only; owned by its rail.
//
// Life: kConnecting until both greetings are exchanged; kReady until the owner has seen
// kEstablished; kOpen; kDraining once the provider's endpoint is closed (nobody can write any more)
// while its completions are read out; kDrained when only completions that the owner has not taken
// yet are left. endpoint.cc is set-up and end, endpoint_datapath.cc is post and read.
//
// Each endpoint has a completion queue of its own: providers do not say which endpoint a peer's
// write arrived on, and an idle endpoint then costs nothing when others are polled.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "transport/fabric/device.h"
#include "transport/fabric/greeting.h"
#include "transport/fabric/receive_pool.h"
#include "transport/transport.h"

namespace lochos::fabric {

class Rail;
class FabricEndpoint;

// One accepted request. Its address is the context of the provider's completion.
struct Slot {
  enum class State : std::uint8_t { kFree, kPosted, kFinished };

  fi_context2 provider;  // the provider's scratch memory; first member
  FabricEndpoint* endpoint = nullptr;
  Slot* next = nullptr;  // in the free list or in the rail's list of finished requests
  std::uint64_t context = 0;
  std::uint64_t bytes = 0;
  std::uint64_t sequence = 0;
  std::byte* copy = nullptr;  // where an inline message of this request is kept
  State state = State::kFree;
  Completion::Status status = Completion::Status::kDone;
};

class FabricEndpoint final : public Endpoint {
 public:
  enum class State : std::uint8_t { kConnecting, kReady, kOpen, kDraining, kDrained };

  FabricEndpoint(Rail& rail, bool incoming, const SocketAddress& remote, Instant deadline);
  ~FabricEndpoint() override;

  std::size_t post(std::span<const WorkRequest> requests) override;
  void close() override;
  std::size_t outstanding() const override { return outstanding_; }
  std::string describe() const override;

  // Set-up, by the rail. `info` says whence and where to.
  Status open(fi_info& info);
  Status start_connecting(std::span<const std::byte> greeting);
  Status start_accepting(std::span<const std::byte> greeting);
  // What the other side said of itself.
  void expect(const Greeting& peer) { peer_ = peer; }
  // Both greetings are exchanged.
  void established();
  // It will not be established.
  void abandon();
  // The owner has seen kEstablished: it may post from now on.
  void opened();
  // Closes the provider's endpoint; what it still reports is read out by drain().
  void retire(Error reason);

  // Reads completions of the provider; -FI_EAGAIN when there are none.
  ssize_t read(std::span<fi_cq_data_entry> entries);
  // Reads one failed request. Returns an error if the endpoint is broken by it.
  std::optional<Error> read_failure();
  // Turns what the provider reported into a completion. False if the owner need not know.
  bool translate(const fi_cq_data_entry& entry, Completion& completion);
  // The provider has reported all it will: what is outstanding is flushed. Then state kDrained.
  void flush();
  // The owner takes a finished request's completion.
  Completion take(Slot& slot);

  State state() const { return state_; }
  bool incoming() const { return incoming_; }
  Instant deadline() const { return deadline_; }
  const SocketAddress& remote() const { return remote_; }
  const Greeting& peer() const { return peer_; }
  Error& reason() { return *reason_; }
  fid_cq* completion_queue() const { return queue_.get(); }

  // The rail's notes about this endpoint; see rail.h.
  bool hot = false;
  bool touched = false;
  bool end_reported = false;
  std::vector<pollfd> descriptors;  // what the rail's epoll set has of it

 private:
  bool post_one(const WorkRequest& request);
  bool inject(const WorkRequest& request);
  ssize_t submit(const WorkRequest& request, Slot& slot);
  ssize_t submit_send(const WorkRequest& request, Slot& slot);
  ssize_t submit_write(const WorkRequest& request, Slot& slot);
  std::uint64_t completion_data(const WorkRequest& request) const;
  void finish(Slot& slot, Completion::Status status);
  Slot& acquire(const WorkRequest& request);
  void release(Slot& slot);
  void break_off(std::int64_t code, std::string_view what);
  Status make_slots();

  // Constant after construction.
  Rail& rail_;
  const bool incoming_;
  const SocketAddress remote_;
  const Instant deadline_;

  // Destroyed in reverse: the provider's endpoint before its queue, both before the memory they
  // use.
  std::unique_ptr<std::byte[]> copies_;
  std::unique_ptr<FabricRegion> copies_region_;  // null unless the provider demands it
  std::vector<Slot> slots_;
  std::unique_ptr<ReceivePool> own_receives_;  // null if the provider shares receives
  CompletionQueueHandle queue_;
  EndpointHandle endpoint_;

  State state_ = State::kConnecting;
  Greeting peer_;
  std::optional<Error> reason_;
  int descriptor_hint_ = -1;
  Slot* free_ = nullptr;
  std::size_t outstanding_ = 0;
  std::uint64_t next_sequence_ = 1;
  std::uint64_t confirmed_sequence_ = 0;
};

}  // namespace lochos::fabric
