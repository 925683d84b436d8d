// An eventfd that wakes whoever sleeps on it. `signal` is thread-safe and async-signal-safe;
// `clear` belongs to the one thread that waits.
#pragma once

#include "base/error.h"
#include "base/unique_fd.h"

namespace lochos {

class EventFd {
 public:
  static Result<EventFd> open();

  int fd() const { return fd_.get(); }
  void signal() const;
  // Makes the descriptor unreadable again. Returns whether it was signalled.
  bool clear() const;

 private:
  explicit EventFd(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace lochos
