#include "node/peer_codec.h"

#include <cstring>

#include "peer_generated.h"

namespace lochos {
namespace {

namespace wire = peer_wire;

wire::Id to_wire(const ObjectId& id) {
  return wire::Id(flatbuffers::span<const std::uint8_t, 32>(id.bytes));
}

ObjectId from_wire(const wire::Id& wire_id) {
  ObjectId id;
  for (std::size_t i = 0; i < id.bytes.size(); ++i) {
    id.bytes[i] = wire_id.bytes()->Get(static_cast<flatbuffers::uoffset_t>(i));
  }
  return id;
}

using Builder = flatbuffers::FlatBufferBuilder;
using Packed = std::pair<wire::Body, flatbuffers::Offset<void>>;

Packed pack(Builder& builder, const PullMessage& m) {
  const wire::Id id = to_wire(m.id);
  return {wire::Body::Pull, wire::CreatePull(builder, m.slot, m.edge, &id, m.generation, m.first,
                                             m.chunk, m.address, m.key, m.expected)
                                .Union()};
}
Packed pack(Builder& builder, const CancelPullMessage& m) {
  return {wire::Body::CancelPull, wire::CreateCancelPull(builder, m.slot, m.edge).Union()};
}
Packed pack(Builder& builder, const PullEndMessage& m) {
  return {
      wire::Body::PullEnd,
      wire::CreatePullEnd(builder, m.slot, m.edge, static_cast<std::uint8_t>(m.reason)).Union()};
}
Packed pack(Builder& builder, const PingMessage& m) {
  return {wire::Body::Ping, wire::CreatePing(builder, m.time).Union()};
}
Packed pack(Builder& builder, const PongMessage& m) {
  return {wire::Body::Pong, wire::CreatePong(builder, m.time).Union()};
}

}  // namespace

std::vector<std::byte> encode(const PeerMessage& message) {
  Builder builder(256);
  const Packed packed = std::visit([&](const auto& m) { return pack(builder, m); }, message);
  builder.Finish(wire::CreateMessage(builder, packed.first, packed.second));
  const auto* begin = reinterpret_cast<const std::byte*>(builder.GetBufferPointer());
  return {begin, begin + builder.GetSize()};
}

Result<PeerMessage> decode_peer_message(std::span<const std::byte> bytes) {
  // A received message lies anywhere in a receive buffer; the reader needs it aligned.
  alignas(16) std::uint8_t aligned[kMaxPeerMessageBytes];
  if (bytes.size() > sizeof aligned) return fail(Errc::kProtocol, "a peer message is too long");
  if (!bytes.empty()) std::memcpy(aligned, bytes.data(), bytes.size());
  flatbuffers::Verifier verifier(aligned, bytes.size(), /*max_depth=*/8, /*max_tables=*/8);
  if (!wire::VerifyMessageBuffer(verifier))
    return fail(Errc::kProtocol, "a peer message is malformed");
  const wire::Message* message = wire::GetMessage(aligned);
  switch (message->body_type()) {
    case wire::Body::Pull: {
      const auto* m = message->body_as_Pull();
      return PullMessage{m->slot(),       m->edge(),  from_wire(*m->id()),
                         m->generation(), m->first(), m->chunk(),
                         m->address(),    m->key(),   m->expected()};
    }
    case wire::Body::CancelPull: {
      const auto* m = message->body_as_CancelPull();
      return CancelPullMessage{m->slot(), m->edge()};
    }
    case wire::Body::PullEnd: {
      const auto* m = message->body_as_PullEnd();
      if (m->reason() > static_cast<std::uint8_t>(Errc::kSystem)) break;
      return PullEndMessage{m->slot(), m->edge(), static_cast<Errc>(m->reason())};
    }
    case wire::Body::Ping:
      return PingMessage{message->body_as_Ping()->time()};
    case wire::Body::Pong:
      return PongMessage{message->body_as_Pong()->time()};
    case wire::Body::NONE:
      break;
  }
  return fail(Errc::kProtocol, "a peer message of an unknown kind");
}

}  // namespace lochos
