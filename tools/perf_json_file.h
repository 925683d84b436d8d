// A result file that holds valid JSON at every moment, whenever the process ends. One thread.
#pragma once

#include <string>

#include "base/error.h"

namespace lochos {

class PerfJsonFile {
 public:
  // Nothing is written anywhere if `path` is empty. "-" is standard output. `empty` is the valid
  // JSON of a run without results; it is written at once. Errors: those of write_file.
  static Result<PerfJsonFile> open(const std::string& path, const std::string& empty);

  // Replaces the contents by `text`. A regular file changes from the old to the new contents in one
  // step; a pipe or terminal gets only the last text, from finish().
  Status replace(const std::string& text);
  Status finish();

 private:
  explicit PerfJsonFile(std::string path) : path_(std::move(path)) {}
  Status write() const;

  std::string path_;
  bool regular_ = true;
  std::string text_;
};

}  // namespace lochos
