// What nodes say to the directory, as frames.
#include "directory/codec_wire.h"

namespace lochos {
namespace directory_codec {
namespace {

// One overload a message: builds its table.
Offset<wire::Join> build(FlatBufferBuilder& b, const Join& m) {
  const auto name = text(b, m.name);
  const auto all = rails(b, m.rails);
  const wire::Node previous = to_wire(m.previous);
  return wire::CreateJoin(b, name, all, raw(m.policy), &previous, m.pool_bytes);
}
Offset<wire::Leave> build(FlatBufferBuilder& b, const Leave&) {
  return wire::CreateLeave(b);
}
Offset<wire::Heartbeat> build(FlatBufferBuilder& b, const Heartbeat&) {
  return wire::CreateHeartbeat(b);
}
Offset<wire::Hold> build(FlatBufferBuilder& b, const Hold& m) {
  const auto name = text(b, m.name);
  const auto data = bytes(b, m.inline_bytes.data(), m.inline_bytes.size());
  const wire::Id id = to_wire(m.id);
  return wire::CreateHold(b, &id, m.generation, name, m.size, m.complete, m.origin, data);
}
Offset<wire::Put> build(FlatBufferBuilder& b, const Put& m) {
  const auto name = text(b, m.name);
  const auto data = bytes(b, m.inline_bytes.data(), m.inline_bytes.size());
  const wire::Id id = to_wire(m.id);
  return wire::CreatePut(b, m.request, &id, name, m.size, m.complete, data);
}
Offset<wire::Seal> build(FlatBufferBuilder& b, const Seal& m) {
  const wire::Id id = to_wire(m.id);
  return wire::CreateSeal(b, &id, m.generation);
}
Offset<wire::Abandon> build(FlatBufferBuilder& b, const Abandon& m) {
  const wire::Id id = to_wire(m.id);
  return wire::CreateAbandon(b, &id, m.generation);
}
Offset<wire::Get> build(FlatBufferBuilder& b, const Get& m) {
  const wire::Id id = to_wire(m.id);
  return wire::CreateGet(b, m.request, &id, m.leaf);
}
Offset<wire::CancelGet> build(FlatBufferBuilder& b, const CancelGet& m) {
  const wire::Id id = to_wire(m.id);
  return wire::CreateCancelGet(b, m.request, &id);
}
Offset<wire::EdgeDone> build(FlatBufferBuilder& b, const EdgeDone& m) {
  const wire::Id id = to_wire(m.id);
  return wire::CreateEdgeDone(b, m.edge, &id, m.generation, m.bytes, m.elapsed.count(),
                              m.stalled.count(), m.round_trip.count());
}
Offset<wire::EdgeFailed> build(FlatBufferBuilder& b, const EdgeFailed& m) {
  const wire::Id id = to_wire(m.id);
  return wire::CreateEdgeFailed(b, m.request, m.edge, &id, m.generation, m.have_bytes,
                                raw(m.reason));
}
Offset<wire::Drop> build(FlatBufferBuilder& b, const Drop& m) {
  const wire::Id id = to_wire(m.id);
  return wire::CreateDrop(b, &id, m.generation);
}
Offset<wire::Erase> build(FlatBufferBuilder& b, const Erase& m) {
  const wire::Id id = to_wire(m.id);
  return wire::CreateErase(b, m.request, &id);
}
Offset<wire::Stat> build(FlatBufferBuilder& b, const Stat& m) {
  const wire::Id id = to_wire(m.id);
  return wire::CreateStat(b, m.request, &id);
}
Offset<wire::List> build(FlatBufferBuilder& b, const List& m) {
  const wire::Id after = to_wire(m.after);
  return wire::CreateList(b, m.request, &after, m.limit);
}
Offset<wire::Wait> build(FlatBufferBuilder& b, const Wait& m) {
  const auto all = ids(b, m.ids);
  return wire::CreateWait(b, m.request, all, m.count);
}
Offset<wire::CancelWait> build(FlatBufferBuilder& b, const CancelWait& m) {
  return wire::CreateCancelWait(b, m.request);
}
Offset<wire::Barrier> build(FlatBufferBuilder& b, const Barrier& m) {
  const auto name = text(b, m.name);
  return wire::CreateBarrier(b, m.request, name, m.members);
}
Offset<wire::Members> build(FlatBufferBuilder& b, const Members& m) {
  return wire::CreateMembers(b, m.request);
}
Offset<wire::Reduce> build(FlatBufferBuilder& b, const Reduce& m) {
  std::vector<Offset<wire::ReduceSource>> sources;
  sources.reserve(m.sources.size());
  for (const ReduceSource& source : m.sources) {
    const auto name = text(b, source.name);
    const wire::Id id = to_wire(source.id);
    sources.push_back(wire::CreateReduceSource(b, &id, name));
  }
  const auto name = text(b, m.name);
  const auto all = b.CreateVector(sources);
  const wire::Id target = to_wire(m.target);
  return wire::CreateReduce(b, m.request, &target, name, all, m.count, raw(m.op), raw(m.dtype),
                            m.deterministic, m.timeout.count());
}
Offset<wire::ReduceDone> build(FlatBufferBuilder& b, const ReduceDone& m) {
  return wire::CreateReduceDone(b, m.reduce, m.slot, m.attempt);
}
Offset<wire::ReduceFailed> build(FlatBufferBuilder& b, const ReduceFailed& m) {
  const auto message = text(b, m.message);
  const wire::Id input = to_wire(m.input);
  return wire::CreateReduceFailed(b, m.reduce, m.slot, m.attempt, &input, raw(m.reason), message);
}
Offset<wire::CollectiveJoin> build(FlatBufferBuilder& b, const CollectiveJoin& m) {
  const auto name = text(b, m.name);
  const auto spec =
      wire::CreateCollectiveSpec(b, raw(m.spec.kind), m.spec.members, m.spec.rank, m.spec.root,
                                 m.spec.size, raw(m.spec.op), raw(m.spec.dtype));
  return wire::CreateCollectiveJoin(b, m.request, name, spec, m.timeout.count());
}
Offset<wire::CollectiveDone> build(FlatBufferBuilder& b, const CollectiveDone& m) {
  return wire::CreateCollectiveDone(b, m.collective, m.rank);
}
Offset<wire::CollectiveFailed> build(FlatBufferBuilder& b, const CollectiveFailed& m) {
  const auto message = text(b, m.message);
  return wire::CreateCollectiveFailed(b, m.collective, m.rank, raw(m.reason), message);
}

// The way back.
Join read(Reader& r, const wire::Join& m) {
  return {.name = r.text(m.name()),
          .rails = r.rails(m.rails()),
          .policy = r.policy(m.policy()),
          .previous = r.node(m.previous()),
          .pool_bytes = m.pool_bytes()};
}
Leave read(Reader&, const wire::Leave&) {
  return {};
}
Heartbeat read(Reader&, const wire::Heartbeat&) {
  return {};
}
Hold read(Reader& r, const wire::Hold& m) {
  return {.id = r.id(m.id()),
          .generation = m.generation(),
          .name = r.text(m.name()),
          .size = m.size(),
          .complete = m.complete(),
          .origin = m.origin(),
          .inline_bytes = r.bytes(m.inline_bytes())};
}
Put read(Reader& r, const wire::Put& m) {
  return {.request = m.request(),
          .id = r.id(m.id()),
          .name = r.text(m.name()),
          .size = m.size(),
          .complete = m.complete(),
          .inline_bytes = r.bytes(m.inline_bytes())};
}
Seal read(Reader& r, const wire::Seal& m) {
  return {.id = r.id(m.id()), .generation = m.generation()};
}
Abandon read(Reader& r, const wire::Abandon& m) {
  return {.id = r.id(m.id()), .generation = m.generation()};
}
Get read(Reader& r, const wire::Get& m) {
  return {.request = m.request(), .id = r.id(m.id()), .leaf = m.leaf()};
}
CancelGet read(Reader& r, const wire::CancelGet& m) {
  return {.request = m.request(), .id = r.id(m.id())};
}
EdgeDone read(Reader& r, const wire::EdgeDone& m) {
  return {.edge = m.edge(),
          .id = r.id(m.id()),
          .generation = m.generation(),
          .bytes = m.bytes(),
          .elapsed = Duration(m.elapsed_ns()),
          .stalled = Duration(m.stalled_ns()),
          .round_trip = Duration(m.round_trip_ns())};
}
EdgeFailed read(Reader& r, const wire::EdgeFailed& m) {
  return {.request = m.request(),
          .edge = m.edge(),
          .id = r.id(m.id()),
          .generation = m.generation(),
          .have_bytes = m.have_bytes(),
          .reason = r.errc(m.reason())};
}
Drop read(Reader& r, const wire::Drop& m) {
  return {.id = r.id(m.id()), .generation = m.generation()};
}
Erase read(Reader& r, const wire::Erase& m) {
  return {.request = m.request(), .id = r.id(m.id())};
}
Stat read(Reader& r, const wire::Stat& m) {
  return {.request = m.request(), .id = r.id(m.id())};
}
List read(Reader& r, const wire::List& m) {
  return {.request = m.request(), .after = r.id(m.after()), .limit = m.limit()};
}
Wait read(Reader& r, const wire::Wait& m) {
  return {.request = m.request(), .ids = r.ids(m.ids()), .count = m.count()};
}
CancelWait read(Reader&, const wire::CancelWait& m) {
  return {.request = m.request()};
}
Barrier read(Reader& r, const wire::Barrier& m) {
  return {.request = m.request(), .name = r.text(m.name()), .members = m.members()};
}
Members read(Reader&, const wire::Members& m) {
  return {.request = m.request()};
}
Reduce read(Reader& r, const wire::Reduce& m) {
  Reduce reduce{.request = m.request(),
                .target = r.id(m.target()),
                .name = r.name(m.name()),
                .sources = {},
                .count = m.count(),
                .op = r.op(m.op()),
                .dtype = r.dtype(m.dtype()),
                .deterministic = m.deterministic(),
                .timeout = Duration(m.timeout_ns())};
  if (m.sources() == nullptr || !r.at_most(m.sources()->size(), kMaxReduceSources)) return reduce;
  reduce.sources.reserve(m.sources()->size());
  for (const wire::ReduceSource* source : *m.sources())
    reduce.sources.push_back({.id = r.id(source->id()), .name = r.name(source->name())});
  return reduce;
}
ReduceDone read(Reader&, const wire::ReduceDone& m) {
  return {.reduce = m.reduce(), .slot = m.slot(), .attempt = m.attempt()};
}
ReduceFailed read(Reader& r, const wire::ReduceFailed& m) {
  return {.reduce = m.reduce(),
          .slot = m.slot(),
          .attempt = m.attempt(),
          .input = r.id(m.input()),
          .reason = r.errc(m.reason()),
          .message = r.text(m.message())};
}
// Whether its numbers fit together is not the codec's to say.
CollectiveSpec read(Reader& r, const wire::CollectiveSpec& m) {
  return {.kind = r.collective_kind(m.kind()),
          .members = m.members(),
          .rank = m.rank(),
          .root = m.root(),
          .size = m.size(),
          .op = r.op(m.op()),
          .dtype = r.dtype(m.dtype())};
}
CollectiveJoin read(Reader& r, const wire::CollectiveJoin& m) {
  return {.request = m.request(),
          .name = r.name(m.name()),
          .spec = read(r, *m.spec()),
          .timeout = Duration(m.timeout_ns())};
}
CollectiveDone read(Reader&, const wire::CollectiveDone& m) {
  return {.collective = m.collective(), .rank = m.rank()};
}
CollectiveFailed read(Reader& r, const wire::CollectiveFailed& m) {
  return {.collective = m.collective(),
          .rank = m.rank(),
          .reason = r.errc(m.reason()),
          .message = r.text(m.message())};
}

}  // namespace
}  // namespace directory_codec

void FrameEncoder::append(const NodeMessage& message, Bytes& out) {
  using namespace directory_codec;
  FlatBufferBuilder& b = state_->builder;
  std::visit(
      [&b](const auto& m) {
        const auto table = build(b, m);
        using Table = typename table_of<std::remove_const_t<decltype(table)>>::type;
        b.Finish(
            wire::CreateNodeFrame(b, wire::NodeMessageTraits<Table>::enum_value, table.Union()));
      },
      message);
  take_frame(b, out);
}

#define LOCHOS_DECODE(Type)     \
  case wire::NodeMessage::Type: \
    return checked<NodeMessage>(read(reader, *frame->message_as_##Type()), reader);

Result<NodeMessage> decode_node_message(std::span<const std::byte> payload) {
  using namespace directory_codec;
  const AlignedBytes aligned(payload);
  const auto* frame = verified<wire::NodeFrame>(aligned);
  if (frame == nullptr) return fail(not_a_message());
  Reader reader;
  switch (frame->message_type()) {
    LOCHOS_DECODE(Join)
    LOCHOS_DECODE(Leave)
    LOCHOS_DECODE(Heartbeat)
    LOCHOS_DECODE(Hold)
    LOCHOS_DECODE(Put)
    LOCHOS_DECODE(Seal)
    LOCHOS_DECODE(Abandon)
    LOCHOS_DECODE(Get)
    LOCHOS_DECODE(CancelGet)
    LOCHOS_DECODE(EdgeDone)
    LOCHOS_DECODE(EdgeFailed)
    LOCHOS_DECODE(Drop)
    LOCHOS_DECODE(Erase)
    LOCHOS_DECODE(Stat)
    LOCHOS_DECODE(List)
    LOCHOS_DECODE(Wait)
    LOCHOS_DECODE(CancelWait)
    LOCHOS_DECODE(Barrier)
    LOCHOS_DECODE(Members)
    LOCHOS_DECODE(Reduce)
    LOCHOS_DECODE(ReduceDone)
    LOCHOS_DECODE(ReduceFailed)
    LOCHOS_DECODE(CollectiveJoin)
    LOCHOS_DECODE(CollectiveDone)
    LOCHOS_DECODE(CollectiveFailed)
    case wire::NodeMessage::NONE:
      break;
  }
  return fail(not_a_message());
}

#undef LOCHOS_DECODE

}  // namespace lochos
