// A progress bar on standard error: only on a terminal, and only for what takes over a second.
// One thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"

namespace lochos {

class ProgressBar {
 public:
  // `label` stands in front: "put model". `total` in bytes; 0: not known.
  ProgressBar(std::string label, std::uint64_t total);
  ~ProgressBar();  // erases the bar
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Cheap: draws at most ten times a second.
  void update(std::uint64_t done);
  void set_total(std::uint64_t total) { total_ = total; }
  // Whether anybody could see it: callers need not ask for progress otherwise.
  bool enabled() const { return enabled_; }

 private:
  void draw(std::uint64_t done, Instant now);

  const std::string label_;
  std::uint64_t total_;
  const Instant started_;
  bool enabled_;
  bool drawn_ = false;
  Instant next_draw_;
};

// "put model  [#####-----]  50 %  128 MiB of 256 MiB  1.2 GB/s  0:00:01 left", at most `columns`
// wide. Exposed for tests.
std::string progress_line(const std::string& label, std::uint64_t done, std::uint64_t total,
                          Duration elapsed, std::size_t columns);

// Decimal units, as networks are measured: "1.23 GB/s".
std::string format_rate(double bytes_per_second);

}  // namespace lochos
