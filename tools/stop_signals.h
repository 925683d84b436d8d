// Turns SIGTERM and SIGINT into something that can be waited for. Construct before any thread is
// started: the signals are blocked in the constructing thread and inherited by its threads. One
// thread.
#pragma once

#include "base/clock.h"
#include "base/error.h"
#include "base/unique_fd.h"

namespace lochos {

class StopSignals {
 public:
  static Result<StopSignals> open();

  // Readable once a signal has come.
  int fd() const { return fd_.get(); }
  // Whether a signal comes within `timeout` (kNever-like Duration::max() waits for ever), or one of
  // the other descriptor becomes readable (-1: none).
  bool wait(Duration timeout, int other_fd = -1) const;

 private:
  explicit StopSignals(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace lochos
