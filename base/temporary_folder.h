// A folder of its own under $TMPDIR, readable by this user alone; it goes with the object, and with
// it all it holds. One thread; move only.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace lochos {

class TemporaryFolder {
 public:
  // Its name begins with `prefix`. Errors: those of the file system.
  static Result<TemporaryFolder> create(std::string_view prefix);
  TemporaryFolder(TemporaryFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  ~TemporaryFolder();

  const std::string& path() const { return path_; }

 private:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {}

  std::string path_;  // empty: moved from
};

}  // namespace lochos
