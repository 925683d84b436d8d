// What stands behind a Pending<T>: a request under way, or one that failed before it was made.
// Thread-safe.
#pragma once

#include <memory>
#include <string>

#include "base/event_fd.h"
#include "node/local_link.h"

namespace lochos {

// Where an operation failed, for error text.
struct CallContext {
  const char* operation = "";
  std::string object;
  std::size_t sources = 0;  // of a reduce: what its answer's positions are positions in

  Error add_to(Error error) const {
    return std::move(error).with_operation(operation).with_object(object);
  }
};

class PendingState {
 public:
  PendingState(CallContext context, std::shared_ptr<LocalLink> link,
               std::shared_ptr<LocalRequest> request);
  PendingState(CallContext context, Error error);
  ~PendingState();  // cancels, or gives back what came
  PendingState(const PendingState&) = delete;
  PendingState& operator=(const PendingState&) = delete;

  bool ready();
  void cancel();
  Result<int> event_fd();
  // Blocks until ready and takes the result. REQUIRES: not called before.
  Result<LocalPayload> take();

  const std::shared_ptr<LocalLink>& link() const { return link_; }
  const CallContext& context() const { return context_; }

 private:
  const CallContext context_;
  const std::shared_ptr<LocalLink> link_;        // null: failed at the start
  const std::shared_ptr<LocalRequest> request_;  // null: failed at the start
  std::mutex mutex_;                             // guards what follows
  std::optional<Error> error_;
  std::optional<EventFd> failed_event_;  // readable from the beginning
  bool taken_ = false;
};

// Blocks until the request has a result and moves it out.
Result<LocalPayload> take_result(LocalLink& link, LocalRequest& request,
                                 const CallContext& context);

// The payload as a T. Errors: kProtocol for another kind of answer than the request has.
template <class T>
Result<T> expect(Result<LocalPayload> payload, const CallContext& context) {
  if (!payload) return fail(std::move(payload.error()));
  if (T* value = std::get_if<T>(&*payload)) return std::move(*value);
  return fail(context.add_to(Error(Errc::kProtocol, "the node sent an answer of another kind")));
}

// The pinned bytes of an answer. Errors: kProtocol if they do not lie in the pool.
Result<ObjectView> view_of(const std::shared_ptr<LocalLink>& link, const LocalView& view,
                           const CallContext& context);

}  // namespace lochos
