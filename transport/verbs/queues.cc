#include "transport/verbs/queues.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>

#include "base/check.h"
#include "base/log.h"
#include "transport/verbs/errors.h"

namespace lochos::verbs {
namespace {

// Acknowledging an event takes a lock in the library; it may be done for many at once, but must be
// done before the queue is destroyed.
constexpr unsigned kAcknowledgeBatch = 64;

// An entry is about this large on today's devices; only used to say how much memory was needed.
constexpr std::uint64_t kEntryBytes = 64;

}  // namespace

CompletionQueue::CompletionQueue(std::shared_ptr<Device> device, CompletionChannelHandle channel,
                                 CompletionQueueHandle handle)
    : device_(std::move(device)), channel_(std::move(channel)), handle_(std::move(handle)) {}

CompletionQueue::~CompletionQueue() {
  if (unacknowledged_ > 0) ibv_ack_cq_events(handle_.get(), unacknowledged_);
}

Result<std::unique_ptr<CompletionQueue>> CompletionQueue::open(std::shared_ptr<Device> device,
                                                               std::size_t entries) {
  auto channel = check_null<CompletionChannelHandle>(ibv_create_comp_channel(device->context()),
                                                     "ibv_create_comp_channel");
  if (!channel) return fail(std::move(channel.error()));
  const int flags = fcntl((*channel)->fd, F_GETFL);
  if (auto done = check_minus_one(fcntl((*channel)->fd, F_SETFL, flags | O_NONBLOCK),
                                  "making the completion channel non-blocking");
      !done) {
    return fail(std::move(done.error()));
  }
  const std::size_t limit = static_cast<std::size_t>(device->attributes().max_cqe);
  const std::size_t wanted = std::min(entries, limit);
  CompletionQueueHandle handle(
      ibv_create_cq(device->context(), static_cast<int>(wanted), nullptr, channel->get(), 0));
  if (!handle) {
    return fail(pinning_error(errno, "creating a completion queue", wanted * kEntryBytes));
  }
  return std::unique_ptr<CompletionQueue>(
      new CompletionQueue(std::move(device), std::move(*channel), std::move(handle)));
}

Status CompletionQueue::reserve(std::size_t entries) {
  const std::size_t needed = reserved_ + entries;
  const auto capacity = static_cast<std::size_t>(handle_->cqe);
  if (needed > capacity) {
    const auto limit = static_cast<std::size_t>(device_->attributes().max_cqe);
    const std::size_t wanted = std::min(limit, std::max(needed, 2 * capacity));
    const int error =
        wanted < needed ? ENOMEM : ibv_resize_cq(handle_.get(), static_cast<int>(wanted));
    if (error != 0) {
      return fail(Error(Errc::kNoSpace,
                        fmt::format("the completion queue of {} has {} entries (device limit {}) "
                                    "and {} are needed",
                                    device_->name(), capacity, limit, needed))
                      .with_cause("too many connections for their queue depth")
                      .with_fix("a smaller queue depth, or fewer peers"));
    }
  }
  reserved_ = needed;
  return {};
}

void CompletionQueue::arm(Wake wake) {
  if (armed_ && *armed_ >= wake) return;
  const int solicited_only = wake == Wake::kArrivals ? 1 : 0;
  if (auto done = check_errno_returned(ibv_req_notify_cq(handle_.get(), solicited_only),
                                       "ibv_req_notify_cq");
      !done) {
    log_error("{}: {}", device_->to_string(), done.error().to_string());
    return;
  }
  armed_ = wake;
}

void CompletionQueue::consume_event() {
  if (!armed_) return;
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  if (ibv_get_cq_event(channel_.get(), &queue, &context) != 0) return;  // not yet
  armed_.reset();
  if (++unacknowledged_ == kAcknowledgeBatch) {
    ibv_ack_cq_events(handle_.get(), unacknowledged_);
    unacknowledged_ = 0;
  }
}

void Unmap::operator()(std::byte* memory) const {
  munmap(memory, bytes);
}

Result<std::unique_ptr<ReceiveQueue>> ReceiveQueue::open(const std::shared_ptr<Device>& device,
                                                         std::size_t count,
                                                         std::size_t buffer_bytes) {
  if (device->attributes().max_srq <= 0) {
    return fail(Errc::kUnsupported,
                fmt::format("{} has no shared receive queues", device->to_string()));
  }
  std::unique_ptr<ReceiveQueue> queue(new ReceiveQueue);
  queue->count_ = std::min(count, static_cast<std::size_t>(device->attributes().max_srq_wr));
  queue->buffer_bytes_ = buffer_bytes;
  const std::size_t bytes = queue->count_ * buffer_bytes;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return fail(system_error(errno, "mapping receive buffers"));
  queue->memory_ = {static_cast<std::byte*>(memory), Unmap{bytes}};
  auto region = VerbsRegion::open(device, {queue->memory_.get(), bytes});
  if (!region) return fail(std::move(region.error()).with_operation("opening receive buffers"));
  queue->region_ = std::move(*region);

  ibv_srq_init_attr attributes{};
  attributes.attr.max_wr = static_cast<std::uint32_t>(queue->count_);
  attributes.attr.max_sge = 1;
  queue->handle_.reset(ibv_create_srq(device->domain(), &attributes));
  if (!queue->handle_) {
    return fail(
        pinning_error(errno, "creating a shared receive queue", queue->count_ * kEntryBytes));
  }
  queue->elements_.resize(queue->count_);
  queue->requests_.resize(queue->count_);
  for (std::uint32_t i = 0; i < queue->count_; ++i) {
    queue->elements_[i] = {
        .addr = reinterpret_cast<std::uint64_t>(queue->memory_.get() + i * buffer_bytes),
        .length = static_cast<std::uint32_t>(buffer_bytes),
        .lkey = queue->region_->local_key()};
    queue->requests_[i] = {
        .wr_id = kReceiveBit | i, .next = nullptr, .sg_list = &queue->elements_[i], .num_sge = 1};
    queue->give_back(i);
  }
  queue->post_returned();
  return queue;
}

void ReceiveQueue::post_returned() {
  if (returned_.empty()) return;
  for (std::size_t i = 0; i + 1 < returned_.size(); ++i) {
    requests_[returned_[i]].next = &requests_[returned_[i + 1]];
  }
  requests_[returned_.back()].next = nullptr;
  ibv_recv_wr* refused = nullptr;
  if (auto done = check_errno_returned(
          ibv_post_srq_recv(handle_.get(), &requests_[returned_.front()], &refused),
          "ibv_post_srq_recv");
      !done) {
    log_error("receive buffers are lost: {}", done.error().to_string());
  }
  returned_.clear();
}

}  // namespace lochos::verbs
