// The public API of Lochos: put, get, wait, reduce, erase of immutable objects.
//
// A `Store` is a handle on a node: on the host's daemon (`Store::connect`, over its Unix socket;
// the pool is mapped into this process) or on a node embedded in this process (`Node::store`). Both
// behave alike except where a call says so.
//
// Thread word: a Store and everything it gives out is thread-safe; one Store serves many threads.
// Memory: `ObjectView` pins bytes in the pool, read-only, for as long as it lives (and no longer
// than the process: a dead client's pins are released). `ObjectWriter` is writable memory in the
// pool; dropped without seal() the object is abandoned and its id is free again. Time: every call
// has a deadline; a call that misses it fails with kTimedOut (get, wait: the object did not turn
// up, or did not arrive whole) and leaves nothing half-done. `kNoTimeout` waits for ever.
// Sizes are bytes, 64-bit; zero is valid.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/node_id.h"
#include "base/object_id.h"
#include "compute/element.h"

namespace lochos {

inline constexpr Duration kNoTimeout = Duration::max();
inline constexpr Duration kDefaultTimeout = std::chrono::seconds(30);

class StoreBackend;  // what Store forwards to: the daemon's client, or the embedded engine
class PendingState;

// An operation under way. Movable. Destroying it cancels what has not completed.
class PendingBase {
 public:
  PendingBase(PendingBase&&) noexcept;
  PendingBase& operator=(PendingBase&&) noexcept;
  ~PendingBase();

  bool ready() const;
  // Ends the operation with kCancelled unless it is already ready.
  void cancel();
  // Readable once ready(). Valid as long as this handle lives; created on the first call.
  // Errors: kSystem when no descriptor can be had.
  Result<int> event_fd() const;

 protected:
  friend class StoreBackend;
  explicit PendingBase(std::shared_ptr<PendingState> state);
  std::shared_ptr<PendingState> state_;
};

template <class T>
class Pending : public PendingBase {
 public:
  using PendingBase::PendingBase;
  // Blocks until ready and takes the result. Call once.
  Result<T> take();
};

// Read-only pinned bytes of a complete object.
class ObjectView {
 public:
  ObjectView() = default;
  std::span<const std::byte> bytes() const { return bytes_; }
  std::uint64_t size() const { return bytes_.size(); }
  std::uint64_t generation() const { return generation_; }

 private:
  friend class StoreBackend;
  std::span<const std::byte> bytes_;
  std::uint64_t generation_ = 0;
  std::shared_ptr<void> pin_;
};

// An object being made: fill `bytes()` from front to back, publish as you go, seal.
class ObjectWriter {
 public:
  class Backend;
  explicit ObjectWriter(std::unique_ptr<Backend> backend);
  ObjectWriter(ObjectWriter&&) noexcept;
  ObjectWriter& operator=(ObjectWriter&&) noexcept;
  ~ObjectWriter();  // abandons unless sealed

  std::span<std::byte> bytes() const;
  // The first `count` bytes are final: others may read and forward them. Never decreases. Cheap.
  void publish(std::uint64_t count);
  // All bytes are final; from then on they must not be written. Errors: kAlreadyExists (objects up
  // to 64 KiB claim their id only here), kDeleted if it was erased meanwhile, kTimedOut, kClosed.
  Status seal(Duration timeout = kDefaultTimeout);

 private:
  std::unique_ptr<Backend> backend_;
};

// Memory of this process that its embedded node keeps registered for transfers, from
// Store::register_memory() until this handle goes. Movable.
class MemoryRegistration {
 public:
  class Backend;
  explicit MemoryRegistration(std::unique_ptr<Backend> backend);
  MemoryRegistration(MemoryRegistration&&) noexcept;
  MemoryRegistration& operator=(MemoryRegistration&&) noexcept;
  // Returns when no new transfer can use the registration. Objects that were put from the memory
  // keep it registered until they are erased.
  ~MemoryRegistration();

  std::span<std::byte> bytes() const;

