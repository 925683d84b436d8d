// The heart of a node: which objects it has, who reads them here, and which edges move them to and
// from peers. Decides and moves; knows no sockets, threads or clocks of its own: rails are
// `Transport`s, the directory is a `DirectoryChannel`, clients are `LocalClient`s, time is an
// argument. The same code runs in the real node (node.cc) and in the simulator.
//
// Thread word: engine thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "directory/channel.h"
#include "node/local_messages.h"
#include "node/pool.h"
#include "transport/transport.h"

namespace lochos {

// Whoever asks the engine for something. The engine keeps a pointer until forget().
class LocalClient {
 public:
  virtual ~LocalClient() = default;
  // Called on the engine thread, from within Engine::handle() or turn().
  virtual void deliver(LocalReply reply) = 0;
  // Whether this client shares the engine's address space (may be given external memory).
  virtual bool in_process() const = 0;
};

struct Rail {
  std::unique_ptr<Transport> transport;
  SocketAddress listen_address;  // real, as told to the directory
};

struct EngineOptions {
  std::string name;
  TransportPolicy policy = TransportPolicy::kAuto;
  Duration connect_timeout = std::chrono::seconds(2);
  // Bytes in flight an edge; bounds what a moved edge sends again, and what one edge takes from
  // others' latency.
  std::uint64_t edge_window_bytes = 4ULL << 20;
};

class Engine {
 public:
  // Registers the pool with every rail; all its pages are reserved first if a rail pins them.
  // Errors: kNoSpace (Pool::reserve), and what Transport::register_memory says (kPermission with
  // the locked-memory limit, above all).
  static Result<std::unique_ptr<Engine>> create(EngineOptions options, std::unique_ptr<Pool> pool,
                                                std::vector<Rail> rails,
                                                std::unique_ptr<DirectoryChannel> directory);
  virtual ~Engine() = default;

  // A client's request. Replies come through client.deliver(), possibly before this returns.
  virtual void handle(LocalClient& client, LocalMessage message, Instant now) = 0;
  // The client is gone: its requests end unanswered, its pins are released, its unsealed objects
  // abandoned.
  virtual void forget(LocalClient& client, Instant now) = 0;

  // One turn: polls everything once. Returns whether there was anything to do.
  virtual bool turn(Instant now) = 0;
  // Prepares to sleep on the descriptors below. False: there is work, do another turn.
  virtual bool arm() = 0;
  virtual std::vector<int> event_fds() const = 0;
  virtual Instant next_deadline() const = 0;

  virtual NodeStats stats() const = 0;
  virtual const Pool& pool() const = 0;

  // Whether the directory has accepted this node.
  virtual bool joined() const = 0;
  // Says goodbye to the directory: what this node holds is gone, at once. The last thing before the
  // end.
  virtual void leave() = 0;
};

}  // namespace lochos
