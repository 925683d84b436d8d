#include "tools/stop_signals.h"

#include <poll.h>
#include <sys/signalfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>

namespace lochos {

Result<StopSignals> StopSignals::open() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  if (const int error = ::pthread_sigmask(SIG_BLOCK, &signals, nullptr); error != 0)
    return fail(system_error(error, "cannot block signals"));
  UniqueFd fd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) return fail(system_error(errno, "cannot open a signal descriptor"));
  return StopSignals(std::move(fd));
}

bool StopSignals::wait(Duration timeout, int other_fd) const {
  std::array<pollfd, 2> fds{pollfd{fd_.get(), POLLIN, 0}, pollfd{other_fd, POLLIN, 0}};
  const Instant end = saturating_add(SteadyClock().now(), timeout);
  for (;;) {
    const Duration left = end == kNever ? Duration::max() : end - SteadyClock().now();
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(
        std::clamp<Duration>(left, Duration{0}, std::chrono::hours(1)));
    const int ready = ::poll(fds.data(), fds.size(), static_cast<int>(ms.count()));
    if (ready > 0) return (fds[0].revents & POLLIN) != 0;
    if (ready == 0 && left <= Duration{0}) return false;
  }
}

}  // namespace lochos
