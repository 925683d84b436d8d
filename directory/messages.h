// What nodes and the directory tell each other, as plain values. Use anywhere.
//
// The table (a state machine without I/O) consumes and produces these; directory.fbs is their form
// on the wire and codec.h translates. Every request that expects an answer carries a `request`
// number chosen by the node, unique on its connection's incarnation; requests are idempotent and
// may be re-issued.
//
// The life of a get: Get -> (waits until the object exists) -> Inline | Assign. After Assign the
// child pulls from the parent; then EdgeDone, or EdgeFailed -> Assign again | Failed(kObjectLost,
// kDeleted, kAborted).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/node_id.h"
#include "base/object_id.h"
#include "transport/transport.h"

namespace lochos {

// Objects up to this size travel inside the directory's messages.
inline constexpr std::uint64_t kInlineObjectBytes = 64 * 1024;
// A frame (greeting aside) is a 32-bit length and that many bytes; longer is refused before
// allocation. Bounds an inline object plus a name, and a batch of Hold or Entry.
inline constexpr std::uint32_t kMaxFrameBytes = 1024 * 1024;

using RequestNumber = std::uint64_t;
using Generation = std::uint64_t;  // 0: no generation
using EdgeNumber = std::uint64_t;  // unique for the life of a directory; 0: no edge
using Bytes = std::vector<std::byte>;

// ---- node to directory ----

// First message after the greeting. A node that was declared dead, or that lost its connection,
// joins again and gets a new NodeId incarnation; the number is kept if `previous` is known.
struct Join {
  std::string name;  // for people; may be empty
  std::vector<RailAddress> rails;
  TransportPolicy policy = TransportPolicy::kAuto;
  NodeId previous;
  std::uint64_t pool_bytes = 0;
};
// Clean goodbye: what the node holds is gone, at once.
struct Leave {};
struct Heartbeat {};
// After a (re)join: the node holds these bytes of an object. Complete copies and unfinished own
// puts only.
struct Hold {
  ObjectId id;
  Generation generation = 0;
  std::string name;
  std::uint64_t size = 0;
  bool complete = false;
  bool origin = false;  // made by a put here (kept until erase), not fetched
  Bytes inline_bytes;   // for objects up to kInlineObjectBytes that are complete: their bytes
};
// A new object. If size <= kInlineObjectBytes it must be sent complete, with its bytes in
// `inline_bytes`. Answer: PutReply, or Failed(kAlreadyExists).
struct Put {
  RequestNumber request = 0;
  ObjectId id;
  std::string name;  // may be empty if the caller gave only an id
  std::uint64_t size = 0;
  bool complete = false;
  Bytes inline_bytes;
};
// The producer has filled its buffer; the copy at the origin is complete. No answer.
struct Seal {
  ObjectId id;
  Generation generation = 0;
};
// The producer gave up before Seal: waiting readers get kAborted, the id is free. No answer.
struct Abandon {
  ObjectId id;
  Generation generation = 0;
};
// Answer: Inline or Assign as soon as the object exists (it may take for ever: the node cancels),
// or Failed. One outstanding Get per node and object: the node merges its local readers.
struct Get {
  RequestNumber request = 0;
  ObjectId id;
  bool leaf = false;  // this copy will not be offered to others (it lies in a user's buffer)
};
struct CancelGet {  // also ends the edge if one was assigned. No answer.
  RequestNumber request = 0;
  ObjectId id;
};
// The child has all bytes. No answer. The measurements feed the link model.
struct EdgeDone {
  EdgeNumber edge = 0;
  ObjectId id;
  Generation generation = 0;
  std::uint64_t bytes = 0;  // moved over this edge
  Duration elapsed{0};      // from Pull to the last chunk
  Duration stalled{0};      // of it: known to be waiting for the parent's own data; 0 if unknown
  Duration round_trip{0};   // measured on the connection at set-up; 0 if unknown
};
// The child got nothing more from its parent. Answer (to the Get's request number): Assign or
// Failed.
struct EdgeFailed {
  RequestNumber request = 0;  // of the Get
  EdgeNumber edge = 0;
  ObjectId id;
  Generation generation = 0;
  std::uint64_t have_bytes = 0;  // the valid prefix at the child
  Errc reason = Errc::kConnectionLost;
};
// This node no longer has a copy (evicted). No answer.
struct Drop {
  ObjectId id;
  Generation generation = 0;
};
// Answer: EraseReply.
struct Erase {
  RequestNumber request = 0;
  ObjectId id;
};
// Answer: StatReply or Failed(kNotFound).
struct Stat {
  RequestNumber request = 0;
  ObjectId id;
};
// Answer: ListReply. Pages: pass the last entry's id as `after`; ids are in ascending order.
struct List {
  RequestNumber request = 0;
  ObjectId after;  // exclusive; zero: from the start
  std::uint32_t limit = 1000;
};
// Answer: WaitReply once `count` of `ids` exist. CancelWait if the node no longer cares.
struct Wait {
  RequestNumber request = 0;
  std::vector<ObjectId> ids;  // at most kMaxWaitIds
  std::uint32_t count = 0;
};
inline constexpr std::size_t kMaxWaitIds = 10'000;
// Takes back a Wait or a Barrier.
struct CancelWait {
  RequestNumber request = 0;
};
// Answer: BarrierReply to all once `members` nodes (or embedded ranks) have entered barrier `name`;
// the name can then be used again. A node that dies while others wait: Failed(kAborted) to them.
struct Barrier {
  RequestNumber request = 0;
  std::string name;  // at most kMaxNameBytes
  std::uint32_t members = 0;
};
// Answer: MembersReply.
struct Members {
  RequestNumber request = 0;
};

using NodeMessage =
    std::variant<Join, Leave, Heartbeat, Hold, Put, Seal, Abandon, Get, CancelGet, EdgeDone,
                 EdgeFailed, Drop, Erase, Stat, List, Wait, CancelWait, Barrier, Members>;

// ---- directory to node ----

struct Joined {
  NodeId node;
  std::uint64_t epoch = 0;
  std::uint64_t cluster = 0;  // goes into the hello of data connections
  Duration heartbeat_interval{0};
  Duration dead_after{0};
};
struct PutReply {
  RequestNumber request = 0;
  Generation generation = 0;
};
struct Inline {
  RequestNumber request = 0;
  Generation generation = 0;
  std::string name;
  Bytes bytes;
};
// Pull this object from `parent`.
struct Assign {
  RequestNumber request = 0;
  EdgeNumber edge = 0;
  Generation generation = 0;
  std::string name;
  std::uint64_t size = 0;
  std::uint64_t chunk_bytes = 0;
  NodeId parent;
  std::vector<RailAddress> rails;  // of the parent
  TransportPolicy parent_policy = TransportPolicy::kAuto;
};
struct Failed {
  RequestNumber request = 0;
  Errc code = Errc::kSystem;
  std::string message;
};
struct EraseReply {
  RequestNumber request = 0;
  bool existed = false;
};
struct HolderEntry {
  NodeId node;
  std::string node_name;
  bool complete = false;
  NodeId parent;  // of a partial holder
};
struct StatReply {
  RequestNumber request = 0;
  Generation generation = 0;
  std::string name;
  std::uint64_t size = 0;
  bool sealed = false;  // a complete copy exists somewhere
  bool is_inline = false;
  std::vector<HolderEntry> holders;  // at most 1000
};
struct ListEntry {
  ObjectId id;
  std::string name;
  std::uint64_t size = 0;
  bool sealed = false;
  std::uint32_t holders = 0;
};
struct ListReply {
  RequestNumber request = 0;
  std::vector<ListEntry> entries;
  bool more = false;
};
struct WaitReply {
  RequestNumber request = 0;
  std::vector<ObjectId> ready;
};
struct BarrierReply {
  RequestNumber request = 0;
};
struct MemberEntry {
  NodeId node;
  std::string name;
  std::vector<RailAddress> rails;
  TransportPolicy policy = TransportPolicy::kAuto;
  std::uint64_t pool_bytes = 0;
};
struct MembersReply {
  RequestNumber request = 0;
  std::vector<MemberEntry> members;
};
// The parent of this edge was declared dead, or a better one is wanted: stop and send EdgeFailed.
struct EdgeRevoked {
  EdgeNumber edge = 0;
  ObjectId id;
  Errc reason = Errc::kConnectionLost;
};
// Erased: every copy of this generation goes, running gets end with kDeleted.
struct Deleted {
  ObjectId id;
  Generation generation = 0;
};
// The producer abandoned it, or it was lost: copies go; running gets end with `reason`.
struct Withdrawn {
  ObjectId id;
  Generation generation = 0;
  Errc reason = Errc::kAborted;
};
// This incarnation was declared dead. Join anew and register what you hold.
struct Fenced {};
// This Hold is of an older generation than the one that lives (or was erased meanwhile): drop the
// copy.
using DirectoryMessage =
    std::variant<Joined, PutReply, Inline, Assign, Failed, EraseReply, StatReply, ListReply,
                 WaitReply, BarrierReply, MembersReply, EdgeRevoked, Deleted, Withdrawn, Fenced>;

}  // namespace lochos
