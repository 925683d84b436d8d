// Figures from times. Pure functions; use anywhere.
//
// MB is 2^20 bytes and Mpps is 10^6 messages a second, as in perftest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/clock.h"

namespace lochos {

struct LatencyFigures {
  double min_us = 0;
  double median_us = 0;
  double average_us = 0;
  double stdev_us = 0;  // of a sample: divided by n - 1
  double p99_us = 0;    // 99 % of the samples are at most this
  double p999_us = 0;
  double max_us = 0;
};

// The smallest sample such that at least `fraction` of all are not above it (nearest rank).
// REQUIRES: `sorted` is ascending and not empty; 0 < fraction <= 1.
double percentile(std::span<const double> sorted, double fraction);

// The middle sample, or the mean of the two in the middle. REQUIRES: as percentile().
double median_of_sorted(std::span<const double> sorted);
// The same, whatever the order. 0 for no samples.
double median(std::span<const double> samples);

// `samples` are microseconds; they are sorted. REQUIRES: not empty.
LatencyFigures latency_figures(std::span<double> samples);

struct BandwidthFigures {
  double peak_MBps = 0;     // the fastest window
  double average_MBps = 0;  // everything
  double min_MBps = 0;      // the slowest window
  double rate_Mpps = 0;
};

// How many messages make a window for peak and minimum: a hundredth of all, but not fewer than are
// under way at once (shorter windows would show how completions bunch, not how fast they come).
std::size_t bandwidth_window(std::size_t messages, std::size_t depth);

// `completed[i]` is when message i was done, ascending; the first was posted at `start`; `end` (at
// least completed.back()) is when everything was known to be done. A window is `window`
// consecutive messages, wherever it starts. REQUIRES: 1 <= window <= completed.size().
BandwidthFigures bandwidth_figures(std::span<const Instant> completed, Instant start, Instant end,
                                   std::uint64_t message_bytes, std::size_t window);

// Both directions together.
BandwidthFigures operator+(const BandwidthFigures& a, const BandwidthFigures& b);

}  // namespace lochos