 private:
  std::unique_ptr<Backend> backend_;
};

struct ObjectStat {
  ObjectId id;
  std::string name;  // empty if it was put by id only
  std::uint64_t size = 0;
  std::uint64_t generation = 0;
  bool sealed = false;     // a complete copy exists somewhere
  bool is_inline = false;  // small: the directory has the bytes
  struct Holder {
    NodeId node;
    std::string node_name;
    bool complete = false;
    NodeId parent;
  };
  std::vector<Holder> holders;  // empty in list()
  std::uint32_t holder_count = 0;
};

// How reduce() combines its sources. Value.
struct ReduceOptions {
  ReduceOp op = ReduceOp::kSum;
  DataType dtype = DataType::kF32;
  // The result is made from this many of the sources: those that turn up first. 0: from all.
  std::size_t count = 0;
  // The same bits whatever the order in which sources turn up: those of a left fold over the
  // included ones in the order given. It costs time when they turn up in another order: each joins
  // in its turn, so that the result waits for the earliest that is missing, and the pipeline starts
  // later; with a count below the number of sources, only once that many are there. Integers, min
  // and max (but for the sign of zero and the kind of NaN) need it not.
  bool deterministic = false;
};

struct ReduceResult {
  std::uint64_t size = 0;  // of the target, bytes: that of each source
  std::uint64_t generation = 0;
  // Positions in the sources, ascending; together all of them.
  std::vector<std::size_t> included;
  std::vector<std::size_t> left_out;
};

// Cumulative since the node started, unless marked "now".
struct NodeStats {
  std::uint64_t pool_bytes = 0;       // capacity
  std::uint64_t pool_used_bytes = 0;  // now: allocated, with what size classes round up
  std::uint64_t objects = 0;          // now: local copies, complete or not
  std::uint64_t pinned = 0;           // now: views held by clients
  std::uint64_t evictions = 0;
  std::uint64_t bytes_sent = 0;  // object bytes, all edges
  std::uint64_t bytes_received = 0;
  std::uint64_t edges_started = 0;
  std::uint64_t edges_failed = 0;
  std::uint64_t transport_fallbacks = 0;  // pairs that use TCP though policy would have liked verbs
  std::uint64_t huge_page_bytes = 0;      // of the pool
  std::string node_name;
  NodeId node;
  std::string directory;
  std::vector<std::string> rails;  // one line each
};

class Store {
 public:
  // A client of the daemon behind `socket_path`. Errors: kUnreachable, kVersionMismatch, kTimedOut.
  static Result<Store> connect(const std::string& socket_path, Duration timeout = kDefaultTimeout);

  // `name` in all calls below: 1 … 1024 bytes of UTF-8 without NUL, else kInvalidArgument. The
  // overloads by id are for callers that have ids of their own.
  struct Key {
    Key(std::string_view name);    // NOLINT: implicit on purpose
    Key(const char* name);         // NOLINT
    Key(const std::string& name);  // NOLINT
    Key(const ObjectId& id);       // NOLINT
    Result<ObjectId> id;
    std::string name;
  };

  // Reserves `size` bytes and claims the id (above 64 KiB; see seal()). Errors: kNoSpace,
  // kAlreadyExists.
  Result<ObjectWriter> create(const Key& key, std::uint64_t size,
                              Duration timeout = kDefaultTimeout);
  // Copies `bytes` into the pool and seals.
  Status put(const Key& key, std::span<const std::byte> bytes, Duration timeout = kDefaultTimeout);
  // Serves `bytes` from where they are. They must stay valid and unchanged until erase() of the
  // object has returned (or the node has ended). Registers them, unless they lie in a range of
  // register_memory(). Embedded nodes only; on a daemon's client: kUnsupported.
  Status put_user_memory(const Key& key, std::span<const std::byte> bytes,
                         Duration timeout = kDefaultTimeout);

