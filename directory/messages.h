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
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/node_id.h"
#include "base/object_id.h"
#include "compute/element.h"
#include "scheduler/collective_plan.h"
#include "transport/transport.h"

namespace lochos {

// Objects up to this size travel inside the directory's messages.
inline constexpr std::uint64_t kInlineObjectBytes = 64 * 1024;
// A frame (greeting aside) is a 32-bit length and that many bytes; longer is refused before
// allocation. Bounds an inline object plus a name, and a batch of Hold or Entry.
inline constexpr std::uint32_t kMaxFrameBytes = 1024 * 1024;

// Bounds what one member makes every Assign and member list carry; a join beyond them is refused.
inline constexpr std::size_t kMaxRails = 16;
inline constexpr std::size_t kMaxRailAddressBytes = 256;
// Replies that list things stop here, so that they fit into a frame with room for their last entry.
inline constexpr std::size_t kMaxReplyBytes = 768 * 1024;
inline constexpr std::size_t kMaxStatHolders = 1000;
static_assert(kMaxReplyBytes + kInlineObjectBytes < kMaxFrameBytes);

using RequestNumber = std::uint64_t;
using Generation = std::uint64_t;  // 0: no generation
using EdgeNumber = std::uint64_t;  // unique for the life of a directory; 0: no edge
using Bytes = std::vector<std::byte>;

// Immutable bytes that many messages may carry without copying them: one inline object goes to
// thousands of readers. Reads like a vector. Value; the bytes themselves are shared.
class SharedBytes {
 public:
  SharedBytes() = default;
  SharedBytes(Bytes bytes) {  // NOLINT(google-explicit-constructor): a vector in another coat
    if (!bytes.empty()) bytes_ = std::make_shared<const Bytes>(std::move(bytes));
  }

  std::size_t size() const { return bytes_ ? bytes_->size() : 0; }
  bool empty() const { return !bytes_; }
  const std::byte* data() const { return bytes_ ? bytes_->data() : nullptr; }
  const std::byte* begin() const { return data(); }
  const std::byte* end() const { return data() + size(); }
  Bytes to_bytes() const { return bytes_ ? *bytes_ : Bytes(); }
  bool operator==(const SharedBytes& other) const {
    return bytes_ == other.bytes_ || (bytes_ && other.bytes_ && *bytes_ == *other.bytes_);
  }

