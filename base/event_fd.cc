#include "base/event_fd.h"

#include <sys/eventfd.h>

#include <cerrno>
#include <cstdint>

namespace lochos {

Result<EventFd> EventFd::open() {
  UniqueFd fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!fd) return fail(system_error(errno, "eventfd"));
  return EventFd(std::move(fd));
}

void EventFd::signal() const {
  const std::uint64_t one = 1;
  // The write can only fail when the counter is saturated, and then the reader is awake anyway.
  [[maybe_unused]] const auto written = ::write(fd_.get(), &one, sizeof one);
}

bool EventFd::clear() const {
  std::uint64_t count;
  return ::read(fd_.get(), &count, sizeof count) == sizeof count;
}

}  // namespace lochos
