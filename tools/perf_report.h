// The lines that `lochos perf bw|lat` prints, and its JSON. One thread.
#pragma once

#include <vector>

#include "base/error.h"
#include "tools/perf_json_file.h"
#include "tools/perf_messages.h"

namespace lochos {

class PerfReport {
 public:
  PerfReport(PerfTest test, PerfJsonFile file) : test_(test), file_(std::move(file)) {}

  // The columns that perftest users know, in MB = 2^20 bytes a second, 10^6 messages a second, or
  // microseconds.
  void print_header() const;
  // Prints a line and adds it to the file. Errors: those of PerfJsonFile::replace.
  Status add(const PerfRow& row);
  std::size_t rows() const { return rows_.size(); }
  Status finish() { return file_.finish(); }

 private:
  const PerfTest test_;
  PerfJsonFile file_;
  std::vector<PerfRow> rows_;
};

// An array with one object for each row; "[]" for none.
std::string perf_json(PerfTest test, const std::vector<PerfRow>& rows);

}  // namespace lochos