 private:
  std::shared_ptr<const Bytes> bytes_;
};

// Counts the reduces of a directory's life, and the plans of one reduce. 0: none.
using ReduceNumber = std::uint64_t;
using AttemptNumber = std::uint64_t;
// Counts the collective operations of a directory's life. 0: none.
using CollectiveNumber = std::uint64_t;

// What a reduce is made from. Value.
struct ReduceSource {
  ObjectId id;
  std::string name;  // for people; may be empty
  bool operator==(const ReduceSource&) const = default;
};
// Bounds one Reduce (it must fit into a frame with the longest names it is likely to carry).
inline constexpr std::size_t kMaxReduceSources = 4096;

// ---- node to directory ----

// First message after the greeting. A node that was declared dead, or that lost its connection,
// joins again and gets a new NodeId incarnation; the number is kept if `previous` is known.
struct Join {
  std::string name;  // for people; may be empty
  std::vector<RailAddress> rails;
  TransportPolicy policy = TransportPolicy::kAuto;
  NodeId previous;
  std::uint64_t pool_bytes = 0;
  bool operator==(const Join&) const = default;
};
// Clean goodbye: what the node holds is gone, at once.
struct Leave {
  bool operator==(const Leave&) const = default;
};
struct Heartbeat {
  bool operator==(const Heartbeat&) const = default;
};
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
  bool operator==(const Hold&) const = default;
};
// A new object. If size <= kInlineObjectBytes it must be sent complete, with its bytes in
// `inline_bytes`. Answer: PutReply, or Failed(kAlreadyExists). A Get of the same id that this node
// had waiting ends unanswered: the node serves its readers itself.
struct Put {
  RequestNumber request = 0;
  ObjectId id;
  std::string name;  // may be empty if the caller gave only an id
  std::uint64_t size = 0;
  bool complete = false;
  Bytes inline_bytes{};
  bool operator==(const Put&) const = default;
};
// The producer has filled its buffer; the copy at the origin is complete. No answer.
struct Seal {
  ObjectId id;
  Generation generation = 0;
  bool operator==(const Seal&) const = default;
};
// The producer gave up before Seal: waiting readers get kAborted, the id is free. No answer.
struct Abandon {
  ObjectId id;
  Generation generation = 0;
  bool operator==(const Abandon&) const = default;
};
// Answer: Inline or Assign as soon as the object exists (it may take for ever: the node cancels),
// or Failed. One outstanding Get per node and object: the node merges its local readers.
struct Get {
  RequestNumber request = 0;
  ObjectId id;
  bool leaf = false;  // this copy will not be offered to others (it lies in a user's buffer)
  bool operator==(const Get&) const = default;
};
struct CancelGet {  // also ends the edge if one was assigned. No answer.
  RequestNumber request = 0;
  ObjectId id;
  bool operator==(const CancelGet&) const = default;
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
  bool operator==(const EdgeDone&) const = default;
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
  bool operator==(const EdgeFailed&) const = default;
};
// This node no longer has a copy (evicted). No answer.
struct Drop {
  ObjectId id;
  Generation generation = 0;
  bool operator==(const Drop&) const = default;
};
// Answer: EraseReply.
struct Erase {
  RequestNumber request = 0;
  ObjectId id;
  bool operator==(const Erase&) const = default;
};
// Answer: StatReply or Failed(kNotFound).
struct Stat {
  RequestNumber request = 0;
  ObjectId id;
  bool operator==(const Stat&) const = default;
};
// Answer: ListReply. Pages: pass the last entry's id as `after`; ids are in ascending order.
struct List {
  RequestNumber request = 0;
  ObjectId after;  // exclusive; zero: from the start
  std::uint32_t limit = 1000;
  bool operator==(const List&) const = default;
};
// Answer: WaitReply once `count` of `ids` exist. CancelWait if the node no longer cares.
struct Wait {
  RequestNumber request = 0;
  std::vector<ObjectId> ids;  // at most kMaxWaitIds
  std::uint32_t count = 0;
  bool operator==(const Wait&) const = default;
};
inline constexpr std::size_t kMaxWaitIds = 10'000;
// Takes back a Wait, a Barrier or a Reduce.
struct CancelWait {
  RequestNumber request = 0;
  bool operator==(const CancelWait&) const = default;
};
// Answer: BarrierReply to all once `members` nodes (or embedded ranks) have entered barrier `name`;
// the name can then be used again. A node that dies while others wait: Failed(kAborted) to them.
struct Barrier {
  RequestNumber request = 0;
  std::string name;  // at most kMaxNameBytes
  std::uint32_t members = 0;
  bool operator==(const Barrier&) const = default;
};
// Answer: MembersReply.
struct Members {
  RequestNumber request = 0;
  bool operator==(const Members&) const = default;
};

// Makes `target` from the first `count` of `sources` to exist. Answer: ReduceReply when the target
// is complete and can no longer change, or Failed. CancelWait takes it back, and so does the death
// of the node that asked: then the target does not come into being. Meanwhile the target's id is
// taken, and gets of it start as soon as its first bytes can be known.
struct Reduce {
  RequestNumber request = 0;
  ObjectId target;
  std::string name;                   // of the target; may be empty
  std::vector<ReduceSource> sources;  // at most kMaxReduceSources, all different
  std::uint32_t count = 0;            // 1 … sources.size()
  ReduceOp op = ReduceOp::kSum;
  DataType dtype = DataType::kF32;
  bool deterministic = false;  // the same bits whatever the order of arrival
  Duration timeout{0};
  bool operator==(const Reduce&) const = default;
};
// A node has finished the target of a reduce: all its bytes are there. Answer: Committed.
struct ReduceDone {
  ReduceNumber reduce = 0;
  std::uint32_t slot = 0;
  AttemptNumber attempt = 0;
  bool operator==(const ReduceDone&) const = default;
};
// A node cannot go on with its part of a reduce. No answer of its own: the directory finds another
// way or ends the reduce.
struct ReduceFailed {
  ReduceNumber reduce = 0;
  std::uint32_t slot = 0;
  AttemptNumber attempt = 0;
  ObjectId input;  // what could not be had; zero if it is not an input that failed
  Errc reason = Errc::kConnectionLost;
  std::string message;
  bool operator==(const ReduceFailed&) const = default;
};

