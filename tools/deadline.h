// The time that a command has left: one --timeout covers all its calls. Value.
#pragma once

#include <algorithm>

#include "base/clock.h"
#include "node/store.h"

namespace lochos {

class Deadline {
 public:
  explicit Deadline(Duration timeout) : end_(saturating_add(SteadyClock().now(), timeout)) {}

  // Never negative; kNoTimeout if there is no limit.
  Duration remaining() const {
    if (end_ == kNever) return kNoTimeout;
    return std::max(Duration{0}, end_ - SteadyClock().now());
  }

 private:
  Instant end_;
};

}  // namespace lochos
