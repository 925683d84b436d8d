// One object as this node knows it: wanted, on its way, being made, or complete.
// Engine thread only. Plain data; the rules are in object_index.h and engine_impl.h.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/object_id.h"
#include "directory/messages.h"
#include "node/pool.h"
#include "node/registered_ranges.h"

namespace lochos {

using OperationNumber = std::uint64_t;  // a local client's request under way; 0: none

struct IncomingEdge;
struct OutgoingEdge;
struct ReduceWork;

// What to tell the directory about an edge that ended before its time.
struct FailedEdge {
  EdgeNumber number = 0;
  NodeId assigned_to;
  Errc reason = Errc::kConnectionLost;
};

struct LocalObject {
  enum class State : std::uint8_t {
    kWanted,    // local readers wait; the directory has been asked; size unknown
    kFetching,  // storage is there, an incoming edge fills it (or one is being sought)
    kDraft,     // small object being filled; its id is claimed at seal
    kClaiming,  // Put sent, answer outstanding
    kFilling,   // ours; a local writer fills it
    kComplete,
    kRetired,  // no longer under its id; lives until the last reference goes
  };

  ObjectId id;
  std::string name;
  std::uint64_t size = 0;
  Generation generation = 0;
  State state = State::kWanted;
  bool origin = false;   // made here; kept until erase
  bool inlined = false;  // the directory has the bytes
  bool scratch = false;  // a client's input of a collective operation; under no id

  // Where the bytes are: a block of the pool, or a user's memory (registered, unless it has none).
  bool has_block = false;
  Block block;
  const std::byte* external = nullptr;
  std::shared_ptr<const RegisteredMemory> external_memory;

  // A get into a reader's buffer is the object's only storage, and this node no holder of it: that
  // get, or 0. kWanted or kFetching only. Other local readers wait until it is over.
  OperationNumber into = 0;
  std::span<std::byte> buffer;

  // Bytes [0, valid) are final. Edges deliver in order, so a prefix says it all.
  std::uint64_t valid = 0;

  // Views, writers and edges that need the storage to stay. Storage is freed when retired and zero.
  std::uint32_t references = 0;

  // The target of a reduce under way: readers get it only after Committed.
  bool uncommitted = false;
  ReduceWork* maker = nullptr;  // the work here whose output this is
  // What an edge fills for one reduce alone; not in the index. Its storage may be a part of another
  // object's, which is referenced.
  ReduceWork* feeds = nullptr;
  LocalObject* shares = nullptr;
  std::vector<ReduceWork*> consumers;  // work that combines these bytes as they come

  std::vector<OperationNumber> waiters;  // local gets
  std::vector<OutgoingEdge*> outgoing;
  IncomingEdge* incoming = nullptr;
  RequestNumber directory_request = 0;  // Put or Get outstanding at the directory
  FailedEdge failed_edge;
  std::uint32_t fruitless = 0;  // edges in a row that moved nothing
  Instant ask_at = kNever;      // when the directory is told of the failed edge
  Errc retired_because = Errc::kDeleted;
  OperationNumber erase_waiting =
      0;  // erase() that returns only when external memory is out of use

  std::list<LocalObject*>::iterator lru;
  bool in_lru = false;

  bool has_storage() const { return has_block || external != nullptr; }
  std::string display_name() const { return name.empty() ? id.to_hex() : name; }
};

}  // namespace lochos
