#include "tools/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <utility>

namespace lochos {
namespace {

int poll_ms(Duration timeout) {
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(
      std::clamp<Duration>(timeout, Duration{0}, std::chrono::hours(1)));
  return static_cast<int>(ms.count());
}

std::string last_line_of(const std::string& path) {
  std::ifstream file(path);
  std::string last;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) last = line;
  }
  return last;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (std::string& text : strings)
    out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

// Between fork and exec only async-signal-safe calls are allowed: everything is prepared before.
[[noreturn]] void become(char** arguments, char** environment, int output, int log, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // the parent died before the line above
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(log, STDERR_FILENO);
  ::execve("/proc/self/exe", arguments, environment);
  ::_exit(127);
}

}  // namespace

Result<ChildProcess> ChildProcess::start(const std::vector<std::string>& arguments,
                                         const std::string& log_path) {
  std::vector<std::string> words = {"lochos"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!std::string_view(*entry).starts_with("LOCHOS_")) variables.emplace_back(*entry);
  }
  std::vector<char*> argv = pointers(words), envp = pointers(variables);

  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) return fail(system_error(errno, "pipe"));
  UniqueFd output(pipe[0]);
  const UniqueFd child_output(pipe[1]);
  const UniqueFd log(::open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!log) return fail(system_error(errno, fmt::format("cannot create {}", log_path)));
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return fail(system_error(errno, "fork"));
  if (pid == 0) become(argv.data(), envp.data(), child_output.get(), log.get(), parent);
  UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process) {
    const int error = errno;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    return fail(system_error(error, "pidfd_open"));
  }
  return ChildProcess(pid, std::move(process), std::move(output), log_path);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      process_(std::move(other.process_)),
      output_(std::move(other.output_)),
      log_path_(std::move(other.log_path_)),
      pending_(std::move(other.pending_)) {}

ChildProcess::~ChildProcess() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

Result<std::string> ChildProcess::read_line(Duration timeout) {
  const Instant end = saturating_add(SteadyClock().now(), timeout);
  for (;;) {
    if (const std::size_t newline = pending_.find('\n'); newline != std::string::npos) {
      std::string line = pending_.substr(0, newline);
      pending_.erase(0, newline + 1);
      return line;
    }
    pollfd waiting{output_.get(), POLLIN, 0};
    const int ready = ::poll(&waiting, 1, poll_ms(end - SteadyClock().now()));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return fail(Errc::kTimedOut, "no line from the child process");
    std::array<char, 1024> block;
    const ssize_t got = ::read(output_.get(), block.data(), block.size());
    if (got <= 0) {
      return fail(Errc::kClosed,
                  fmt::format("the child process ended: {}", last_line_of(log_path_)));
    }
    pending_.append(block.data(), static_cast<std::size_t>(got));
  }
}

void ChildProcess::signal(int number) const {
  if (pid_ > 0) ::kill(pid_, number);
}

Result<int> ChildProcess::wait(Duration timeout) {
  pollfd ended{process_.get(), POLLIN, 0};
  if (::poll(&ended, 1, poll_ms(timeout)) != 1)
    return fail(Errc::kTimedOut, fmt::format("process {} did not end", pid_));
  int status = 0;
  ::waitpid(std::exchange(pid_, -1), &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace lochos
