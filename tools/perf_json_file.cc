#include "tools/perf_json_file.h"

#include <sys/stat.h>

#include <cstdint>
#include <cstdio>
#include <span>

#include "tools/file_io.h"

namespace lochos {

Result<PerfJsonFile> PerfJsonFile::open(const std::string& path, const std::string& empty) {
  PerfJsonFile file(path);
  struct stat status {};
  if (path == "-") {
    file.regular_ = false;
  } else if (!path.empty() && ::stat(path.c_str(), &status) == 0) {
    file.regular_ = S_ISREG(status.st_mode);
  }
  if (auto written = file.replace(empty); !written) return fail(written.error());
  return file;
}

Status PerfJsonFile::replace(const std::string& text) {
  text_ = text;
  return path_.empty() || !regular_ ? Status{} : write();
}

Status PerfJsonFile::finish() {
  return path_.empty() || regular_ ? Status{} : write();
}

Status PerfJsonFile::write() const {
  std::fflush(stdout);  // what was printed before comes before
  return write_file(path_, std::as_bytes(std::span(text_)), [](std::uint64_t) {});
}

}  // namespace lochos
