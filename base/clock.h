// Monotonic time as an argument. Thread-safe. Code that decides takes `Instant`s; only the
// outermost layer owns a `Clock`, so that the simulator can substitute virtual time.
#pragma once

#include <chrono>

namespace lochos {

using Duration = std::chrono::nanoseconds;

// Nanoseconds on a monotonic clock; the origin means nothing. `Instant::max()` is "never".
using Instant = std::chrono::time_point<std::chrono::steady_clock, Duration>;

inline constexpr Instant kNever = Instant::max();

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Instant now() const = 0;
};

class SteadyClock final : public Clock {
 public:
  Instant now() const override { return std::chrono::steady_clock::now(); }
};

// `start + delay` without overflow: a delay of `Duration::max()` gives `kNever`.
constexpr Instant saturating_add(Instant start, Duration delay) {
  return delay > kNever - start ? kNever : start + delay;
}

inline double seconds(Duration d) {
  return std::chrono::duration<double>(d).count();
}

}  // namespace lochos
