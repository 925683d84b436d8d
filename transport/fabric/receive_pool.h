// Buffers posted to receive messages into: one pool for all endpoints where the provider shares
// receives, else one an endpoint. Engine thread only. Must outlive the endpoint it posts to.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/error.h"
#include "transport/fabric/device.h"

namespace lochos::fabric {

class ReceivePool;

// One posted buffer. Its address is the context of the provider's completion.
struct Receive {
  fi_context2 provider;  // the provider's scratch memory; first member
  ReceivePool* pool;
  std::byte* buffer;
};

class ReceivePool {
 public:
  static Result<std::unique_ptr<ReceivePool>> create(Device& device, std::size_t count,
                                                     std::size_t buffer_bytes);

  // Posts every buffer to `endpoint`, which the pool uses from now on until detach().
  Status attach(fid_ep* endpoint);
  void detach() { endpoint_ = nullptr; }

  // A completion has taken `receive` out of the provider's hands.
  void taken(Receive&) { --posted_; }
  // Gives a buffer back to the provider. Returns whether the provider had run out of buffers, in
  // which case endpoints may be stuck with a message that they could not place.
  bool repost(Receive& receive);

  std::size_t buffer_bytes() const { return buffer_bytes_; }

 private:
  ReceivePool() = default;
  bool post(Receive& receive);

  std::size_t buffer_bytes_ = 0;
  std::unique_ptr<std::byte[]> memory_;
  std::unique_ptr<FabricRegion> region_;  // null unless the provider demands it
  std::vector<Receive> receives_;
  fid_ep* endpoint_ = nullptr;
  std::size_t posted_ = 0;
};

}  // namespace lochos::fabric
