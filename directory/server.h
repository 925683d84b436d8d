// The directory process: one thread, one epoll, one table. Logs nothing per request.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/error.h"
#include "transport/address.h"

namespace lochos {

struct DirectoryOptions {
  SocketAddress listen;
  Duration heartbeat_interval = std::chrono::milliseconds(250);
  Duration dead_after =
      std::chrono::seconds(5);  // without a heartbeat; a broken connection counts at once
};

class DirectoryServer {
 public:
  // Binds and listens. Errors: kAddressInUse (names the port), kPermission, kUnreachable.
  static Result<std::unique_ptr<DirectoryServer>> open(const DirectoryOptions& options);
  virtual ~DirectoryServer() = default;

  virtual SocketAddress address() const = 0;
  // Serves until stop(). Call from one thread.
  virtual Status run() = 0;
  // Thread-safe and async-signal-safe.
  virtual void stop() = 0;
};

}  // namespace lochos
