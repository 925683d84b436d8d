// How the calls of the public API are made over any backend: send, again if need be, and wait.
// Included by the .cc files of the API only. Thread-safe functions of their arguments.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "node/local_link.h"
#include "node/pending.h"
#include "node/store.h"
#include "node/store_backend.h"

namespace lochos::store_call {

// The time that an operation has, as a deadline and as what is left of it.
class Deadline {
 public:
  explicit Deadline(Duration timeout)
      : at_(saturating_add(now(), std::max(timeout, Duration::zero()))) {}
  Instant at() const { return at_; }
  Duration left() const {
    return at_ == kNever ? kNoTimeout : std::max(at_ - now(), Duration::zero());
  }

 private:
  static Instant now() { return std::chrono::steady_clock::now(); }
  Instant at_;
};

struct Started {
  std::shared_ptr<LocalLink> link;
  std::shared_ptr<LocalRequest> request;
};

// Sends a message; once more, over a new connection, if the old one proves to be dead and the node
// cannot have seen it.
template <class Message>
Result<Started> start(StoreBackend& backend, const CallContext& context, const Deadline& deadline,
                      Message message) {
  // It is moved from on the second and last turn only. NOLINTBEGIN(bugprone-use-after-move)
  for (bool again = true;; again = false) {
    auto link = backend.link(deadline.at());
    if (!link) return fail(context.add_to(std::move(link.error())));
    if constexpr (requires { message.timeout; }) message.timeout = deadline.left();
    LocalMessage copy = again ? LocalMessage(message) : LocalMessage(std::move(message));
    auto request = (*link)->start(std::move(copy), deadline.at());
    if (request) return Started{std::move(*link), std::move(*request)};
    if (!again || request.error().code() != Errc::kConnectionLost) {
      return fail(context.add_to(std::move(request.error())));
    }
  }
  // NOLINTEND(bugprone-use-after-move)
}

// Sends a message and waits for its answer.
template <class Answer, class Message>
Result<Answer> call(StoreBackend& backend, const CallContext& context, const Deadline& deadline,
                    Message message) {
  auto started = start(backend, context, deadline, std::move(message));
  if (!started) return fail(std::move(started.error()));
  return expect<Answer>(take_result(*started->link, *started->request, context), context);
}

inline Status without_value(Result<LocalDone> done) {
  if (!done) return fail(std::move(done.error()));
  return {};
}

}  // namespace lochos::store_call
