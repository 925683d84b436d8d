// Random messages for RapidCheck. Call within a property.
#pragma once

#include <rapidcheck.h>

#include <string>
#include <utility>
#include <vector>

#include "directory/messages.h"

namespace lochos::test {

template <class T>
T any() {
  return *rc::gen::arbitrary<T>();
}
// Many bytes from one draw: RapidCheck would spend its time on each of them, and shrinking them one
// by one finds nothing.
template <class Out>
void scatter(Out& out) {
  auto state = any<std::uint64_t>();
  for (auto& byte : out) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    byte = static_cast<std::decay_t<decltype(byte)>>(state >> 56);
  }
}
template <>
inline ObjectId any<ObjectId>() {
  ObjectId id;
  scatter(id.bytes);
  return id;
}
template <>
inline NodeId any<NodeId>() {
  return {any<std::uint32_t>(), any<std::uint64_t>()};
}
template <>
inline Duration any<Duration>() {
  return Duration(any<std::int64_t>());
}
template <>
inline Bytes any<Bytes>() {
  Bytes bytes(*rc::gen::inRange<std::size_t>(0, 300));
  for (std::byte& byte : bytes)
    byte = static_cast<std::byte>(any<std::uint8_t>());
  return bytes;
}
template <>
inline Errc any<Errc>() {
  return static_cast<Errc>(*rc::gen::inRange(0, static_cast<int>(Errc::kSystem) + 1));
}
template <>
inline TransportPolicy any<TransportPolicy>() {
  return static_cast<TransportPolicy>(*rc::gen::inRange(0, 3));
}
template <>
inline ReduceOp any<ReduceOp>() {
  return *rc::gen::elementOf(kReduceOps);
}
template <>
inline DataType any<DataType>() {
  return *rc::gen::elementOf(kDataTypes);
}
template <>
inline CollectiveSpec any<CollectiveSpec>() {
  return {static_cast<CollectiveKind>(
              *rc::gen::inRange(0, static_cast<int>(CollectiveKind::kAllToAll) + 1)),
          any<std::uint32_t>(),
          any<std::uint32_t>(),
          any<std::uint32_t>(),
          any<std::uint64_t>(),
          any<ReduceOp>(),
          any<DataType>()};
}
template <class T, class F>
std::vector<T> several(F&& make) {
  std::vector<T> values(*rc::gen::inRange<std::size_t>(0, 5));
  for (T& value : values)
    value = make();
  return values;
}
inline std::vector<RailAddress> any_rails() {
  return several<RailAddress>([] {
    return RailAddress{static_cast<TransportKind>(*rc::gen::inRange(1, 4)), any<std::string>()};
  });
}

