// What both directions of the codec share. Included by codec*.cc only: the generated header is
// heavy.
#pragma once

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/aligned_bytes.h"
#include "compute/element.h"
#include "directory/codec.h"
#include "directory/directory_generated.h"

namespace lochos {

struct FrameEncoder::State {
  flatbuffers::FlatBufferBuilder builder{4096};
};

namespace directory_codec {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;

// The deepest message is frame, message, vector, entry, rail. More is an attack on the stack.
inline constexpr flatbuffers::uoffset_t kMaxDepth = 8;
// A frame full of the smallest entries; more cannot be meant.
inline constexpr flatbuffers::uoffset_t kMaxTables = 200'000;

// ---- to the wire ----

inline wire::Id to_wire(const ObjectId& id) {
  return wire::Id(flatbuffers::span<const std::uint8_t, 32>(id.bytes.data(), 32));
}
inline wire::Node to_wire(const NodeId& node) {
  return wire::Node(node.incarnation, node.number);
}
inline auto text(FlatBufferBuilder& b, const std::string& value) {
  return value.empty() ? Offset<flatbuffers::String>() : b.CreateString(value);
}
inline auto bytes(FlatBufferBuilder& b, const std::byte* data, std::size_t size) {
  return size == 0 ? Offset<flatbuffers::Vector<std::uint8_t>>()
                   : b.CreateVector(reinterpret_cast<const std::uint8_t*>(data), size);
}
inline auto ids(FlatBufferBuilder& b, const std::vector<ObjectId>& values) {
  wire::Id* out = nullptr;
  const auto offset = b.CreateUninitializedVectorOfStructs<wire::Id>(values.size(), &out);
  static_assert(sizeof(wire::Id) == sizeof(ObjectId));
  if (!values.empty()) std::memcpy(static_cast<void*>(out), values.data(), values.size() * 32);
  return offset;
}
inline auto rails(FlatBufferBuilder& b, const std::vector<RailAddress>& values) {
  std::vector<Offset<wire::Rail>> offsets;
  offsets.reserve(values.size());
  for (const RailAddress& rail : values) {
    const auto address = b.CreateString(rail.address);
    offsets.push_back(wire::CreateRail(b, static_cast<std::uint8_t>(rail.kind), address));
  }
  return b.CreateVector(offsets);
}
template <class Enum>
std::uint8_t raw(Enum value) {
  return static_cast<std::uint8_t>(value);
}

// The union's discriminator of each table type.
template <class T>
struct table_of;
template <class T>
struct table_of<Offset<T>> {
  using type = T;
};

// The length is written here: the builder's own size prefix would count for its alignment, and the
// payload alone could not be verified then.
inline void take_frame(FlatBufferBuilder& b, Bytes& out) {
  const std::uint32_t length = b.GetSize();
  const auto* prefix = reinterpret_cast<const std::byte*>(&length);
  out.insert(out.end(), prefix, prefix + sizeof length);
  const auto* data = reinterpret_cast<const std::byte*>(b.GetBufferPointer());
  out.insert(out.end(), data, data + length);
  b.Clear();
}

// ---- from the wire ----

// Collects what is wrong with a message while it is read, so that reading stays one expression a
// field.
class Reader {
 public:
  bool good() const { return good_; }

