// What a local client (an embedded Store, or a process behind the node's Unix socket) and the
// engine say to each other, as plain values. Use anywhere. local.fbs is their form on the socket.
//
// Every request with a `request` number gets exactly one LocalReply with that number (Progress
// replies excepted, which come before it). Numbers are chosen by the client, unique while
// outstanding, never 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/object_id.h"
#include "compute/element.h"
#include "directory/messages.h"
#include "node/store.h"

namespace lochos {

using LocalRequestNumber = std::uint64_t;
using WriterNumber = std::uint64_t;        // an object being made; unique in the node's life
using PinNumber = std::uint64_t;           // a view held by a client; unique in the node's life
using RegistrationNumber = std::uint64_t;  // a range of user memory; unique in the node's life

// Objects up to this size are put with LocalPutInline: one round trip to the engine instead of two,
// and the copy into the message costs less than that (measured: docs/performance.md).
inline constexpr std::uint64_t kLocalInlineBytes = 64 * 1024;

// Answer: LocalCreated.
struct LocalCreate {
  LocalRequestNumber request = 0;
  ObjectId id;
  std::string name;
  std::uint64_t size = 0;
  Duration timeout{0};
};
// A small object at once: create, fill and seal in one message. Answer: LocalDone.
struct LocalPutInline {
  LocalRequestNumber request = 0;
  ObjectId id;
  std::string name;
  std::vector<std::byte> bytes;  // at most kLocalInlineBytes
  Duration timeout{0};
};
// The first `count` bytes are final. No answer.
struct LocalPublish {
  WriterNumber writer = 0;
  std::uint64_t count = 0;
};
// All bytes are final. Answer: LocalDone. On failure the writer is gone.
struct LocalSeal {
  LocalRequestNumber request = 0;
  WriterNumber writer = 0;
  Duration timeout{0};
};
struct LocalAbandon {  // No answer.
  WriterNumber writer = 0;
};
// Embedded clients only: serve this memory as an object. Answer: LocalDone.
struct LocalPutUserMemory {
  LocalRequestNumber request = 0;
  ObjectId id;
  std::string name;
  const std::byte* address = nullptr;
  std::uint64_t size = 0;
  Duration timeout{0};
};
// Answer: LocalView, after any number of LocalProgress if `progress`.
struct LocalGet {
  LocalRequestNumber request = 0;
  ObjectId id;
  std::string name;
  Duration timeout{0};
  bool progress = false;
};
// Embedded clients only: a get of all bytes into the caller's memory. Answer: LocalReceived if they
// went there straight; else as to a LocalGet with `progress`, and the client copies. Until the
// answer the engine may write to the memory, whatever the deadline is.
struct LocalGetInto {
  LocalRequestNumber request = 0;
  ObjectId id;
  std::string name;
  std::byte* address = nullptr;
  std::uint64_t capacity = 0;
  Duration timeout{0};
};
// Embedded clients only: register this memory with every rail. Answer: LocalRegistered.
struct LocalRegisterMemory {
  LocalRequestNumber request = 0;
  std::byte* address = nullptr;
  std::uint64_t size = 0;
};
// New operations do not use the registration any more. Answer: LocalDone.
struct LocalUnregisterMemory {
  LocalRequestNumber request = 0;
  RegistrationNumber registration = 0;
};
struct LocalRelease {  // A view or a LocalProgress pin is no longer needed. No answer.
  PinNumber pin = 0;
};
// Ends an outstanding request: its reply is an error kCancelled unless it was just done. No answer
// of its own.
struct LocalCancel {
  LocalRequestNumber request = 0;
};
// Answer: LocalReady.
struct LocalWait {
  LocalRequestNumber request = 0;
  std::vector<ObjectId> ids;
  std::uint32_t count = 0;
  Duration timeout{0};
};
struct LocalStat {  // Answer: ObjectStat.
  LocalRequestNumber request = 0;
  ObjectId id;
  std::string name;
  Duration timeout{0};
};
struct LocalList {  // Answer: LocalListPage.
  LocalRequestNumber request = 0;
  ObjectId after;
  std::uint32_t limit = 1000;
  Duration timeout{0};
};
struct LocalErase {  // Answer: LocalDone.
  LocalRequestNumber request = 0;
  ObjectId id;
  std::string name;
  Duration timeout{0};
};
struct LocalBarrier {  // Answer: LocalDone.
  LocalRequestNumber request = 0;
  std::string name;
  std::uint32_t members = 0;
  Duration timeout{0};
};
// Store::reduce has checked it; a client of another make may not have. Answer: LocalReduced. A
// LocalCancel takes it back, and so does the end of the client: then there will be no target.
struct LocalReduce {
  LocalRequestNumber request = 0;
  ObjectId target;
  std::string name;  // of the target; may be empty
  std::vector<ReduceSource> sources;
  std::uint32_t count = 0;  // 1 … sources.size()
  ReduceOp op = ReduceOp::kSum;
  DataType dtype = DataType::kF32;
  bool deterministic = false;
  Duration timeout{0};
};
struct LocalStats {  // Answer: NodeStats.
  LocalRequestNumber request = 0;
};

// Memory of the pool for the input of a collective operation: no object, known to nobody else.
// Answer: LocalCreated. LocalAbandon gives it back, LocalCollective takes it over.
struct LocalScratch {
  LocalRequestNumber request = 0;
  std::uint64_t size = 0;
  Duration timeout{0};
};
// Takes part in a collective operation as one member of a group, with the input that lies in the
// scratch memory `writer`. 0: this member gives no input; where one is expected it had no room for
// it, and all members get kNoSpace instead of waiting for this one. Answer: LocalView of the
// result; its generation is 0, and it is no object under any id.
struct LocalCollective {
  LocalRequestNumber request = 0;
  WriterNumber writer = 0;
  std::string name;
  CollectiveSpec spec;
  Duration timeout{0};
};

using LocalMessage =
    std::variant<LocalCreate, LocalPutInline, LocalPublish, LocalSeal, LocalAbandon,
                 LocalPutUserMemory, LocalGetInto, LocalRegisterMemory, LocalUnregisterMemory,
                 LocalGet, LocalRelease, LocalCancel, LocalWait, LocalStat, LocalList, LocalErase,
                 LocalBarrier, LocalStats, LocalReduce, LocalScratch, LocalCollective>;

struct LocalDone {};
struct LocalCreated {
  WriterNumber writer = 0;
  std::uint64_t offset = 0;  // in the pool
  std::uint64_t size = 0;
};
struct LocalView {
  PinNumber pin = 0;
  std::uint64_t offset = 0;  // in the pool, unless `external`
  std::uint64_t size = 0;
  std::uint64_t generation = 0;
  const std::byte* external =
      nullptr;  // the object lies in user memory of this process (embedded clients only)
};
// The first `valid` bytes have arrived. Comes at most once an engine turn. The first one of a
// request opens `pin`, which keeps the bytes readable; the LocalView of the same request carries
// the same pin. If the get fails after a progress reply the pin is still the client's to release.
struct LocalProgress {
  PinNumber pin = 0;
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  std::uint64_t valid = 0;
  std::uint64_t generation = 0;
};
// All bytes are in the caller's memory, and nobody writes to it any more.
struct LocalReceived {
  std::uint64_t size = 0;
  std::uint64_t generation = 0;
};
struct LocalRegistered {
  RegistrationNumber registration = 0;
};
struct LocalReady {
  std::vector<std::uint32_t> positions;  // in the request's ids, ascending
};
struct LocalListPage {
  std::vector<ObjectStat> objects;
  bool more = false;
};

// The target is complete and can no longer change.
struct LocalReduced {
  std::uint64_t size = 0;
  std::uint64_t generation = 0;
  std::vector<std::uint32_t> included;  // positions in the request's sources, ascending
};

using LocalPayload =
    std::variant<LocalDone, LocalCreated, LocalView, LocalProgress, LocalReceived, LocalRegistered,
                 LocalReady, ObjectStat, LocalListPage, NodeStats, LocalReduced>;

struct LocalReply {
  LocalRequestNumber request = 0;
  Result<LocalPayload> result;
};

}  // namespace lochos
