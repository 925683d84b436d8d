// One libfabric provider, opened: fabric, domain, and what the provider demands of its users.
// Engine thread only. Owns the domain; everything made from it must die first.
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "transport/fabric/fabric_transport.h"
#include "transport/fabric/handles.h"

namespace lochos::fabric {

// An Error from what a libfabric call returned (a negative errno, or a libfabric code above 255).
Error fabric_error(std::int64_t code, std::string_view what);

// Registered memory, with the descriptor that local operations need on some providers.
class FabricRegion final : public Region {
 public:
  FabricRegion(MemoryHandle handle, std::span<std::byte> memory, std::uint64_t remote_base);
  void* descriptor() const { return fi_mr_desc(handle_.get()); }

 private:
  const MemoryHandle handle_;
};

class Device {
 public:
  // Errors: kUnsupported with the list of providers that exist; kUnreachable if `options.local` is
  // no address of this host.
  static Result<std::unique_ptr<Device>> open(const FabricOptions& options);

  Result<std::unique_ptr<FabricRegion>> register_memory(std::span<std::byte> memory);
  Result<EventQueueHandle> open_event_queue() const;
  // `size` entries may wait to be read before the provider allocates or refuses.
  Result<CompletionQueueHandle> open_completion_queue(std::size_t size) const;
  // The descriptor by which to sleep on an event queue.
  static Result<int> wait_fd(fid_eq& queue);
  // The descriptors by which to sleep on a completion queue, with the events to wait for. They may
  // change whenever the queue was used.
  void wait_descriptors(fid_cq& queue, std::vector<pollfd>& descriptors) const;
  // A description of an endpoint from `local` (unspecified: any) to `remote` (null: none).
  InfoHandle describe_endpoint(const SocketAddress& local, const SocketAddress* remote) const;

  fid_fabric* fabric() const { return fabric_.get(); }
  fid_domain* domain() const { return domain_.get(); }
  const std::string& provider() const { return provider_; }
  // The provider moves bytes over plain TCP sockets that are ordinary descriptors of this process.
  bool uses_tcp_sockets() const { return provider_ == "tcp" || provider_ == "net"; }
  bool needs_local_registration() const { return (mr_mode_ & FI_MR_LOCAL) != 0; }
  bool shares_receives() const { return shares_receives_; }
  // Bytes of remote completion data: 8 carry the length beside the immediate, 4 do not.
  std::size_t completion_data_bytes() const { return info_->domain_attr->cq_data_size; }
  std::size_t inject_bytes() const { return info_->tx_attr->inject_size; }
  std::size_t transmit_depth() const { return info_->tx_attr->size; }
  std::size_t receive_depth() const { return info_->rx_attr->size; }
  std::uint64_t max_message_bytes() const { return info_->ep_attr->max_msg_size; }
  const fi_rx_attr& receive_attributes() const { return *info_->rx_attr; }

 private:
  Device() = default;

  InfoHandle info_;
  FabricHandle fabric_;
  DomainHandle domain_;
  std::string provider_;
  std::uint64_t mr_mode_ = 0;
  bool shares_receives_ = false;
  std::mt19937_64 keys_{std::random_device{}()};
};

}  // namespace lochos::fabric
