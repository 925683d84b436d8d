// Plain TCP sockets behind and beside libfabric's: options that libfabric does not set, and finding
// the descriptor that the provider uses for a connection. Free functions, thread-safe.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/error.h"
#include "base/unique_fd.h"
#include "transport/address.h"

namespace lochos::fabric {

// A peer that is silently gone (power, cable, firewall) ends a connection after this long, whether
// or not anything is being sent. The directory's heartbeats usually tell earlier; this is the bound
// for those who have none. Too small and a host that is only stopped for a while loses its peers.
inline constexpr Duration kSilenceLimit = std::chrono::seconds(8);

// Bounds silent death by kSilenceLimit and turns Nagle's delay off. Failures do not matter.
void tune_socket(int fd);

SocketAddress local_address(int fd);
// Unspecified when there is none.
SocketAddress peer_address(int fd);

// The lowest free descriptor number: what the next open() in this thread is likely to return.
// `any` is some open descriptor.
int next_descriptor(int any);

// The descriptor of this process's socket with exactly these two addresses, or -1. `hint` is where
// it is likely to be.
int find_socket(const SocketAddress& local, const SocketAddress& peer, int hint);

}  // namespace lochos::fabric
