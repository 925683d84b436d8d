#include "transport/fabric/receive_pool.h"

namespace lochos::fabric {

Result<std::unique_ptr<ReceivePool>> ReceivePool::create(Device& device, std::size_t count,
                                                         std::size_t buffer_bytes) {
  std::unique_ptr<ReceivePool> pool(new ReceivePool);
  pool->buffer_bytes_ = buffer_bytes;
  const std::size_t bytes = count * buffer_bytes;
  pool->memory_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
  if (device.needs_local_registration()) {
    auto region = device.register_memory({pool->memory_.get(), bytes});
    if (!region) return fail(std::move(region).error());
    pool->region_ = std::move(*region);
  }
  pool->receives_.resize(count);
  for (std::size_t index = 0; index < count; ++index) {
    pool->receives_[index].pool = pool.get();
    pool->receives_[index].buffer = pool->memory_.get() + index * buffer_bytes;
  }
  return pool;
}

Status ReceivePool::attach(fid_ep* endpoint) {
  endpoint_ = endpoint;
  for (Receive& receive : receives_) {
    if (!post(receive)) return fail(Errc::kSystem, "the provider takes no receive buffers");
  }
  return {};
}

bool ReceivePool::repost(Receive& receive) {
  if (endpoint_ == nullptr) return false;
  const bool starved = posted_ == 0;
  post(receive);
  return starved;
}

bool ReceivePool::post(Receive& receive) {
  void* descriptor = region_ ? region_->descriptor() : nullptr;
  if (fi_recv(endpoint_, receive.buffer, buffer_bytes_, descriptor, 0, &receive.provider) != 0) {
    return false;
  }
  ++posted_;
  return true;
}

}  // namespace lochos::fabric
