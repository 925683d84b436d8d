// The Unix socket through which other processes of this host use the engine. Each accepted client
// is a LocalClient: it is greeted (transport/hello.h), given the pool's memfd, and served; when its
// connection ends, the engine forgets it.
//
// Thread word: engine thread only. Nothing blocks. Replies are written as the engine delivers them.
//
// Trust: the socket's mode is 0600, so a client is a process of the node's own user (or root) and
// may write to the pool. Garbage and silence are refused within a second all the same, nothing is
// allocated by a length that a client names beyond kMaxFrameBytes, and a client that does not read
// its replies is first not listened to and, should they still pile up, disconnected.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/error.h"
#include "node/engine.h"

namespace lochos {

class LocalServer {
 public:
  // Listens at `path`. A socket file that no process answers is replaced. `engine` must outlive the
  // server. Errors: kAddressInUse when a living node has it (named), or when the path is something
  // else than a socket; kInvalidArgument for a path that is too long; kPermission, kNotFound
  // (directory of the path).
  static Result<std::unique_ptr<LocalServer>> open(const std::string& path, Engine& engine);
  // Disconnects all clients (the engine forgets each) and removes the socket file.
  virtual ~LocalServer() = default;

  // Accepts, reads, hands requests to the engine, writes what is left over, ends what has ended.
  // Returns whether there was anything to do.
  virtual bool poll(Instant now) = 0;
  // An epoll descriptor, readable when poll() has something to do.
  virtual int event_fd() const = 0;
  virtual Instant next_deadline() const = 0;

  virtual const std::string& path() const = 0;
  virtual std::size_t clients() const = 0;
};

}  // namespace lochos
