// The node's way to its directory: the real one (client.h) keeps a TCP connection alive; the
// simulator has its own. One thread (the engine's).
#pragma once

#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "directory/messages.h"

namespace lochos {

// The connection is up and joined: `joined` (as every other message) arrives as a message event.
// Lost: everything outstanding must be re-issued after the next Joined.
struct ChannelEvent {
  enum class Kind : std::uint8_t { kMessage, kLost };
  Kind kind = Kind::kMessage;
  DirectoryMessage message;
  Error error{Errc::kClosed, ""};  // kLost: why
};

class DirectoryChannel {
 public:
  virtual ~DirectoryChannel() = default;

  // Queues a message. Dropped silently while not joined: after Joined the node re-issues what it
  // waits for.
  virtual void send(const NodeMessage& message) = 0;

  // Does what is due (connect, join, read, write, heartbeat) and appends what came to `events`.
  // Never blocks.
  virtual void poll(Instant now, std::vector<ChannelEvent>& events) = 0;

  // Descriptor that is readable when poll() has something to do (an epoll descriptor; never
  // changes).
  virtual int event_fd() const = 0;
  virtual Instant next_deadline() const = 0;

  virtual bool joined() const = 0;
  // For error text: the address, and while not joined the last reason why.
  virtual std::string describe() const = 0;
};

}  // namespace lochos