inline void fill(Join& m) {
  m = {any<std::string>(), any_rails(), any<TransportPolicy>(), any<NodeId>(),
       any<std::uint64_t>()};
}
inline void fill(Leave&) {}
inline void fill(Heartbeat&) {}
inline void fill(Hold& m) {
  m = {any<ObjectId>(), any<Generation>(), any<std::string>(), any<std::uint64_t>(),
       any<bool>(),     any<bool>(),       any<Bytes>()};
}
inline void fill(Put& m) {
  m = {any<RequestNumber>(), any<ObjectId>(), any<std::string>(),
       any<std::uint64_t>(), any<bool>(),     any<Bytes>()};
}
inline void fill(Seal& m) {
  m = {any<ObjectId>(), any<Generation>()};
}
inline void fill(Abandon& m) {
  m = {any<ObjectId>(), any<Generation>()};
}
inline void fill(Get& m) {
  m = {any<RequestNumber>(), any<ObjectId>(), any<bool>()};
}
inline void fill(CancelGet& m) {
  m = {any<RequestNumber>(), any<ObjectId>()};
}
inline void fill(EdgeDone& m) {
  m = {any<EdgeNumber>(), any<ObjectId>(), any<Generation>(), any<std::uint64_t>(),
       any<Duration>(),   any<Duration>(), any<Duration>()};
}
inline void fill(EdgeFailed& m) {
  m = {any<RequestNumber>(), any<EdgeNumber>(),    any<ObjectId>(),
       any<Generation>(),    any<std::uint64_t>(), any<Errc>()};
}
inline void fill(Drop& m) {
  m = {any<ObjectId>(), any<Generation>()};
}
inline void fill(Erase& m) {
  m = {any<RequestNumber>(), any<ObjectId>()};
}
inline void fill(Stat& m) {
  m = {any<RequestNumber>(), any<ObjectId>()};
}
inline void fill(List& m) {
  m = {any<RequestNumber>(), any<ObjectId>(), any<std::uint32_t>()};
}
inline void fill(Wait& m) {
  m = {any<RequestNumber>(), several<ObjectId>(any<ObjectId>), any<std::uint32_t>()};
}
inline void fill(CancelWait& m) {
  m = {any<RequestNumber>()};
}
inline void fill(Barrier& m) {
  m = {any<RequestNumber>(), any<std::string>(), any<std::uint32_t>()};
}
inline void fill(Members& m) {
  m = {any<RequestNumber>()};
}
inline void fill(Reduce& m) {
  m = {any<RequestNumber>(),
       any<ObjectId>(),
       any<std::string>(),
       several<ReduceSource>([] {
         return ReduceSource{any<ObjectId>(), any<std::string>()};
       }),
       any<std::uint32_t>(),
       any<ReduceOp>(),
       any<DataType>(),
       any<bool>(),
       any<Duration>()};
}
inline void fill(ReduceDone& m) {
  m = {any<ReduceNumber>(), any<std::uint32_t>(), any<AttemptNumber>()};
}
inline void fill(ReduceFailed& m) {
  m = {any<ReduceNumber>(), any<std::uint32_t>(), any<AttemptNumber>(),
       any<ObjectId>(),     any<Errc>(),          any<std::string>()};
}
inline void fill(CollectiveJoin& m) {
  m = {any<RequestNumber>(), any<std::string>(), any<CollectiveSpec>(), any<Duration>()};
}
inline void fill(CollectiveDone& m) {
  m = {any<CollectiveNumber>(), any<std::uint32_t>()};
}
inline void fill(CollectiveFailed& m) {
  m = {any<CollectiveNumber>(), any<std::uint32_t>(), any<Errc>(), any<std::string>()};
}
inline void fill(Joined& m) {
  m = {any<NodeId>(), any<std::uint64_t>(), any<std::uint64_t>(), any<Duration>(), any<Duration>()};
}
inline void fill(PutReply& m) {
  m = {any<RequestNumber>(), any<Generation>()};
}
inline void fill(Inline& m) {
  m = {any<RequestNumber>(), any<Generation>(), any<std::string>(), any<Bytes>()};
}
inline void fill(Assign& m) {
  m = {any<RequestNumber>(),   any<EdgeNumber>(),    any<Generation>(), any<std::string>(),
       any<std::uint64_t>(),   any<std::uint64_t>(), any<NodeId>(),     any_rails(),
       any<TransportPolicy>(), any<bool>()};
}
inline void fill(Failed& m) {
  m = {any<RequestNumber>(), any<Errc>(), any<std::string>()};
}
inline void fill(EraseReply& m) {
  m = {any<RequestNumber>(), any<bool>()};
}
inline void fill(StatReply& m) {
  m = {any<RequestNumber>(),
       any<Generation>(),
       any<std::string>(),
       any<std::uint64_t>(),
       any<bool>(),
       any<bool>(),
       several<HolderEntry>([] {
         return HolderEntry{any<NodeId>(), any<std::string>(), any<bool>(), any<NodeId>()};
       })};
}
inline void fill(ListReply& m) {
  m = {any<RequestNumber>(), several<ListEntry>([] {
         return ListEntry{any<ObjectId>(), any<std::string>(),   any<std::uint64_t>(),
                          any<bool>(),     any<std::uint32_t>(), any<Generation>()};
       }),
       any<bool>()};
}
inline void fill(WaitReply& m) {
  m = {any<RequestNumber>(), several<ObjectId>(any<ObjectId>)};
}
inline void fill(BarrierReply& m) {
  m = {any<RequestNumber>()};
}
inline void fill(MembersReply& m) {
  m = {any<RequestNumber>(), several<MemberEntry>([] {
         return MemberEntry{any<NodeId>(), any<std::string>(), any_rails(), any<TransportPolicy>(),
                            any<std::uint64_t>()};
       })};
}
inline void fill(EdgeRevoked& m) {
  m = {any<EdgeNumber>(), any<ObjectId>(), any<Errc>()};
}
inline void fill(Deleted& m) {
  m = {any<ObjectId>(), any<Generation>()};
}
inline void fill(Withdrawn& m) {
  m = {any<ObjectId>(), any<Generation>(), any<Errc>()};
}
inline void fill(Fenced&) {}
inline void fill(ReduceReply& m) {
  m = {any<RequestNumber>(), any<Generation>(), any<std::uint64_t>(),
       several<std::uint32_t>(any<std::uint32_t>)};
}
inline ReduceInput any_input() {
  return {any<ObjectId>(), any<Generation>(), any<NodeId>(), any_rails(), any<TransportPolicy>()};
}
inline void fill(ReduceTask& m) {
  m = {.reduce = any<ReduceNumber>(),
       .slot = any<std::uint32_t>(),
       .attempt = any<AttemptNumber>(),
       .output = any<ObjectId>(),
       .generation = any<Generation>(),
       .is_target = any<bool>(),
       .name = any<std::string>(),
       .size = any<std::uint64_t>(),
       .chunk_bytes = any<std::uint64_t>(),
       .op = any<ReduceOp>(),
       .dtype = any<DataType>(),
       .divisor = *rc::gen::positive<std::uint32_t>(),
       .expected_inputs = *rc::gen::inRange<std::uint32_t>(0, kMaxReduceSources + 1),
       .inputs = several<ReduceInput>(any_input)};
  if (m.inputs.empty()) m.inputs.push_back(any_input());
}
inline void fill(ReduceCancel& m) {
  m = {any<ReduceNumber>(), any<std::uint32_t>(), any<AttemptNumber>()};
}
inline void fill(Committed& m) {
  m = {any<ObjectId>(), any<Generation>()};
}
inline void fill(Restarted& m) {
  m = {any<ObjectId>(), any<Generation>()};
}
inline void fill(CollectivePeers& m) {
  m = {any<RequestNumber>(), any<CollectiveNumber>(), any<std::uint64_t>(),
       several<CollectivePeer>([] {
         return CollectivePeer{any<std::uint32_t>(), any<NodeId>(), any_rails(),
                               any<TransportPolicy>()};
       }),
       static_cast<CollectiveSchedule>(*rc::gen::inRange(0, 3))};
}
inline void fill(CollectiveEnd& m) {
  m = {any<CollectiveNumber>()};
}

// One of each alternative of a variant, with random fields.
template <class Variant>
std::vector<Variant> one_of_each() {
  std::vector<Variant> messages;
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    (
        [&] {
          std::variant_alternative_t<I, Variant> message;
          fill(message);
          messages.emplace_back(std::in_place_index<I>, std::move(message));
        }(),
        ...);
  }
  (std::make_index_sequence<std::variant_size_v<Variant>>());
  return messages;
}

}  // namespace lochos::test
