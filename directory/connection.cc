#include "directory/connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace lochos {
namespace {

// A drained buffer keeps this much for the next burst and gives the rest back.
constexpr std::size_t kKeptBytes = 64 * 1024;

void set_option(int fd, int level, int name, int value) {
  // Each only shortens what the defaults do anyway; a system without it still works.
  [[maybe_unused]] const int result = ::setsockopt(fd, level, name, &value, sizeof value);
}

}  // namespace

Result<std::size_t> OutputBuffer::flush(int fd) {
  const std::size_t before = sent_;
  while (sent_ < bytes_.size()) {
    const ssize_t count = ::send(fd, bytes_.data() + sent_, bytes_.size() - sent_, MSG_NOSIGNAL);
    if (count >= 0) {
      sent_ += static_cast<std::size_t>(count);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      break;
    } else if (errno != EINTR) {
      return fail(system_error(errno, "send"));
    }
  }
  const std::size_t written = sent_ - before;
  if (sent_ == bytes_.size()) {
    clear();
  } else if (sent_ >= kKeptBytes && sent_ >= bytes_.size() / 2) {
    bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(sent_));
    sent_ = 0;
  }
  return written;
}

void OutputBuffer::clear() {
  if (bytes_.capacity() > kKeptBytes) {
    bytes_ = {};
  } else {
    bytes_.clear();
  }
  sent_ = 0;
}

void tune_socket(int fd, Duration silence) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(silence).count();
  const auto timeout_ms = static_cast<int>(std::clamp<std::int64_t>(ms, 100, 3'600'000));
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, timeout_ms);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, std::max(1, timeout_ms / 2000));
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

}  // namespace lochos