  ObjectId id(const wire::Id* value) const {
    ObjectId result;
    std::memcpy(result.bytes.data(), value->bytes()->Data(), result.bytes.size());
    return result;
  }
  NodeId node(const wire::Node* value) const {
    return value == nullptr ? NodeId{} : NodeId{value->number(), value->incarnation()};
  }
  std::string text(const flatbuffers::String* value) const {
    return value == nullptr ? std::string() : value->str();
  }
  Bytes bytes(const flatbuffers::Vector<std::uint8_t>* value) const {
    if (value == nullptr) return {};
    const auto* data = reinterpret_cast<const std::byte*>(value->data());
    // Sized first: g++ 12 takes the range constructor, inlined here, for a wrong deallocation.
    Bytes bytes(value->size());
    std::copy_n(data, bytes.size(), bytes.begin());
    return bytes;
  }
  std::vector<ObjectId> ids(const flatbuffers::Vector<const wire::Id*>* values) const {
    std::vector<ObjectId> result;
    if (values == nullptr) return result;
    result.reserve(values->size());
    for (const wire::Id* value : *values)
      result.push_back(id(value));
    return result;
  }
  std::vector<RailAddress> rails(
      const flatbuffers::Vector<flatbuffers::Offset<wire::Rail>>* values) {
    std::vector<RailAddress> result;
    if (values == nullptr) return result;
    result.reserve(values->size());
    for (const wire::Rail* rail : *values) {
      result.push_back({transport_kind(rail->kind()), text(rail->address())});
    }
    return result;
  }
  // Rails within the limits that hold for every member. Checked before anything is allocated.
  std::vector<RailAddress> bounded_rails(
      const flatbuffers::Vector<flatbuffers::Offset<wire::Rail>>* values) {
    if (values == nullptr || !at_most(values->size(), kMaxRails)) return {};
    for (const wire::Rail* rail : *values) {
      const auto* address = rail->address();
      if (address != nullptr && !at_most(address->size(), kMaxRailAddressBytes)) return {};
    }
    return rails(values);
  }
  std::string name(const flatbuffers::String* value) {
    if (value == nullptr || !at_most(value->size(), kMaxNameBytes)) return {};
    return value->str();
  }
  bool at_most(std::size_t value, std::size_t limit) { return hold(value <= limit); }
  // The message is none unless `promise` holds.
  bool hold(bool promise) {
    if (!promise) good_ = false;
    return promise;
  }
  ReduceOp op(std::uint8_t value) { return in_range<ReduceOp>(value, 0, raw(kReduceOps.back())); }
  DataType dtype(std::uint8_t value) {
    return in_range<DataType>(value, 0, raw(kDataTypes.back()));
  }
  CollectiveKind collective_kind(std::uint8_t value) {
    return in_range<CollectiveKind>(value, 0, raw(CollectiveKind::kAllToAll));
  }
  Errc errc(std::uint8_t value) { return in_range<Errc>(value, 0, raw(Errc::kSystem)); }
  CollectiveSchedule schedule(std::uint8_t value) {
    return in_range<CollectiveSchedule>(value, 0, raw(CollectiveSchedule::kFullExchange));
  }
  TransportPolicy policy(std::uint8_t value) {
    return in_range<TransportPolicy>(value, 0, raw(TransportPolicy::kTcp));
  }
  TransportKind transport_kind(std::uint8_t value) {
    return in_range<TransportKind>(value, raw(TransportKind::kTcp), raw(TransportKind::kSim));
  }

 private:
  template <class Enum>
  Enum in_range(std::uint8_t value, std::uint8_t low, std::uint8_t high) {
    if (value < low || value > high) good_ = false;
    return static_cast<Enum>(std::clamp(value, low, high));
  }
  bool good_ = true;
};

inline Error not_a_message() {
  return Error(Errc::kProtocol, "the peer sent a frame that is no message of the directory");
}

// The frame in the payload, or null if there is none.
template <class Frame>
const Frame* verified(const AlignedBytes& payload) {
  flatbuffers::Verifier verifier(payload.data(), payload.size(), kMaxDepth, kMaxTables);
  return verifier.VerifyBuffer<Frame>(nullptr) ? flatbuffers::GetRoot<Frame>(payload.data())
                                               : nullptr;
}

// What `reader` has read, if it found nothing wrong with it.
template <class Message>
Result<Message> checked(Message message, const Reader& reader) {
  if (!reader.good()) return fail(not_a_message());
  return message;
}

}  // namespace directory_codec
}  // namespace lochos
