// One way from a Store to its engine, for as long as it lasts: a socket connection, or the queue of
// an engine in this process. Thread-safe.
//
// Views, writers and pending operations share the link they were made with; so its pool stays
// mapped while any of them lives, also when the engine is gone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/error.h"
#include "node/local_messages.h"
#include "node/local_requests.h"

namespace lochos {

class LocalLink {
 public:
  enum class Until { kResult, kProgress };  // kProgress: a result or new progress

  virtual ~LocalLink() = default;

  virtual bool alive() const = 0;
  // For error text: who is at the other end.
  virtual std::string describe() const = 0;

  // Sends a message that is answered; its request number is filled in. Errors: kConnectionLost or
  // kClosed (the engine has not seen the message), kInvalidArgument, kTimedOut (no room to send).
  virtual Result<std::shared_ptr<LocalRequest>> start(LocalMessage message, Instant deadline) = 0;
  // Sends a message that is not answered. Dropped if the link has ended.
  virtual void post(LocalMessage message) = 0;

  // Blocks until the request has a result (kTimedOut at the latest after give_up) or progress.
  virtual void wait(LocalRequest& request, Until until) = 0;
  // Whether it has a result. Does not block, but reads what has come.
  virtual bool ready(LocalRequest& request) = 0;
  // Ends it with kCancelled unless it has a result.
  virtual void cancel(LocalRequest& request) = 0;
  // Nobody will take its result: gives back what it holds or will hold.
  virtual void abandon(LocalRequest& request) = 0;
  // A descriptor that becomes readable with the result; from now on the link makes progress by
  // itself. Errors: kSystem.
  virtual Result<int> watch(LocalRequest& request) = 0;

  // Guards the fields of requests of this link.
  virtual std::mutex& mutex() = 0;

  // The pool as this process may read it, and as it may fill it.
  virtual std::span<const std::byte> readable() const = 0;
  virtual std::span<std::byte> writable() const = 0;
};

// Sets the number of a message that is answered.
void set_request_number(LocalMessage& message, LocalRequestNumber number);

Error no_answer_error(const LocalLink& link);

}  // namespace lochos
