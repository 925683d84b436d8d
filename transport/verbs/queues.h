// What all endpoints of one verbs transport share: the completion queue that reports everything,
// and the receive queue that feeds messages and immediates. Engine thread only.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "transport/verbs/device.h"
#include "transport/verbs/handles.h"

namespace lochos::verbs {

// One completion queue with its event channel. Its capacity is reserved before use, so that it can
// never overrun: an overrun would lose completions and break every queue pair on it.
class CompletionQueue {
 public:
  // Errors: kPermission (locked memory), kSystem.
  static Result<std::unique_ptr<CompletionQueue>> open(std::shared_ptr<Device> device,
                                                       std::size_t entries);
  ~CompletionQueue();

  // Makes room for `entries` more, growing the queue if needed. Errors: kNoSpace when the device
  // cannot hold that many; the message has its limit.
  Status reserve(std::size_t entries);
  void release(std::size_t entries) { reserved_ -= entries; }

  // Takes up to `completions.size()` entries. Negative: the device is broken.
  int poll(std::span<ibv_wc> completions) {
    return ibv_poll_cq(handle_.get(), static_cast<int>(completions.size()), completions.data());
  }

  // What should raise the event that arm() asks for.
  enum class Wake : std::uint8_t {
    kArrivals,    // a peer's message or immediate
    kEverything,  // also the end of one of our own requests
  };
  // Asks for one event on fd() when the next entry comes. Entries that came before may have gone
  // unnoticed: poll once more before sleeping.
  void arm(Wake wake);
  // Takes the event that arm() asked for, if it has come.
  void consume_event();
  int fd() const { return channel_->fd; }
  ibv_cq* handle() const { return handle_.get(); }

 private:
  CompletionQueue(std::shared_ptr<Device> device, CompletionChannelHandle channel,
                  CompletionQueueHandle handle);

  const std::shared_ptr<Device> device_;
  const CompletionChannelHandle channel_;
  const CompletionQueueHandle handle_;
  std::size_t reserved_ = 0;
  std::optional<Wake> armed_;
  unsigned unacknowledged_ = 0;
};

struct Unmap {
  std::size_t bytes = 0;
  void operator()(std::byte* memory) const;
};

// Receive buffers that any endpoint's messages land in. Immediates consume an entry too, but not
// its bytes.
class ReceiveQueue {
 public:
  // Errors: kPermission (locked memory), kUnsupported (no shared receive queues), kSystem.
  static Result<std::unique_ptr<ReceiveQueue>> open(const std::shared_ptr<Device>& device,
                                                    std::size_t count, std::size_t buffer_bytes);

  std::size_t count() const { return count_; }
  ibv_srq* handle() const { return handle_.get(); }
  std::span<const std::byte> buffer(std::uint32_t index, std::size_t bytes) const {
    return {memory_.get() + index * buffer_bytes_, bytes};
  }

  // REQUIRES: `data` is the beginning of a buffer.
  std::uint32_t index_of(const std::byte* data) const {
    return static_cast<std::uint32_t>(static_cast<std::size_t>(data - memory_.get()) /
                                      buffer_bytes_);
  }

  // The buffer is free again; post_returned() hands all such buffers to the device in one call.
  void give_back(std::uint32_t index) { returned_.push_back(index); }
  void post_returned();

 private:
  ReceiveQueue() = default;

  std::size_t count_ = 0;
  std::size_t buffer_bytes_ = 0;
  // Order matters: the queue is destroyed before the memory that it may write to.
  std::unique_ptr<std::byte, Unmap> memory_;
  std::unique_ptr<VerbsRegion> region_;
  ReceiveQueueHandle handle_;
  std::vector<std::uint32_t> returned_;
  std::vector<ibv_sge> elements_;      // one for each buffer, built once
  std::vector<ibv_recv_wr> requests_;  // likewise; only `next` changes
};

// wr_id of a receive: this bit and the buffer's index. Sends carry their sequence number, which
// never gets that far.
inline constexpr std::uint64_t kReceiveBit = 1ULL << 63;

}  // namespace lochos::verbs
