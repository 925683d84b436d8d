#include "tools/perf_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <span>
#include <string_view>

#include "tools/json.h"

namespace lochos {
namespace {

struct Column {
  std::string_view key;    // in the JSON
  std::string_view title;  // in the table
  int decimals;
};

constexpr std::array kBandwidthColumns = {
    Column{"bw_peak_MBps", "BW peak[MB/sec]", 2},
    Column{"bw_average_MBps", "BW average[MB/sec]", 2},
    Column{"bw_min_MBps", "BW min[MB/sec]", 2},
    Column{"msg_rate_Mpps", "MsgRate[Mpps]", 6},
};
constexpr std::array kLatencyColumns = {
    Column{"t_min_us", "t_min[usec]", 2},   Column{"t_median_us", "t_median[usec]", 2},
    Column{"t_avg_us", "t_avg[usec]", 2},   Column{"t_stdev_us", "t_stdev[usec]", 2},
    Column{"t_99_us", "99% percentile", 2}, Column{"t_999_us", "99.9% percentile", 2},
    Column{"t_max_us", "t_max[usec]", 2},
};

std::span<const Column> columns(PerfTest test) {
  if (test == PerfTest::kBandwidth) return kBandwidthColumns;
  return kLatencyColumns;
}

}  // namespace

std::string perf_json(PerfTest test, const std::vector<PerfRow>& rows) {
  JsonWriter json;
  json.begin_array();
  for (const PerfRow& row : rows) {
    json.begin_object().field("size", row.size).field("iterations", row.iterations);
    std::size_t i = 0;
    for (const Column& column : columns(test))
      json.field(column.key, i < row.figures.size() ? row.figures[i++] : 0.0);
    json.end_object();
  }
  json.end_array();
  return json.text();
}

void PerfReport::print_header() const {
  std::string line = fmt::format(" {:<10} {:<12}", "#bytes", "#iterations");
  for (const Column& column : columns(test_))
    line += fmt::format("  {:>16}", column.title);
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

Status PerfReport::add(const PerfRow& row) {
  std::string line = fmt::format(" {:<10} {:<12}", row.size, row.iterations);
  std::size_t i = 0;
  for (const Column& column : columns(test_)) {
    const int width = std::max(16, static_cast<int>(column.title.size()));
    line += fmt::format("  {:>{}.{}f}", i < row.figures.size() ? row.figures[i] : 0.0, width,
                        column.decimals);
    ++i;
  }
  fmt::print("{}\n", line);
  std::fflush(stdout);
  rows_.push_back(row);
  return file_.replace(perf_json(test_, rows_));
}

}  // namespace lochos
