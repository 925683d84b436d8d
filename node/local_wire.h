// What both halves of the codec share. Included by local_codec_*.cc only: the generated header is
// heavy.
#pragma once

#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/node_id.h"
#include "base/object_id.h"
#include "local_generated.h"
#include "node/local_codec.h"

namespace lochos::local_codec {

namespace wire = local_wire;
using Builder = flatbuffers::FlatBufferBuilder;

static_assert(sizeof(wire::Id) == sizeof(ObjectId::bytes));

inline wire::Id to_wire(const ObjectId& id) {
  wire::Id out;
  std::memcpy(static_cast<void*>(&out), id.bytes.data(), id.bytes.size());
  return out;
}
inline ObjectId from_wire(const wire::Id& id) {
  ObjectId out;
  std::memcpy(out.bytes.data(), &id, out.bytes.size());
  return out;
}

inline wire::Node to_wire(const NodeId& node) {
  return {node.incarnation, node.number};
}
inline NodeId from_wire(const wire::Node* node) {
  return node == nullptr ? NodeId{} : NodeId{node->number(), node->incarnation()};
}

inline std::int64_t to_wire(Duration duration) {
  return duration == Duration::max() ? -1 : duration.count();
}
// A negative duration other than -1 cannot be meant; it counts as none at all.
inline Duration duration_from_wire(std::int64_t nanoseconds) {
  if (nanoseconds == -1) return Duration::max();
  return Duration(nanoseconds < 0 ? 0 : nanoseconds);
}

// An absent string and an empty one are the same.
inline flatbuffers::Offset<flatbuffers::String> to_wire(Builder& builder, std::string_view text) {
  return text.empty() ? 0 : builder.CreateString(text.data(), text.size());
}
inline std::string from_wire(const flatbuffers::String* text) {
  return text == nullptr ? std::string() : text->str();
}

// Appends what the builder holds as a frame.
inline Status append_finished(const Builder& builder, std::vector<std::byte>& out) {
  const std::uint32_t length = builder.GetSize();
  if (length > kMaxFrameBytes) {
    return fail(Errc::kInvalidArgument, "a message of " + std::to_string(length) +
                                            " bytes; the limit is " +
                                            std::to_string(kMaxFrameBytes));
  }
  const std::size_t at = out.size();
  out.resize(at + kFrameHeaderBytes + length);
  std::memcpy(out.data() + at, &length, kFrameHeaderBytes);
  std::memcpy(out.data() + at + kFrameHeaderBytes, builder.GetBufferPointer(), length);
  return {};
}

}  // namespace lochos::local_codec
