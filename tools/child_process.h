// Another `lochos` started by this one: its standard output is read here, its standard error goes
// to a file. Killed when this object, or this process, ends. One thread.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/unique_fd.h"

namespace lochos {

class ChildProcess {
 public:
  // Runs /proc/self/exe with `arguments` and without any LOCHOS_* variable. Call from a thread that
  // lives as long as the child should: it is killed when that thread ends. Errors: kSystem.
  static Result<ChildProcess> start(const std::vector<std::string>& arguments,
                                    const std::string& log_path);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;
  ~ChildProcess();  // SIGKILL, if it still runs

  // The next line of its output. Errors: kTimedOut; kClosed if it ended: with the last line that it
  // wrote to its standard error.
  Result<std::string> read_line(Duration timeout);
  void signal(int number) const;
  // Waits for its end and returns the exit status (128 + number if a signal killed it).
  // Errors: kTimedOut.
  Result<int> wait(Duration timeout);

 private:
  ChildProcess(pid_t pid, UniqueFd process, UniqueFd output, std::string log_path)
      : pid_(pid),
        process_(std::move(process)),
        output_(std::move(output)),
        log_path_(std::move(log_path)) {}

  pid_t pid_;
  UniqueFd process_;  // a pidfd
  UniqueFd output_;
  std::string log_path_;
  std::string pending_;  // read, not yet returned
};

}  // namespace lochos
