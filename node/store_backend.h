// What a Store forwards to: a way to the engine that can be made anew. Thread-safe.
//
// Two kinds: the client of a daemon (over its Unix socket; a lost connection is made again by the
// next call) and the client of an engine in this process (over its queue; once closed, closed).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "node/engine_queue.h"
#include "node/pool.h"
#include "node/store.h"

namespace lochos {

class LocalLink;
class PendingState;

class StoreBackend {
 public:
  virtual ~StoreBackend() = default;

  // The link to use for a new operation. Errors (socket): kUnreachable, kVersionMismatch,
  // kTimedOut, kProtocol; (embedded): kClosed.
  virtual Result<std::shared_ptr<LocalLink>> link(Instant deadline) = 0;
  // Whether the engine shares this address space.
  virtual bool in_process() const = 0;

  // What only a backend may make (the public types befriend it). `pin` keeps the bytes readable.
  static ObjectView make_view(std::span<const std::byte> bytes, std::uint64_t generation,
                              std::shared_ptr<void> pin);
  static Pending<ObjectView> make_pending_view(std::shared_ptr<PendingState> state);
  static Pending<std::vector<std::size_t>> make_pending_wait(std::shared_ptr<PendingState> state);
  static Pending<ReduceResult> make_pending_reduce(std::shared_ptr<PendingState> state);
};

// A Store on an engine in this process. `pool` is Pool::mapping() of the engine's pool: views keep
// it mapped after the engine has ended.
std::shared_ptr<StoreBackend> make_embedded_backend(std::shared_ptr<EngineQueue> queue,
                                                    std::shared_ptr<const PoolMapping> pool);

// A Store on the daemon behind `socket_path`. Connects before it returns.
// Errors: kUnreachable, kVersionMismatch, kTimedOut, kProtocol, kInvalidArgument (path too long).
Result<std::shared_ptr<StoreBackend>> connect_socket_backend(const std::string& socket_path,
                                                             Duration timeout);

}  // namespace lochos
