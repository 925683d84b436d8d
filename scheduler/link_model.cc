#include "scheduler/link_model.h"

#include <algorithm>

namespace lochos {
namespace {

// Weight of a new sample: the average follows a change within about ten transfers and one odd
// transfer moves it by a fifth.
constexpr double kWeight = 0.2;
// A measurement outside is a broken clock or a lie, not a network.
constexpr double kMinBytesPerSecond = 1e3;
constexpr double kMaxBytesPerSecond = 1e12;
constexpr double kMaxLatencySeconds = 10;

std::uint64_t key(std::uint32_t from, std::uint32_t to) {
  return (std::uint64_t{from} << 32) | to;
}

void average_in(double& average, double sample) {
  average = average == 0 ? sample : average + kWeight * (sample - average);
}

// 0: the measurement says nothing about bandwidth.
double bandwidth_of(const LinkMeasurement& m) {
  const Duration moving = m.elapsed - m.stalled;
  if (m.bytes < LinkModel::kMinBandwidthBytes || m.stalled < Duration(0) || moving <= Duration(0)) {
    return 0;
  }
  const double rate = static_cast<double>(m.bytes) / seconds(moving);
  return rate >= kMinBytesPerSecond && rate <= kMaxBytesPerSecond ? rate : 0;
}

double latency_of(const LinkMeasurement& m) {
  const double one_way = seconds(m.round_trip) / 2;
  return one_way > 0 && one_way <= kMaxLatencySeconds ? one_way : 0;
}

LinkEstimate estimate(double latency_s, double bytes_per_second) {
  const auto latency =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(latency_s));
  return {std::max(latency, Duration(1)), bytes_per_second};
}

}  // namespace

void LinkModel::Averages::add_latency(double seconds) {
  average_in(latency_s, seconds);
}
void LinkModel::Averages::add_bandwidth(double rate) {
  average_in(bytes_per_second, rate);
}

void LinkModel::add(const LinkMeasurement& m) {
  const double rate = bandwidth_of(m);
  const double latency = latency_of(m);
  if (rate == 0 && latency == 0) return;
  Averages* own = nullptr;
  if (auto found = pairs_.find(key(m.from, m.to)); found != pairs_.end()) {
    own = &found->second;
  } else if (pairs_.size() < kMaxPairs) {
    own = &pairs_[key(m.from, m.to)];
  }
  if (rate > 0) {
    overall_.add_bandwidth(rate);
    if (own != nullptr) own->add_bandwidth(rate);
  }
  if (latency > 0) {
    overall_.add_latency(latency);
    if (own != nullptr) own->add_latency(latency);
  }
}

void LinkModel::forget(std::uint32_t node) {
  std::erase_if(pairs_, [node](const auto& entry) {
    return entry.first >> 32 == node || static_cast<std::uint32_t>(entry.first) == node;
  });
}

LinkEstimate LinkModel::overall() const {
  return estimate(
      overall_.latency_s > 0 ? overall_.latency_s : seconds(kPrior.latency),
      overall_.bytes_per_second > 0 ? overall_.bytes_per_second : kPrior.bytes_per_second);
}

LinkEstimate LinkModel::pair(std::uint32_t from, std::uint32_t to) const {
  LinkEstimate result = overall();
  const auto found = pairs_.find(key(from, to));
  if (found == pairs_.end()) return result;
  const Averages& own = found->second;
  return estimate(own.latency_s > 0 ? own.latency_s : seconds(result.latency),
                  own.bytes_per_second > 0 ? own.bytes_per_second : result.bytes_per_second);
}

}  // namespace lochos
