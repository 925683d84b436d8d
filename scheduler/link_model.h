// What the cluster's links were measured to do: a moving average of latency and bandwidth for each
// pair of nodes, and over all pairs. Value-like; no thread of its own, no clock: the owner calls it
// from one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "base/clock.h"

namespace lochos {

struct LinkEstimate {
  Duration latency{0};          // one way, of a small message
  double bytes_per_second = 0;  // of a long transfer; always > 0
};

// One finished transfer, as its receiver saw it.
struct LinkMeasurement {
  std::uint32_t from = 0;  // node numbers
  std::uint32_t to = 0;
  std::uint64_t bytes = 0;
  Duration elapsed{0};
  Duration stalled{0};     // of `elapsed`: waiting for data the sender did not have itself
  Duration round_trip{0};  // 0: not measured
};

class LinkModel {
 public:
  // Before anything is measured: a 1 Gbit/s network. Too low an assumption costs a few more chunks,
  // too high a one makes every hop of the first chain wait for a chunk of a megabyte.
  static constexpr LinkEstimate kPrior{std::chrono::microseconds(50), 125e6};
  // Shorter transfers say more about latency than about bandwidth.
  static constexpr std::uint64_t kMinBandwidthBytes = 256 * 1024;
  // Pairs remembered one by one; beyond it new pairs count only in the overall average.
  static constexpr std::size_t kMaxPairs = 1 << 16;

  // Implausible values (negative, zero, longer stalled than elapsed) are left out.
  void add(const LinkMeasurement& measurement);
  // Forgets the pairs of a node that is gone.
  void forget(std::uint32_t node);

  // The average over all pairs, or kPrior.
  LinkEstimate overall() const;
  // The pair's own average, or overall() for what was never measured between the two.
  LinkEstimate pair(std::uint32_t from, std::uint32_t to) const;
  std::size_t pairs() const { return pairs_.size(); }

 private:
  // Zero until the first sample.
  struct Averages {
    double latency_s = 0;
    double bytes_per_second = 0;
    void add_latency(double seconds);
    void add_bandwidth(double bytes_per_second);
  };

  Averages overall_;
  std::unordered_map<std::uint64_t, Averages> pairs_;
};

}  // namespace lochos
