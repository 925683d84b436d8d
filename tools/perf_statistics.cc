#include "tools/perf_statistics.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"

namespace lochos {
namespace {

// Two readings of the clock may be equal; a rate must stay finite.
double seconds_between(Instant from, Instant to) {
  return std::max(seconds(to - from), 1e-9);
}

double megabytes(std::uint64_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

}  // namespace

double percentile(std::span<const double> sorted, double fraction) {
  LOCHOS_CHECK(!sorted.empty() && fraction > 0 && fraction <= 1);
  // The small step back keeps 0.99 of 100 from becoming rank 100 by rounding.
  const double rank = std::ceil(fraction * static_cast<double>(sorted.size()) - 1e-9);
  const auto index = static_cast<std::size_t>(std::max(rank, 1.0)) - 1;
  return sorted[std::min(index, sorted.size() - 1)];
}

double median_of_sorted(std::span<const double> sorted) {
  LOCHOS_CHECK(!sorted.empty());
  const std::size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

double median(std::span<const double> samples) {
  if (samples.empty()) return 0;
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  return median_of_sorted(sorted);
}

LatencyFigures latency_figures(std::span<double> samples) {
  LOCHOS_CHECK(!samples.empty());
  std::sort(samples.begin(), samples.end());
  LatencyFigures figures;
  const auto count = static_cast<double>(samples.size());
  for (const double sample : samples)
    figures.average_us += sample / count;
  double squares = 0;
  for (const double sample : samples)
    squares += (sample - figures.average_us) * (sample - figures.average_us);
  figures.stdev_us = samples.size() > 1 ? std::sqrt(squares / (count - 1)) : 0;
  figures.min_us = samples.front();
  figures.median_us = median_of_sorted(samples);
  figures.p99_us = percentile(samples, 0.99);
  figures.p999_us = percentile(samples, 0.999);
  figures.max_us = samples.back();
  return figures;
}

std::size_t bandwidth_window(std::size_t messages, std::size_t depth) {
  return std::clamp<std::size_t>(std::max(messages / 100, depth), 1, messages);
}

BandwidthFigures bandwidth_figures(std::span<const Instant> completed, Instant start, Instant end,
                                   std::uint64_t message_bytes, std::size_t window) {
  LOCHOS_CHECK(window >= 1 && window <= completed.size());
  const auto count = static_cast<double>(completed.size());
  const double elapsed = seconds_between(start, end);
  BandwidthFigures figures;
  figures.average_MBps = count * megabytes(message_bytes) / elapsed;
  figures.rate_Mpps = count / elapsed / 1e6;
  figures.peak_MBps = figures.min_MBps = figures.average_MBps;
  for (std::size_t last = window - 1; last < completed.size(); ++last) {
    const Instant before = last < window ? start : completed[last - window];
    const double rate = static_cast<double>(window) * megabytes(message_bytes) /
                        seconds_between(before, completed[last]);
    figures.peak_MBps = std::max(figures.peak_MBps, rate);
    figures.min_MBps = std::min(figures.min_MBps, rate);
  }
  return figures;
}

BandwidthFigures operator+(const BandwidthFigures& a, const BandwidthFigures& b) {
  return {a.peak_MBps + b.peak_MBps, a.average_MBps + b.average_MBps, a.min_MBps + b.min_MBps,
          a.rate_Mpps + b.rate_Mpps};
}

}  // namespace lochos
