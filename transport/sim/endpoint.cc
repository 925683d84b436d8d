#include "transport/sim/endpoint.h"

#include <fmt/format.h>

#include "base/check.h"
#include "transport/sim/state.h"
#include "transport/sim/transport.h"

namespace lochos::sim {

std::size_t SimEndpoint::post(std::span<const WorkRequest> requests) {
  const Limits& limits = transport_.limits();
  std::size_t accepted = 0;
  Connection::End& end = connection_->ends[side_];
  while (state == State::kOpen && accepted < requests.size() && outstanding_ < limits.queue_depth) {
    const WorkRequest& request = requests[accepted++];
    const bool message = request.opcode == Opcode::kSend;
    LOCHOS_CHECK(request.length <=
                 (message ? limits.max_message_bytes : limits.max_transfer_bytes));
    Packet packet{.request = request, .sequence = next_sequence_++, .copy = {}};
    if (request.region == nullptr && request.length > 0) {
      LOCHOS_CHECK(message && request.length <= limits.inline_bytes);
      packet.copy.assign(request.local, request.local + request.length);
    }
    if (!message && request.length == 0) {
      // Names no memory, so it needs none: any place the peer has will do.
      packet.request.remote_address = 0;
      packet.request.remote_key = kVoidKey;
    }
    accepted_.emplace(packet.sequence, Accepted{request.context, request.length});
    ++outstanding_;
    end.waiting.push_back(std::move(packet));
  }
  if (accepted > 0) transport_.network().send(connection_, side_);
  return accepted;
}

void SimEndpoint::close() {
  if (state == State::kEnded) return;
  if (state == State::kConnecting) {
    transport_.failed(*this, Error(Errc::kClosed, "closed by this side"));
    return;
  }
  transport_.network().hang_up(connection_, side_, "the peer closed the connection");
  end(Error(Errc::kClosed, "closed by this side"));
}

void SimEndpoint::disappear() {
  Connection::End& end = connection_->ends[side_];
  if (end.endpoint != this) return;
  end.endpoint = nullptr;
  end.waiting.clear();
  end.travelling.clear();
}

void SimEndpoint::end(Error why) {
  disappear();
  if (!reason) reason = std::move(why);
  if (state == State::kConnecting) {
    transport_.failed(*this, *reason);
    return;
  }
  if (state != State::kOpen) return;  // opened() goes on from here
  state = State::kEnded;
  while (!accepted_.empty())
    complete(accepted_.begin()->first, Completion::Status::kFlushed);
  transport_.report_end_if_drained(*this);
}

void SimEndpoint::complete(std::uint64_t sequence, Completion::Status status) {
  const auto found = accepted_.find(sequence);
  if (found == accepted_.end()) return;
  transport_.push({.kind = Completion::Kind::kRequest,
                   .status = status,
                   .endpoint = this,
                   .context = found->second.context,
                   .bytes = found->second.bytes,
                   .message = {}},
                  {});
  accepted_.erase(found);
}

void SimEndpoint::arrive(Completion completion, std::vector<std::byte> message) {
  if (state != State::kOpen) {  // its owner does not know it yet
    early_.emplace_back(completion, std::move(message));
    return;
  }
  transport_.push(completion, std::move(message));
}

void SimEndpoint::opened() {
  state = State::kOpen;
  for (auto& [completion, message] : early_)
    transport_.push(completion, std::move(message));
  early_.clear();
  if (reason) end(*reason);
}

std::string SimEndpoint::describe() const {
  return fmt::format("sim {} {}", incoming ? "from" : "to", remote_.to_string());
}

}  // namespace lochos::sim