// A member of a group takes part in a collective operation. Answer: CollectivePeers, once or more
// often as those turn up that it needs; Failed if a member goes, gives up, or says something else
// than the others of what is to be done. The last word about it is CollectiveEnd. CancelWait takes
// it back, which fails it for all.
struct CollectiveJoin {
  RequestNumber request = 0;
  std::string name;  // of this operation of this group; at most kMaxNameBytes
  CollectiveSpec spec;
  Duration timeout{0};  // then this member gives up, and is told who is missing
  bool operator==(const CollectiveJoin&) const = default;
};
// This member has its result; others may still need its streams. No answer before CollectiveEnd.
struct CollectiveDone {
  CollectiveNumber collective = 0;
  std::uint32_t rank = 0;
  bool operator==(const CollectiveDone&) const = default;
};
// This member cannot go on.
struct CollectiveFailed {
  CollectiveNumber collective = 0;
  std::uint32_t rank = 0;
  Errc reason = Errc::kConnectionLost;
  std::string message;
  bool operator==(const CollectiveFailed&) const = default;
};

using NodeMessage =
    std::variant<Join, Leave, Heartbeat, Hold, Put, Seal, Abandon, Get, CancelGet, EdgeDone,
                 EdgeFailed, Drop, Erase, Stat, List, Wait, CancelWait, Barrier, Members, Reduce,
                 ReduceDone, ReduceFailed, CollectiveJoin, CollectiveDone, CollectiveFailed>;

// ---- directory to node ----

