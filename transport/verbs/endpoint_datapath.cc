// Posting requests and turning queue entries into completions.
#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/log.h"
#include "transport/verbs/endpoint.h"

namespace lochos::verbs {
namespace {

ibv_wr_opcode wire_opcode(Opcode opcode) {
  switch (opcode) {
    case Opcode::kSend:
      return IBV_WR_SEND;
    case Opcode::kWrite:
      return IBV_WR_RDMA_WRITE;
    case Opcode::kWriteImmediate:
      return IBV_WR_RDMA_WRITE_WITH_IMM;
    case Opcode::kRead:
      return IBV_WR_RDMA_READ;
  }
  return IBV_WR_SEND;
}

// What a failed entry says about the connection.
Error explain(const ibv_wc& entry, int retry_count) {
  switch (entry.status) {
    case IBV_WC_RETRY_EXC_ERR:
      return Error(Errc::kConnectionLost,
                   fmt::format("the peer's NIC did not acknowledge after {} retries", retry_count))
          .with_cause("the peer's host is down, the link is cut, or its address (GID) changed");
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return Error(Errc::kConnectionLost, "the peer had no receive buffer free for too long")
          .with_cause("the peer's process does not read");
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_OP_ERR:
      return Error(Errc::kConnectionLost, "the peer's NIC refused access to the remote memory")
          .with_cause("the remote region was deregistered, or address and key do not fit");
    case IBV_WC_LOC_PROT_ERR:
      return Error(Errc::kConnectionLost, "the NIC refused access to local memory")
          .with_cause("a request names memory outside its region");
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_LOC_LEN_ERR:
      return Error(Errc::kConnectionLost, "a message is longer than the receiver's buffers")
          .with_cause("the two sides were given different limits");
    case IBV_WC_WR_FLUSH_ERR:
      return Error(Errc::kConnectionLost, "the connection broke");
    default:
      return Error(Errc::kConnectionLost,
                   fmt::format("the NIC reports '{}' (vendor code {:#x})",
                               ibv_wc_status_str(entry.status), entry.vendor_err));
  }
}

}  // namespace

std::size_t VerbsEndpoint::post(std::span<const WorkRequest> requests) {
  if (state_ != State::kOpen) return 0;
  const std::size_t count = std::min(requests.size(), ring_.size() - outstanding());
  std::size_t accepted = 0;
  while (accepted < count) {
    const std::size_t burst = std::min(count - accepted, kBurst);
    const std::size_t taken = post_burst(requests.subspan(accepted, burst));
    accepted += taken;
    if (taken < burst) break;
  }
  return accepted;
}

void VerbsEndpoint::fill(const WorkRequest& request, ibv_send_wr& wr, ibv_sge& element) const {
  const bool inlined =
      request.length <= rail_.limits.inline_bytes && request.opcode != Opcode::kRead;
  LOCHOS_CHECK(request.region != nullptr || inlined);
  LOCHOS_CHECK(request.length <= (request.opcode == Opcode::kSend
                                      ? rail_.limits.max_message_bytes
                                      : rail_.limits.max_transfer_bytes));
  element.addr = reinterpret_cast<std::uint64_t>(request.local);
  element.length = static_cast<std::uint32_t>(request.length);
  element.lkey =
      request.region == nullptr ? 0 : static_cast<const VerbsRegion*>(request.region)->local_key();
  wr.sg_list = &element;
  wr.num_sge = request.length > 0 ? 1 : 0;
  wr.opcode = wire_opcode(request.opcode);
  // Solicited: what arrives wakes the peer even if it does not listen for the end of its own sends.
  wr.send_flags = IBV_SEND_SOLICITED | (inlined ? static_cast<unsigned>(IBV_SEND_INLINE) : 0U);
  wr.imm_data = htonl(request.immediate);
  wr.wr.rdma.remote_addr = request.remote_address;
  wr.wr.rdma.rkey = static_cast<std::uint32_t>(request.remote_key);
}

// The last request of a burst is always signalled: it stands for those before it, and an endpoint
// whose requests all went well is never left with one that nothing will report.
std::size_t VerbsEndpoint::post_burst(std::span<const WorkRequest> requests) {
  for (std::size_t i = 0; i < requests.size(); ++i) {
    ibv_send_wr& wr = rail_.send_requests[i];
    fill(requests[i], wr, rail_.send_elements[i]);
    wr.wr_id = posted_ + i;
    wr.next = i + 1 < requests.size() ? &rail_.send_requests[i + 1] : nullptr;
    ring_[(posted_ + i) % ring_.size()] = {
        .context = requests[i].context,
        .bytes = requests[i].length,
        .lazy = wr.opcode == IBV_WR_SEND && (wr.send_flags & IBV_SEND_INLINE) != 0};
  }
  rail_.send_requests[requests.size() - 1].send_flags |= IBV_SEND_SIGNALED;
  ibv_send_wr* refused = nullptr;
  const int error = ibv_post_send(queue_pair_.get(), rail_.send_requests.data(), &refused);
  const std::size_t taken =
      error == 0 ? requests.size() : static_cast<std::size_t>(refused - rail_.send_requests.data());
  for (std::size_t i = 0; i < taken; ++i, ++posted_) {
    ++rail_.outstanding;
    if (ring_[posted_ % ring_.size()].lazy) ++rail_.outstanding_lazy;
  }
  if (error != 0) {
    // The queue has room by our own count, so this queue pair or its device is broken.
    begin_drain(Error(Errc::kConnectionLost, system_error(error, "ibv_post_send").message()));
  }
  return taken;
}

void VerbsEndpoint::end_request(const ibv_wc& entry) {
  if (entry.wr_id < ended_) return;  // given up already by finish_drain()
  LOCHOS_CHECK(entry.wr_id < posted_);
  ended_ = entry.wr_id + 1;
  if (entry.status != IBV_WC_SUCCESS) {
    flushed_from_ = std::min(flushed_from_, entry.wr_id);
    fail_with(entry);
  }
  rail_.deliverable.push_back(this);
}

void VerbsEndpoint::fail_with(const ibv_wc& entry) {
  if (state_ == State::kOpen) begin_drain(explain(entry, rail_.options.retry_count));
}

bool VerbsEndpoint::receive(const ibv_wc& entry, Completion& completion) {
  const auto buffer = static_cast<std::uint32_t>(entry.wr_id & ~kReceiveBit);
  if (entry.status != IBV_WC_SUCCESS) {
    rail_.receives->give_back(buffer);
    fail_with(entry);
    return false;
  }
  Completion arrival;
  arrival.endpoint = this;
  arrival.bytes = entry.byte_len;
  if (entry.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
    arrival.kind = Completion::Kind::kImmediate;
    arrival.immediate = ntohl(entry.imm_data);
    rail_.receives->give_back(buffer);
  } else {
    arrival.kind = Completion::Kind::kMessage;
    arrival.message = rail_.receives->buffer(buffer, entry.byte_len);
  }
  if (!announced_ || !kept_back_.empty()) {
    kept_back_.push_back(arrival);
    return false;
  }
  completion = arrival;
  return true;
}

std::size_t VerbsEndpoint::deliver(std::span<Completion> completions) {
  std::size_t count = 0;
  if (announced_ && !kept_back_.empty()) {
    count = std::min(kept_back_.size(), completions.size());
    std::copy_n(kept_back_.begin(), count, completions.begin());
    kept_back_.erase(kept_back_.begin(), kept_back_.begin() + static_cast<std::ptrdiff_t>(count));
  }
  for (; delivered_ < ended_ && count < completions.size(); ++delivered_, ++count) {
    const Slot& slot = ring_[delivered_ % ring_.size()];
    --rail_.outstanding;
    if (slot.lazy) --rail_.outstanding_lazy;
    Completion& completion = completions[count];
    completion = {};
    completion.status =
        delivered_ < flushed_from_ ? Completion::Status::kDone : Completion::Status::kFlushed;
    completion.endpoint = this;
    completion.context = slot.context;
    completion.bytes = slot.bytes;
  }
  return count;
}

}  // namespace lochos::verbs