  // Waits for the object to exist and to be complete on this node.
  // Errors: kTimedOut, kObjectLost, kDeleted, kAborted, kNoSpace.
  Result<ObjectView> get(const Key& key, Duration timeout = kDefaultTimeout);
  Pending<ObjectView> get_async(const Key& key, Duration timeout = kDefaultTimeout);
  // Fills `buffer` and returns the object's size. Errors: as get; kInvalidArgument if the buffer is
  // smaller than the object (it is then untouched). After another error the buffer may hold a part.
  // On an embedded node that has nothing of the object yet the bytes are written straight into the
  // buffer, which is registered for that time unless it lies in a range of register_memory(); no
  // memory of the pool is used, and the node does not become a holder. Should it end before its
  // time, the call returns only when nobody can write to the buffer any more, which takes longer
  // than the deadline if the sender does not answer (some seconds at most). Everywhere else the
  // bytes are copied from the pool while they arrive.
  Result<std::uint64_t> get_into(const Key& key, std::span<std::byte> buffer,
                                 Duration timeout = kDefaultTimeout);

  // Registers memory with all rails of an embedded node, once for many calls of get_into() and
  // put_user_memory(): registering costs more than a transfer of a few MiB, and the node does
  // nothing else meanwhile. The memory must stay mapped as long as the handle and the objects put
  // from it; ranges may overlap. Errors: kInvalidArgument (no bytes), kPermission with limit, need
  // and fix when the locked-memory limit is too low; on a daemon's client: kUnsupported.
  Result<MemoryRegistration> register_memory(std::span<std::byte> memory);

  // Waits until `count` of `keys` exist (readable) and returns the positions of those that do,
  // ascending. Errors: kTimedOut; kInvalidArgument for count 0 or above keys.size().
  Result<std::vector<std::size_t>> wait(std::span<const Key> keys, std::size_t count,
                                        Duration timeout = kDefaultTimeout);
  Pending<std::vector<std::size_t>> wait_async(std::span<const Key> keys, std::size_t count,
                                               Duration timeout = kDefaultTimeout);

  // Makes `target` from `sources`, element by element, and returns when it is complete and can no
  // longer change. Sources are objects of one size, a multiple of the element's, anywhere in the
  // cluster; they need not exist yet, and stay as they are. The target is an ordinary object: its
  // bytes are where the planner put them, gets of it may be made from now on and end soon after
  // this call, and it stays until erase(). Whoever asked owns the undertaking: cancelled, past its
  // deadline or with its process dead, there will be no target, and the name is free again.
  //
  // Refused before anything is sent (kInvalidArgument): no sources or more than 4096, the same one
  // twice, the target among them, a count above their number, an operation that the type does not
  // have (supported() in compute/element.h).
  // Errors: kAlreadyExists (the target does); kInvalidArgument (sizes differ or are no multiple of
  // the element; two objects are named); kDeleted (a source was erased meanwhile, or the target);
  // kAborted (a source's producer gave up); kObjectLost (a source has no complete copy any more,
  // and no other can take its place); kNoSpace; kTimedOut (the sources that are missing are named).
  Result<ReduceResult> reduce(const Key& target, std::span<const Key> sources,
                              const ReduceOptions& options = {},
                              Duration timeout = kDefaultTimeout);
  Pending<ReduceResult> reduce_async(const Key& target, std::span<const Key> sources,
                                     const ReduceOptions& options = {},
                                     Duration timeout = kDefaultTimeout);

  // Errors: kNotFound.
  Result<ObjectStat> stat(const Key& key, Duration timeout = kDefaultTimeout);
  Result<std::vector<ObjectStat>> list(Duration timeout = kDefaultTimeout);
  // Removes every copy in the cluster. Views stay valid. Errors: kNotFound.
  Status erase(const Key& key, Duration timeout = kDefaultTimeout);

  // Returns when `members` callers in the cluster are in the barrier `name`.
  Status barrier(std::string_view name, std::uint32_t members, Duration timeout = kDefaultTimeout);

  Result<NodeStats> stats(Duration timeout = kDefaultTimeout);

  explicit Store(std::shared_ptr<StoreBackend> backend);

 private:
  friend class Group;  // node/group.h
  std::shared_ptr<StoreBackend> backend_;
};

}  // namespace lochos
