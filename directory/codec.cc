#include "directory/codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "directory/directory_generated.h"

namespace lochos {

// What both directions share, apart from the messages themselves (codec_node.cc,
// codec_directory.cc would be the place to split if it grew).
namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;

// The deepest message is frame, message, vector, entry, rail. More is an attack on the stack.
constexpr flatbuffers::uoffset_t kMaxDepth = 8;
// A frame full of the smallest entries; more cannot be meant.
constexpr flatbuffers::uoffset_t kMaxTables = 200'000;

// ---- to the wire ----

wire::Id to_wire(const ObjectId& id) {
  return wire::Id(flatbuffers::span<const std::uint8_t, 32>(id.bytes.data(), 32));
}
wire::Node to_wire(const NodeId& node) {
  return wire::Node(node.incarnation, node.number);
}
auto text(FlatBufferBuilder& b, const std::string& value) {
  return value.empty() ? Offset<flatbuffers::String>() : b.CreateString(value);
}
auto bytes(FlatBufferBuilder& b, const std::byte* data, std::size_t size) {
  return size == 0 ? Offset<flatbuffers::Vector<std::uint8_t>>()
                   : b.CreateVector(reinterpret_cast<const std::uint8_t*>(data), size);
}
auto ids(FlatBufferBuilder& b, const std::vector<ObjectId>& values) {
  wire::Id* out = nullptr;
  const auto offset = b.CreateUninitializedVectorOfStructs<wire::Id>(values.size(), &out);
  static_assert(sizeof(wire::Id) == sizeof(ObjectId));
  if (!values.empty()) std::memcpy(static_cast<void*>(out), values.data(), values.size() * 32);
  return offset;
}
auto rails(FlatBufferBuilder& b, const std::vector<RailAddress>& values) {
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
Offset<wire::Joined> build(FlatBufferBuilder& b, const Joined& m) {
  const wire::Node node = to_wire(m.node);
  return wire::CreateJoined(b, &node, m.epoch, m.cluster, m.heartbeat_interval.count(),
                            m.dead_after.count());
}
Offset<wire::PutReply> build(FlatBufferBuilder& b, const PutReply& m) {
  return wire::CreatePutReply(b, m.request, m.generation);
}
Offset<wire::Inline> build(FlatBufferBuilder& b, const Inline& m) {
  const auto name = text(b, m.name);
  const auto data = bytes(b, m.bytes.data(), m.bytes.size());
  return wire::CreateInline(b, m.request, m.generation, name, data);
}
Offset<wire::Assign> build(FlatBufferBuilder& b, const Assign& m) {
  const auto name = text(b, m.name);
  const auto all = rails(b, m.rails);
  const wire::Node parent = to_wire(m.parent);
  return wire::CreateAssign(b, m.request, m.edge, m.generation, name, m.size, m.chunk_bytes,
                            &parent, all, raw(m.parent_policy));
}
Offset<wire::Failed> build(FlatBufferBuilder& b, const Failed& m) {
  const auto message = text(b, m.message);
  return wire::CreateFailed(b, m.request, raw(m.code), message);
}
Offset<wire::EraseReply> build(FlatBufferBuilder& b, const EraseReply& m) {
  return wire::CreateEraseReply(b, m.request, m.existed);
}
Offset<wire::StatReply> build(FlatBufferBuilder& b, const StatReply& m) {
  std::vector<Offset<wire::HolderEntry>> holders;
  holders.reserve(m.holders.size());
  for (const HolderEntry& holder : m.holders) {
    const auto name = text(b, holder.node_name);
    const wire::Node node = to_wire(holder.node);
    const wire::Node parent = to_wire(holder.parent);
    holders.push_back(wire::CreateHolderEntry(b, &node, name, holder.complete, &parent));
  }
  const auto name = text(b, m.name);
  const auto all = b.CreateVector(holders);
  return wire::CreateStatReply(b, m.request, m.generation, name, m.size, m.sealed, m.is_inline,
                               all);
}
Offset<wire::ListReply> build(FlatBufferBuilder& b, const ListReply& m) {
  std::vector<Offset<wire::ListEntry>> entries;
  entries.reserve(m.entries.size());
  for (const ListEntry& entry : m.entries) {
    const auto name = text(b, entry.name);
    const wire::Id id = to_wire(entry.id);
    entries.push_back(wire::CreateListEntry(b, &id, name, entry.size, entry.sealed, entry.holders));
  }
  const auto all = b.CreateVector(entries);
  return wire::CreateListReply(b, m.request, all, m.more);
}
Offset<wire::WaitReply> build(FlatBufferBuilder& b, const WaitReply& m) {
  const auto all = ids(b, m.ready);
  return wire::CreateWaitReply(b, m.request, all);
}
Offset<wire::BarrierReply> build(FlatBufferBuilder& b, const BarrierReply& m) {
  return wire::CreateBarrierReply(b, m.request);
}
Offset<wire::MembersReply> build(FlatBufferBuilder& b, const MembersReply& m) {
  std::vector<Offset<wire::MemberEntry>> members;
  members.reserve(m.members.size());
  for (const MemberEntry& member : m.members) {
    const auto name = text(b, member.name);
    const auto all = rails(b, member.rails);
    const wire::Node node = to_wire(member.node);
    members.push_back(
        wire::CreateMemberEntry(b, &node, name, all, raw(member.policy), member.pool_bytes));
  }
  const auto all = b.CreateVector(members);
  return wire::CreateMembersReply(b, m.request, all);
}
Offset<wire::EdgeRevoked> build(FlatBufferBuilder& b, const EdgeRevoked& m) {
  const wire::Id id = to_wire(m.id);
  return wire::CreateEdgeRevoked(b, m.edge, &id, raw(m.reason));
}
Offset<wire::Deleted> build(FlatBufferBuilder& b, const Deleted& m) {
  const wire::Id id = to_wire(m.id);
  return wire::CreateDeleted(b, &id, m.generation);
}
Offset<wire::Withdrawn> build(FlatBufferBuilder& b, const Withdrawn& m) {
  const wire::Id id = to_wire(m.id);
  return wire::CreateWithdrawn(b, &id, m.generation, raw(m.reason));
}
Offset<wire::Fenced> build(FlatBufferBuilder& b, const Fenced&) {
  return wire::CreateFenced(b);
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
void take_frame(FlatBufferBuilder& b, Bytes& out) {
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
  Errc errc(std::uint8_t value) { return in_range<Errc>(value, 0, raw(Errc::kSystem)); }
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
Joined read(Reader& r, const wire::Joined& m) {
  return {.node = r.node(m.node()),
          .epoch = m.epoch(),
          .cluster = m.cluster(),
          .heartbeat_interval = Duration(m.heartbeat_interval_ns()),
          .dead_after = Duration(m.dead_after_ns())};
}
PutReply read(Reader&, const wire::PutReply& m) {
  return {.request = m.request(), .generation = m.generation()};
}
Inline read(Reader& r, const wire::Inline& m) {
  return {.request = m.request(),
          .generation = m.generation(),
          .name = r.text(m.name()),
          .bytes = r.bytes(m.bytes())};
}
Assign read(Reader& r, const wire::Assign& m) {
  return {.request = m.request(),
          .edge = m.edge(),
          .generation = m.generation(),
          .name = r.text(m.name()),
          .size = m.size(),
          .chunk_bytes = m.chunk_bytes(),
          .parent = r.node(m.parent()),
          .rails = r.rails(m.rails()),
          .parent_policy = r.policy(m.parent_policy())};
}
Failed read(Reader& r, const wire::Failed& m) {
  return {.request = m.request(), .code = r.errc(m.code()), .message = r.text(m.message())};
}
EraseReply read(Reader&, const wire::EraseReply& m) {
  return {.request = m.request(), .existed = m.existed()};
}
StatReply read(Reader& r, const wire::StatReply& m) {
  StatReply reply{.request = m.request(),
                  .generation = m.generation(),
                  .name = r.text(m.name()),
                  .size = m.size(),
                  .sealed = m.sealed(),
                  .is_inline = m.is_inline(),
                  .holders = {}};
  if (m.holders() == nullptr) return reply;
  reply.holders.reserve(m.holders()->size());
  for (const wire::HolderEntry* holder : *m.holders()) {
    reply.holders.push_back({.node = r.node(holder->node()),
                             .node_name = r.text(holder->node_name()),
                             .complete = holder->complete(),
                             .parent = r.node(holder->parent())});
  }
  return reply;
}
ListReply read(Reader& r, const wire::ListReply& m) {
  ListReply reply{.request = m.request(), .entries = {}, .more = m.more()};
  if (m.entries() == nullptr) return reply;
  reply.entries.reserve(m.entries()->size());
  for (const wire::ListEntry* entry : *m.entries()) {
    reply.entries.push_back({.id = r.id(entry->id()),
                             .name = r.text(entry->name()),
                             .size = entry->size(),
                             .sealed = entry->sealed(),
                             .holders = entry->holders()});
  }
  return reply;
}
WaitReply read(Reader& r, const wire::WaitReply& m) {
  return {.request = m.request(), .ready = r.ids(m.ready())};
}
BarrierReply read(Reader&, const wire::BarrierReply& m) {
  return {.request = m.request()};
}
MembersReply read(Reader& r, const wire::MembersReply& m) {
  MembersReply reply{.request = m.request(), .members = {}};
  if (m.members() == nullptr) return reply;
  reply.members.reserve(m.members()->size());
  for (const wire::MemberEntry* member : *m.members()) {
    reply.members.push_back({.node = r.node(member->node()),
                             .name = r.text(member->name()),
                             .rails = r.rails(member->rails()),
                             .policy = r.policy(member->policy()),
                             .pool_bytes = member->pool_bytes()});
  }
  return reply;
}
EdgeRevoked read(Reader& r, const wire::EdgeRevoked& m) {
  return {.edge = m.edge(), .id = r.id(m.id()), .reason = r.errc(m.reason())};
}
Deleted read(Reader& r, const wire::Deleted& m) {
  return {.id = r.id(m.id()), .generation = m.generation()};
}
Withdrawn read(Reader& r, const wire::Withdrawn& m) {
  return {.id = r.id(m.id()), .generation = m.generation(), .reason = r.errc(m.reason())};
}
Fenced read(Reader&, const wire::Fenced&) {
  return {};
}

Error not_a_message() {
  return Error(Errc::kProtocol, "the peer sent a frame that is no message of the directory");
}

// The payload, at an address where its 64-bit fields may be read in place.
class Aligned {
 public:
  explicit Aligned(std::span<const std::byte> payload) : size_(payload.size()) {
    data_ = reinterpret_cast<const std::uint8_t*>(payload.data());
    if (reinterpret_cast<std::uintptr_t>(data_) % alignof(std::uint64_t) == 0) return;
    copy_ = std::make_unique_for_overwrite<std::uint64_t[]>(payload.size() / 8 + 1);
    std::memcpy(copy_.get(), payload.data(), payload.size());
    data_ = reinterpret_cast<const std::uint8_t*>(copy_.get());
  }
  const std::uint8_t* data() const { return data_; }

  template <class Frame>
  const Frame* verified() const {
    flatbuffers::Verifier verifier(data_, size_, kMaxDepth, kMaxTables);
    return verifier.VerifyBuffer<Frame>(nullptr) ? flatbuffers::GetRoot<Frame>(data_) : nullptr;
  }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
  std::unique_ptr<std::uint64_t[]> copy_;
};

template <class Message, class Table>
Result<Message> decoded(const Table* table) {
  Reader reader;
  Message message = read(reader, *table);
  if (!reader.good()) return fail(not_a_message());
  return message;
}

}  // namespace

struct FrameEncoder::State {
  FlatBufferBuilder builder{4096};
};

FrameEncoder::FrameEncoder() : state_(std::make_unique<State>()) {}
FrameEncoder::~FrameEncoder() = default;
FrameEncoder::FrameEncoder(FrameEncoder&&) noexcept = default;
FrameEncoder& FrameEncoder::operator=(FrameEncoder&&) noexcept = default;

void FrameEncoder::append(const NodeMessage& message, Bytes& out) {
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

void FrameEncoder::append(const DirectoryMessage& message, Bytes& out) {
  FlatBufferBuilder& b = state_->builder;
  std::visit(
      [&b](const auto& m) {
        const auto table = build(b, m);
        using Table = typename table_of<std::remove_const_t<decltype(table)>>::type;
        b.Finish(wire::CreateDirectoryFrame(b, wire::DirectoryMessageTraits<Table>::enum_value,
                                            table.Union()));
      },
      message);
  take_frame(b, out);
}

Result<std::optional<std::uint32_t>> frame_length(std::span<const std::byte> bytes) {
  if (bytes.size() < kFrameHeaderBytes) return std::nullopt;
  std::uint32_t length;
  std::memcpy(&length, bytes.data(), sizeof length);
  if (length > kMaxFrameBytes) {
    return fail(Errc::kProtocol, fmt::format("the peer announced a frame of {} bytes, more than {}",
                                             length, kMaxFrameBytes));
  }
  return length;
}

#define LOCHOS_DECODE(Kind, Type) \
  case wire::Kind::Type:          \
    return decoded<Kind>(frame->message_as_##Type());

Result<NodeMessage> decode_node_message(std::span<const std::byte> payload) {
  const Aligned aligned(payload);
  const auto* frame = aligned.verified<wire::NodeFrame>();
  if (frame == nullptr) return fail(not_a_message());
  switch (frame->message_type()) {
    LOCHOS_DECODE(NodeMessage, Join)
    LOCHOS_DECODE(NodeMessage, Leave)
    LOCHOS_DECODE(NodeMessage, Heartbeat)
    LOCHOS_DECODE(NodeMessage, Hold)
    LOCHOS_DECODE(NodeMessage, Put)
    LOCHOS_DECODE(NodeMessage, Seal)
    LOCHOS_DECODE(NodeMessage, Abandon)
    LOCHOS_DECODE(NodeMessage, Get)
    LOCHOS_DECODE(NodeMessage, CancelGet)
    LOCHOS_DECODE(NodeMessage, EdgeDone)
    LOCHOS_DECODE(NodeMessage, EdgeFailed)
    LOCHOS_DECODE(NodeMessage, Drop)
    LOCHOS_DECODE(NodeMessage, Erase)
    LOCHOS_DECODE(NodeMessage, Stat)
    LOCHOS_DECODE(NodeMessage, List)
    LOCHOS_DECODE(NodeMessage, Wait)
    LOCHOS_DECODE(NodeMessage, CancelWait)
    LOCHOS_DECODE(NodeMessage, Barrier)
    LOCHOS_DECODE(NodeMessage, Members)
    case wire::NodeMessage::NONE:
      break;
  }
  return fail(not_a_message());
}

Result<DirectoryMessage> decode_directory_message(std::span<const std::byte> payload) {
  const Aligned aligned(payload);
  const auto* frame = aligned.verified<wire::DirectoryFrame>();
  if (frame == nullptr) return fail(not_a_message());
  switch (frame->message_type()) {
    LOCHOS_DECODE(DirectoryMessage, Joined)
    LOCHOS_DECODE(DirectoryMessage, PutReply)
    LOCHOS_DECODE(DirectoryMessage, Inline)
    LOCHOS_DECODE(DirectoryMessage, Assign)
    LOCHOS_DECODE(DirectoryMessage, Failed)
    LOCHOS_DECODE(DirectoryMessage, EraseReply)
    LOCHOS_DECODE(DirectoryMessage, StatReply)
    LOCHOS_DECODE(DirectoryMessage, ListReply)
    LOCHOS_DECODE(DirectoryMessage, WaitReply)
    LOCHOS_DECODE(DirectoryMessage, BarrierReply)
    LOCHOS_DECODE(DirectoryMessage, MembersReply)
    LOCHOS_DECODE(DirectoryMessage, EdgeRevoked)
    LOCHOS_DECODE(DirectoryMessage, Deleted)
    LOCHOS_DECODE(DirectoryMessage, Withdrawn)
    LOCHOS_DECODE(DirectoryMessage, Fenced)
    case wire::DirectoryMessage::NONE:
      break;
  }
  return fail(not_a_message());
}

#undef LOCHOS_DECODE

}  // namespace lochos
