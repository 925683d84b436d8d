// Accepts connections for a rail. Engine thread only; owned by the rail. Two kinds.
//
// NativeListener is libfabric's own passive endpoint, for providers whose connection manager lives
// elsewhere (in the kernel, say).
//
// GuardedListener stands in front of the provider `tcp`, because that one's own listener is not
// safe against strangers (read in 1.17, and seen): it reads the first 32 bytes of a new connection
// from a *blocking* socket inside fi_eq_read, so a stranger who sends a header and then nothing
// stops the polling thread for ever; a message that arrives in two segments is lost; and who
// connects and sends nothing is kept for ever. So the public port is an ordinary socket here.
//   1. We accept without blocking, and read the connection request (header, hello) with a deadline.
//   2. What is no request, or has an unfit hello, is refused in the provider's own language, and
//      closed.
//   3. Else we repeat the bytes to a passive endpoint that lives for this one connection on a
//   random
//      port of a random loopback address (127/8), and when the provider has accepted, its new
//      descriptor is replaced by the peer's socket (dup3). The peer sees one connection to one port
//      (firewalls, port mapping), no extra round trip, and the provider owns it from then on.
// Nobody but us ever speaks to the provider's listener.
#pragma once

#include <array>
#include <list>
#include <memory>
#include <span>
#include <vector>

#include "base/unique_fd.h"
#include "transport/fabric/greeting.h"
#include "transport/fabric/handles.h"
#include "transport/transport.h"

namespace lochos::fabric {

class Rail;

class Listener {
 public:
  virtual ~Listener() = default;

  virtual SocketAddress address() const = 0;
  // Accepts, reads, refuses. Called when the rail's epoll reports something and every now and then.
  virtual void progress(Instant now) = 0;
  // A connection request from the rail's event queue; `passive` is where it arrived.
  virtual void on_request(fid& passive, InfoHandle request, std::span<const std::byte> data) = 0;
  // When progress() must be called at the latest.
  virtual Instant next_deadline() const = 0;
};

// Errors: kAddressInUse naming the port, kPermission, kUnreachable.
Result<std::unique_ptr<Listener>> open_listener(Rail& rail, const SocketAddress& address);

}  // namespace lochos::fabric
