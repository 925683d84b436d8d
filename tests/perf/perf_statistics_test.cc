#include "tools/perf_statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

namespace lochos {
namespace {

Instant at(double ms) {
  return Instant() +
         std::chrono::duration_cast<Duration>(std::chrono::duration<double, std::milli>(ms));
}

TEST(Percentile, IsTheNearestRank) {
  std::vector<double> samples(1000);
  std::iota(samples.begin(), samples.end(), 1.0);
  EXPECT_EQ(percentile(samples, 0.99), 990);
  EXPECT_EQ(percentile(samples, 0.999), 999);
  EXPECT_EQ(percentile(samples, 1.0), 1000);
  EXPECT_EQ(percentile(std::vector<double>{7}, 0.99), 7);
  EXPECT_EQ(percentile(std::vector<double>{1, 2}, 0.5), 1);
  EXPECT_EQ(percentile(std::vector<double>{1, 2}, 0.51), 2);
}

TEST(Median, IsTheMiddle) {
  EXPECT_EQ(median(std::vector<double>{3, 1, 2}), 2);
  EXPECT_EQ(median(std::vector<double>{4, 1, 2, 3}), 2.5);
  EXPECT_EQ(median(std::vector<double>{}), 0);
}

TEST(LatencyFigures, AreThoseOfTheSamples) {
  std::vector<double> samples{4, 2, 4, 4, 5, 5, 7, 9};
  const LatencyFigures figures = latency_figures(samples);
  EXPECT_EQ(figures.min_us, 2);
  EXPECT_EQ(figures.max_us, 9);
  EXPECT_EQ(figures.median_us, 4.5);
  EXPECT_DOUBLE_EQ(figures.average_us, 5);
  EXPECT_NEAR(figures.stdev_us, 2.13809, 1e-5);  // sqrt(32 / 7)
}

TEST(LatencyFigures, OneSampleHasNoDeviation) {
  std::vector<double> samples{3};
  EXPECT_EQ(latency_figures(samples).stdev_us, 0);
}

TEST(BandwidthFigures, AverageCountsEverythingUntilTheEnd) {
  const std::vector<Instant> completed{at(1), at(2), at(3), at(4)};
  const BandwidthFigures figures = bandwidth_figures(completed, at(0), at(5), 1 << 20, 4);
  EXPECT_NEAR(figures.average_MBps, 4 / 0.005, 1e-6);
  EXPECT_NEAR(figures.rate_Mpps, 4 / 0.005 / 1e6, 1e-12);
  EXPECT_NEAR(figures.peak_MBps, 4 / 0.004, 1e-6);
  EXPECT_NEAR(figures.min_MBps, figures.average_MBps, 1e-6);
}

TEST(BandwidthFigures, FindTheFastestAndSlowestWindow) {
  const std::vector<Instant> completed{at(1), at(2), at(2.5), at(3), at(7), at(8)};
  const BandwidthFigures figures = bandwidth_figures(completed, at(0), at(8), 1 << 20, 2);
  EXPECT_NEAR(figures.peak_MBps, 2 / 0.001, 1e-6);  // those done at 2.5 and 3
  EXPECT_NEAR(figures.min_MBps, 2 / 0.005, 1e-6);   // those done at 7 and 8
  EXPECT_NEAR(figures.average_MBps, 6 / 0.008, 1e-6);
}

TEST(BandwidthFigures, StayFiniteWhenTheClockStandsStill) {
  const std::vector<Instant> completed{at(1), at(1)};
  const BandwidthFigures figures = bandwidth_figures(completed, at(1), at(1), 8, 1);
  EXPECT_TRUE(std::isfinite(figures.peak_MBps));
  EXPECT_LE(figures.min_MBps, figures.average_MBps);
  EXPECT_LE(figures.average_MBps, figures.peak_MBps);
}

TEST(BandwidthWindow, IsAHundredthButCoversWhatIsUnderWay) {
  EXPECT_EQ(bandwidth_window(100000, 16), 1000U);
  EXPECT_EQ(bandwidth_window(1000, 128), 128U);
  EXPECT_EQ(bandwidth_window(10, 128), 10U);
  EXPECT_EQ(bandwidth_window(1, 1), 1U);
}

}  // namespace
}  // namespace lochos
