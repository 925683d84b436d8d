// One reliable connection: an RC queue pair and the rdma_cm id that set it up. Engine thread only.
//
// Life: (resolving -> connecting | accepting) -> open -> draining -> dead. A queue pair is
// destroyed only after every accepted request has been returned to the caller; then kClosed is
// reported.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "transport/transport.h"
#include "transport/verbs/connection_manager.h"
#include "transport/verbs/handles.h"
#include "transport/verbs/rail.h"

namespace lochos::verbs {

class VerbsEndpoint final : public Endpoint {
 public:
  explicit VerbsEndpoint(VerbsRail& rail) : rail_(rail) {}
  ~VerbsEndpoint() override;

  std::size_t post(std::span<const WorkRequest> requests) override;
  void close() override;
  std::size_t outstanding() const override {
    return static_cast<std::size_t>(posted_ - delivered_);
  }
  std::string describe() const override;

  // --- Set-up. Outcomes of an outgoing connection become events of the rail; an incoming one that
  // fails leaves nothing behind.
  void connect(const SocketAddress& peer, Instant deadline);
  // Answers a connect request that was judged good. Errors: the request should be refused; `id` is
  // the caller's again.
  Status accept(IdHandle& id, const CmEvent& request, const Greeting& greeting, Instant deadline);
  void handle(const CmEvent& event);
  // The deadline has passed.
  void expire();

  bool is_setting_up() const { return state_ <= State::kAccepting; }
  bool is_incoming() const { return incoming_; }
  bool is_dead() const { return state_ == State::kDead; }
  Instant deadline() const { return deadline_; }
  // The caller has been told of this endpoint, and may now see its arrivals.
  void announce();

  // --- Data path, called by the transport.
  // One of our requests has come out of the queue.
  void end_request(const ibv_wc& entry);
  // Something arrived. Returns whether `completion` was filled; if not, it is kept back until
  // announce().
  bool receive(const ibv_wc& entry, Completion& completion);
  // Writes what has ended or was kept back; returns how many.
  std::size_t deliver(std::span<Completion> completions);
  bool is_deliverable() const { return delivered_ < ended_ || (announced_ && !kept_back_.empty()); }
  // REQUIRES: draining, and the completion queue was seen empty. Ends the endpoint if nothing is
  // outstanding any more, or if the device does not give it back in time.
  void finish_drain();

 private:
  enum class State { kResolving, kConnecting, kAccepting, kOpen, kDraining, kDead };

  // endpoint.cc
  Status create_queue_pair();
  Status to_init();
  Status to_ready(const CmEvent* request, std::optional<ibv_mtu> peer_mtu);
  Status modify(ibv_qp_attr& attributes, int mask, std::string_view step);
  Status check_path();
  rdma_conn_param connection_parameters(std::span<const std::byte> greeting) const;
  Status on_address_resolved();
  Status on_route_resolved();
  Status on_response(const CmEvent& event);
  void opened(const Hello& peer);
  void fail_setup(Error error);
  void begin_drain(Error error);
  void destroy_queue_pair();
  void die();
  Error decorate(Error error) const;

  // endpoint_datapath.cc
  std::size_t post_burst(std::span<const WorkRequest> requests);
  void fill(const WorkRequest& request, ibv_send_wr& wr, ibv_sge& element) const;
  void fail_with(const ibv_wc& entry);

  struct Slot {
    std::uint64_t context = 0;
    std::uint64_t bytes = 0;
    bool lazy = false;  // an inline send: its memory is the caller's already
  };

  // Constant after construction.
  VerbsRail& rail_;

  // Set-up.
  State state_ = State::kResolving;
  bool incoming_ = false;
  bool announced_ = false;
  Instant deadline_ = kNever;  // of the set-up, then of the drain
  SocketAddress peer_;
  std::optional<Hello> peer_hello_;
  IdHandle id_;
  QueuePairHandle queue_pair_;
  int gid_index_ = -1;
  int mtu_ = 0;
  std::optional<Error> end_;  // why it ends

  // Data path: a ring of requests by sequence number; delivered_ <= ended_ <= posted_.
  std::vector<Slot> ring_;
  std::uint64_t posted_ = 0;
  std::uint64_t ended_ = 0;
  std::uint64_t delivered_ = 0;
  std::uint64_t flushed_from_ = UINT64_MAX;  // requests from here on did not certainly happen
  std::vector<Completion> kept_back_;        // arrivals before announce()
};

}  // namespace lochos::verbs
