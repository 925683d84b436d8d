// The libfabric backend's Transport: one provider, its endpoints and its listener. Engine thread
// only.
//
// Sleeping: the descriptors of all queues sit in one epoll set. Whether they can be slept on, and
// with which events, must be asked after each use: that is to settle an endpoint. A few endpoints
// are polled directly and settled by arm() if they were touched since the last time; with more of
// them only the "hot" ones are polled, and an endpoint that has nothing more is settled at once.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <vector>

#include "base/unique_fd.h"
#include "transport/fabric/device.h"
#include "transport/fabric/endpoint.h"
#include "transport/fabric/listener.h"
#include "transport/fabric/receive_pool.h"

namespace lochos::fabric {

class Rail final : public Transport {
 public:
  static Result<std::unique_ptr<Transport>> open(const FabricOptions& options);
  ~Rail() override;

  TransportKind kind() const override { return TransportKind::kTcp; }
  std::string describe() const override;
  const Limits& limits() const override { return limits_; }
  Result<std::unique_ptr<Region>> register_memory(std::span<std::byte> memory) override;
  Result<SocketAddress> listen(const SocketAddress& address) override;
  Endpoint* connect(const SocketAddress& address, Instant deadline) override;
  void set_hello(const Hello& hello) override;
  std::size_t poll(std::span<Completion> completions) override;
  std::size_t poll_connections(Instant now, std::span<ConnectionEvent> events) override;
  int event_fd() const override { return epoll_.get(); }
  bool arm() override;
  Instant next_deadline() const override;

  // For the endpoints and the listener.
  Device& device() { return *device_; }
  const FabricOptions& options() const { return options_; }
  const Hello& hello() const { return options_.hello; }
  fid_eq* event_queue() const { return event_queue_.get(); }
  int epoll_fd() const { return epoll_.get(); }
  fid_ep* shared_receives() const { return shared_endpoint_.get(); }
  // Makes the endpoint for a connection request whose greeting was accepted.
  Status accept(fi_info& request, const Greeting& peer, const SocketAddress& remote, Instant now);
  void watch(FabricEndpoint& endpoint);
  void forget_descriptors(FabricEndpoint& endpoint);
  void unwatch(FabricEndpoint& endpoint);
  void touch(FabricEndpoint& endpoint);
  void finished(Slot& slot);
  // The end of an endpoint that was still connecting.
  void connecting_failed(FabricEndpoint& endpoint, Error error);
  void repost_later(Receive& receive) { taken_receives_.push_back(&receive); }

 private:
  Rail(const FabricOptions& options, std::unique_ptr<Device> device);
  Status open_queues();
  std::array<std::byte, kGreetingBytes> greeting_bytes() const;

  // The turn of poll().
  void give_back_receives();
  void bury();
  void begin_round();
  bool read_next_endpoint();
  void harvest();
  void make_hot(FabricEndpoint& endpoint);
  void make_all_hot();
  // Whether the endpoint can be slept on; if so, epoll knows how.
  bool settle(FabricEndpoint& endpoint);
  void report_end_if_drained(FabricEndpoint& endpoint);
  bool polls_directly() const;

  // The turn of poll_connections().
  bool read_event_queue();
  void on_event(std::uint32_t event, const fi_eq_cm_entry& entry, std::span<const std::byte> data);
  void on_event_error();
  void on_connected(FabricEndpoint& endpoint, std::span<const std::byte> data);
  void on_shutdown(FabricEndpoint& endpoint, int error, std::span<const std::byte> data);
  void expire(Instant now);

  // Constant after construction, except the hello.
  FabricOptions options_;
  const std::unique_ptr<Device> device_;
  Limits limits_;
  UniqueFd epoll_;
  EventQueueHandle event_queue_;
  std::array<std::byte, 8> void_memory_{};
  std::unique_ptr<FabricRegion> void_region_;
  std::unique_ptr<ReceivePool> shared_pool_;  // null unless the provider shares receives
  EndpointHandle shared_endpoint_;

  std::unique_ptr<Listener> listener_;
  std::vector<std::unique_ptr<FabricEndpoint>> endpoints_;
  std::vector<std::unique_ptr<FabricEndpoint>> graveyard_;  // freed by the next poll()
  std::vector<FabricEndpoint*> connecting_;
  std::vector<FabricEndpoint*> watched_;  // open or draining
  std::vector<FabricEndpoint*> hot_;
  std::vector<FabricEndpoint*> touched_;
  std::vector<pollfd> wanted_;  // settle()'s, kept to save allocations
  std::vector<FabricEndpoint*> round_;
  std::size_t round_next_ = 0;

  // What the provider reported about `staged_endpoint_` and poll() has not returned yet.
  std::vector<fi_cq_data_entry> staged_;
  std::size_t staged_next_ = 0;
  std::size_t staged_count_ = 0;
  FabricEndpoint* staged_endpoint_ = nullptr;
  Slot* first_finished_ = nullptr;
  Slot* last_finished_ = nullptr;
  std::vector<Receive*> taken_receives_;  // their messages were returned by the last poll()

  std::deque<ConnectionEvent> events_;
  Instant next_connection_check_ = Instant::min();
  std::size_t turns_since_harvest_ = 0;
  bool armed_ = false;
  bool connections_ready_ = false;
};

}  // namespace lochos::fabric