struct Joined {
  NodeId node;
  std::uint64_t epoch = 0;
  std::uint64_t cluster = 0;  // goes into the hello of data connections
  Duration heartbeat_interval{0};
  Duration dead_after{0};
  bool operator==(const Joined&) const = default;
};
struct PutReply {
  RequestNumber request = 0;
  Generation generation = 0;
  bool operator==(const PutReply&) const = default;
};
struct Inline {
  RequestNumber request = 0;
  Generation generation = 0;
  std::string name;
  SharedBytes bytes;
  bool operator==(const Inline&) const = default;
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
  // The object is the target of a reduce under way: its bytes may still be replaced by those of
  // another attempt (Restarted). Readers get it only after Committed.
  bool uncommitted = false;
  bool operator==(const Assign&) const = default;
};
struct Failed {
  RequestNumber request = 0;
  Errc code = Errc::kSystem;
  std::string message;
  bool operator==(const Failed&) const = default;
};
struct EraseReply {
  RequestNumber request = 0;
  bool existed = false;
  bool operator==(const EraseReply&) const = default;
};
struct HolderEntry {
  NodeId node;
  std::string node_name;
  bool complete = false;
  NodeId parent;  // of a partial holder
  bool operator==(const HolderEntry&) const = default;
};
struct StatReply {
  RequestNumber request = 0;
  Generation generation = 0;
  std::string name;
  std::uint64_t size = 0;
  bool sealed = false;  // a complete copy exists somewhere
  bool is_inline = false;
  std::vector<HolderEntry> holders;  // at most 1000
  bool operator==(const StatReply&) const = default;
};
struct ListEntry {
  ObjectId id;
  std::string name;
  std::uint64_t size = 0;
  bool sealed = false;
  std::uint32_t holders = 0;
  Generation generation = 0;
  bool operator==(const ListEntry&) const = default;
};
struct ListReply {
  RequestNumber request = 0;
  std::vector<ListEntry> entries;
  bool more = false;
  bool operator==(const ListReply&) const = default;
};
struct WaitReply {
  RequestNumber request = 0;
  std::vector<ObjectId> ready;
  bool operator==(const WaitReply&) const = default;
};
struct BarrierReply {
  RequestNumber request = 0;
  bool operator==(const BarrierReply&) const = default;
};
struct MemberEntry {
  NodeId node;
  std::string name;
  std::vector<RailAddress> rails;
  TransportPolicy policy = TransportPolicy::kAuto;
  std::uint64_t pool_bytes = 0;
  bool operator==(const MemberEntry&) const = default;
};
struct MembersReply {
  RequestNumber request = 0;
  std::vector<MemberEntry> members;
  bool operator==(const MembersReply&) const = default;
};
// The parent of this edge was declared dead, or a better one is wanted: stop and send EdgeFailed.
struct EdgeRevoked {
  EdgeNumber edge = 0;
  ObjectId id;
  Errc reason = Errc::kConnectionLost;
  bool operator==(const EdgeRevoked&) const = default;
};
// Erased: every copy of this generation goes, running gets end with kDeleted.
struct Deleted {
  ObjectId id;
  Generation generation = 0;
  bool operator==(const Deleted&) const = default;
};
// The producer abandoned it, or it was lost, or a Hold named a generation that lives no more (older
// than the living one, or erased meanwhile): copies go; running gets end with `reason`.
struct Withdrawn {
  ObjectId id;
  Generation generation = 0;
  Errc reason = Errc::kAborted;
  bool operator==(const Withdrawn&) const = default;
};
// This incarnation was declared dead. Join anew and register what you hold.
struct Fenced {
  bool operator==(const Fenced&) const = default;
};
struct ReduceReply {
  RequestNumber request = 0;
  Generation generation = 0;
  std::uint64_t size = 0;
  std::vector<std::uint32_t> included;  // positions in the request's sources, ascending
  bool operator==(const ReduceReply&) const = default;
};
// One of the streams that a ReduceTask combines.
struct ReduceInput {
  ObjectId id;  // an object of this node (a source), or the output of another task
  Generation generation = 0;
  NodeId node;  // where it is; the receiver itself: no transfer is needed
  std::vector<RailAddress> rails;
  TransportPolicy policy = TransportPolicy::kAuto;
  bool operator==(const ReduceInput&) const = default;
};
// Combine these streams, byte for byte as they arrive, in the order given, into `output`. Sent
// again with more inputs as they become known; nothing is combined before all are. Anyone may pull
// the output under its id and generation meanwhile. An output that is not the target is known to
// nobody but this reduce, and ends with ReduceCancel.
struct ReduceTask {
  ReduceNumber reduce = 0;
  std::uint32_t slot = 0;
  AttemptNumber attempt = 0;
  ObjectId output;
  Generation generation = 0;
  bool is_target = false;  // say ReduceDone at the end, and keep the output like a put
  std::string name;        // of the target
  std::uint64_t size = 0;
  std::uint64_t chunk_bytes = 0;
  ReduceOp op = ReduceOp::kSum;
  DataType dtype = DataType::kF32;
  std::uint32_t divisor = 1;  // the target of an average divides by it
  std::uint32_t expected_inputs = 0;
  std::vector<ReduceInput> inputs;  // at least one
  bool operator==(const ReduceTask&) const = default;
};
// The task is no longer needed, or (attempt) another one takes its place. What it made goes, unless
// it is a committed target.
struct ReduceCancel {
  ReduceNumber reduce = 0;
  std::uint32_t slot = 0;
  AttemptNumber attempt = 0;
  bool operator==(const ReduceCancel&) const = default;
};
// The reduce that makes this object is done: what is complete of this generation may be read.
struct Committed {
  ObjectId id;
  Generation generation = 0;
  bool operator==(const Committed&) const = default;
};
// The target of a reduce is being made anew: drop what is there of this generation, tell nobody,
// and ask for the object again.
struct Restarted {
  ObjectId id;
  Generation generation = 0;
  bool operator==(const Restarted&) const = default;
};
// Where members are from whose streams the receiver makes its own.
struct CollectivePeer {
  std::uint32_t rank = 0;
  NodeId node;
  std::vector<RailAddress> rails;
  TransportPolicy policy = TransportPolicy::kAuto;
  bool operator==(const CollectivePeer&) const = default;
};
struct CollectivePeers {
  RequestNumber request = 0;
  CollectiveNumber collective = 0;
  std::uint64_t chunk_bytes = 0;
  std::vector<CollectivePeer> peers;
  CollectiveSchedule schedule = CollectiveSchedule::kRing;
  bool operator==(const CollectivePeers&) const = default;
};
// All members have their results, or none will: nobody needs anybody's streams any more.
struct CollectiveEnd {
  CollectiveNumber collective = 0;
  bool operator==(const CollectiveEnd&) const = default;
};
using DirectoryMessage =
    std::variant<Joined, PutReply, Inline, Assign, Failed, EraseReply, StatReply, ListReply,
                 WaitReply, BarrierReply, MembersReply, EdgeRevoked, Deleted, Withdrawn, Fenced,
                 ReduceReply, ReduceTask, ReduceCancel, Committed, Restarted, CollectivePeers,
                 CollectiveEnd>;

}  // namespace lochos
