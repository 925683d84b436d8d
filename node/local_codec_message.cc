#include <fmt/format.h>

#include <type_traits>
#include <utility>

#include "node/local_wire.h"

namespace lochos {
namespace local_codec {
namespace {

using wire::RequestBody;
using Body = std::pair<RequestBody, flatbuffers::Offset<void>>;

// One overload a message: its table, and which member of the union that is.
Body encode(Builder& b, const LocalCreate& m) {
  const auto name = to_wire(b, m.name);
  const auto id = to_wire(m.id);
  return {RequestBody::Make, wire::CreateMake(b, &id, name, m.size, to_wire(m.timeout)).Union()};
}
Body encode(Builder& b, const LocalPutInline& m) {
  const auto name = to_wire(b, m.name);
  const auto bytes =
      b.CreateVector(reinterpret_cast<const std::uint8_t*>(m.bytes.data()), m.bytes.size());
  const auto id = to_wire(m.id);
  return {RequestBody::PutInline,
          wire::CreatePutInline(b, &id, name, bytes, to_wire(m.timeout)).Union()};
}
Body encode(Builder& b, const LocalPublish& m) {
  return {RequestBody::Publish, wire::CreatePublish(b, m.writer, m.count).Union()};
}
Body encode(Builder& b, const LocalSeal& m) {
  return {RequestBody::Seal, wire::CreateSeal(b, m.writer, to_wire(m.timeout)).Union()};
}
Body encode(Builder& b, const LocalAbandon& m) {
  return {RequestBody::Abandon, wire::CreateAbandon(b, m.writer).Union()};
}
Body encode(Builder& b, const LocalGet& m) {
  const auto name = to_wire(b, m.name);
  const auto id = to_wire(m.id);
  return {RequestBody::Get, wire::CreateGet(b, &id, name, to_wire(m.timeout), m.progress).Union()};
}
Body encode(Builder& b, const LocalRelease& m) {
  return {RequestBody::Release, wire::CreateRelease(b, m.pin).Union()};
}
Body encode(Builder& b, const LocalCancel&) {
  return {RequestBody::Cancel, wire::CreateCancel(b).Union()};
}
Body encode(Builder& b, const LocalWait& m) {
  std::vector<wire::Id> words;
  words.reserve(m.ids.size());
  for (const ObjectId& id : m.ids)
    words.push_back(to_wire(id));
  const auto ids = b.CreateVectorOfStructs(words);
  return {RequestBody::Wait, wire::CreateWait(b, ids, m.count, to_wire(m.timeout)).Union()};
}
Body encode(Builder& b, const LocalStat& m) {
  const auto name = to_wire(b, m.name);
  const auto id = to_wire(m.id);
  return {RequestBody::Stat, wire::CreateStat(b, &id, name, to_wire(m.timeout)).Union()};
}
Body encode(Builder& b, const LocalList& m) {
  const auto after = to_wire(m.after);
  return {RequestBody::List, wire::CreateList(b, &after, m.limit, to_wire(m.timeout)).Union()};
}
Body encode(Builder& b, const LocalErase& m) {
  const auto name = to_wire(b, m.name);
  const auto id = to_wire(m.id);
  return {RequestBody::Erase, wire::CreateErase(b, &id, name, to_wire(m.timeout)).Union()};
}
Body encode(Builder& b, const LocalBarrier& m) {
  const auto name = to_wire(b, m.name);
  return {RequestBody::Barrier,
          wire::CreateBarrier(b, name, m.members, to_wire(m.timeout)).Union()};
}
Body encode(Builder& b, const LocalStats&) {
  return {RequestBody::Stats, wire::CreateStats(b).Union()};
}
Body encode(Builder& b, const LocalReduce& m) {
  std::vector<flatbuffers::Offset<wire::ReduceSource>> offsets;
  offsets.reserve(m.sources.size());
  for (const ReduceSource& source : m.sources) {
    const auto name = to_wire(b, source.name);
    const auto id = to_wire(source.id);
    offsets.push_back(wire::CreateReduceSource(b, &id, name));
  }
  const auto sources = b.CreateVector(offsets);
  const auto name = to_wire(b, m.name);
  const auto target = to_wire(m.target);
  return {
      RequestBody::Reduce,
      wire::CreateReduce(b, &target, name, sources, m.count, static_cast<std::uint8_t>(m.op),
                         static_cast<std::uint8_t>(m.dtype), m.deterministic, to_wire(m.timeout))
          .Union()};
}
Body encode(Builder& b, const LocalScratch& m) {
  return {RequestBody::Scratch, wire::CreateScratch(b, m.size, to_wire(m.timeout)).Union()};
}
Body encode(Builder& b, const LocalCollective& m) {
  const auto name = to_wire(b, m.name);
  const CollectiveSpec& spec = m.spec;
  return {
      RequestBody::Collective,
      wire::CreateCollective(b, m.writer, name, static_cast<std::uint8_t>(spec.kind), spec.members,
                             spec.rank, spec.root, spec.size, static_cast<std::uint8_t>(spec.op),
                             static_cast<std::uint8_t>(spec.dtype), to_wire(m.timeout))
          .Union()};
}
// Those that name memory of their process are never sent: append_frame() refuses them.
template <class Message>
inline constexpr bool kNamesMemory =
    std::is_same_v<Message, LocalPutUserMemory> || std::is_same_v<Message, LocalGetInto> ||
    std::is_same_v<Message, LocalRegisterMemory> || std::is_same_v<Message, LocalUnregisterMemory>;

template <class Message>
requires kNamesMemory<Message> Body encode(Builder&, const Message&) {
  return {RequestBody::NONE, 0};
}

// The number under which the answer comes; 0 for messages without one.
LocalRequestNumber number_of(const LocalMessage& message) {
  return std::visit(
      [](const auto& m) -> LocalRequestNumber {
        if constexpr (requires { m.request; }) {
          return m.request;
        } else {
          return 0;
        }
      },
      message);
}

std::vector<std::byte> bytes_from_wire(const flatbuffers::Vector<std::uint8_t>* bytes) {
  if (bytes == nullptr) return {};
  const auto* first = reinterpret_cast<const std::byte*>(bytes->data());
  return {first, first + bytes->size()};
}

Result<LocalMessage> decode_put(LocalRequestNumber number, const wire::PutInline& m) {
  if (m.bytes() != nullptr && m.bytes()->size() > kLocalInlineBytes) {
    return fail(Errc::kProtocol, fmt::format("an inline object of {} bytes; the limit is {}",
                                             m.bytes()->size(), kLocalInlineBytes));
  }
  return LocalPutInline{number, from_wire(*m.id()), from_wire(m.name()), bytes_from_wire(m.bytes()),
                        duration_from_wire(m.timeout())};
}

Result<LocalMessage> decode_wait(LocalRequestNumber number, const wire::Wait& m) {
  LocalWait wait{number, {}, m.count(), duration_from_wire(m.timeout())};
  if (m.ids() != nullptr) {
    if (m.ids()->size() > kMaxWaitIds) {
      return fail(Errc::kProtocol, fmt::format("a wait for {} objects; the limit is {}",
                                               m.ids()->size(), kMaxWaitIds));
    }
    wait.ids.reserve(m.ids()->size());
    for (const wire::Id* id : *m.ids())
      wait.ids.push_back(from_wire(*id));
  }
  return wait;
}

bool is_name(const flatbuffers::String* text) {
  return text == nullptr || text->size() <= kMaxNameBytes;
}

// Errors: kProtocol for what others rely on: how many sources there are, how long their names are,
// and that the enumerations may be looked up in tables.
Status check_reduce(const wire::Reduce& m) {
  const std::size_t count = m.sources() == nullptr ? 0 : m.sources()->size();
  if (count > kMaxReduceSources) {
    return fail(Errc::kProtocol,
                fmt::format("a reduce of {} sources; the limit is {}", count, kMaxReduceSources));
  }
  if (m.op() >= kReduceOps.size() || m.dtype() >= kDataTypes.size()) {
    return fail(Errc::kProtocol, fmt::format("a reduce of unknown operation {} or element type {}",
                                             m.op(), m.dtype()));
  }
  bool named = is_name(m.name());
  for (std::size_t i = 0; i < count && named; ++i)
    named = is_name(m.sources()->Get(static_cast<flatbuffers::uoffset_t>(i))->name());
  if (!named) {
    return fail(Errc::kProtocol,
                fmt::format("a reduce with a name of more than {} bytes", kMaxNameBytes));
  }
  return {};
}

Result<LocalMessage> decode_reduce(LocalRequestNumber number, const wire::Reduce& m) {
  if (auto sound = check_reduce(m); !sound) return fail(std::move(sound.error()));
  LocalReduce reduce{.request = number,
                     .target = from_wire(*m.target()),
                     .name = from_wire(m.name()),
                     .sources = {},
                     .count = m.count(),
                     .op = static_cast<ReduceOp>(m.op()),
                     .dtype = static_cast<DataType>(m.dtype()),
                     .deterministic = m.deterministic(),
                     .timeout = duration_from_wire(m.timeout())};
  if (m.sources() == nullptr) return reduce;
  reduce.sources.reserve(m.sources()->size());
  for (const wire::ReduceSource* source : *m.sources())
    reduce.sources.push_back({from_wire(*source->id()), from_wire(source->name())});
  return reduce;
}

// Whether the numbers of the specification fit together is the engine's to say.
Result<LocalMessage> decode_collective(LocalRequestNumber number, const wire::Collective& m) {
  if (m.kind() > static_cast<std::uint8_t>(CollectiveKind::kAllToAll) ||
      m.op() >= kReduceOps.size() || m.dtype() >= kDataTypes.size()) {
    return fail(Errc::kProtocol,
                fmt::format("a collective of unknown kind {}, operation {} or element type {}",
                            m.kind(), m.op(), m.dtype()));
  }
  if (!is_name(m.name())) {
    return fail(Errc::kProtocol,
                fmt::format("a collective with a name of more than {} bytes", kMaxNameBytes));
  }
  return LocalCollective{number,
                         m.writer(),
                         from_wire(m.name()),
                         {.kind = static_cast<CollectiveKind>(m.kind()),
                          .members = m.members(),
                          .rank = m.rank(),
                          .root = m.root(),
                          .size = m.size(),
                          .op = static_cast<ReduceOp>(m.op()),
                          .dtype = static_cast<DataType>(m.dtype())},
                         duration_from_wire(m.timeout())};
}

Result<LocalMessage> decode(const wire::Request& request) {
  const LocalRequestNumber number = request.number();
  switch (request.body_type()) {
    case RequestBody::Make: {
      const auto& m = *request.body_as_Make();
      return LocalCreate{number, from_wire(*m.id()), from_wire(m.name()), m.size(),
                         duration_from_wire(m.timeout())};
    }
    case RequestBody::PutInline:
      return decode_put(number, *request.body_as_PutInline());
    case RequestBody::Publish:
      return LocalPublish{request.body_as_Publish()->writer(), request.body_as_Publish()->count()};
    case RequestBody::Seal:
      return LocalSeal{number, request.body_as_Seal()->writer(),
                       duration_from_wire(request.body_as_Seal()->timeout())};
    case RequestBody::Abandon:
      return LocalAbandon{request.body_as_Abandon()->writer()};
    case RequestBody::Get: {
      const auto& m = *request.body_as_Get();
      return LocalGet{number, from_wire(*m.id()), from_wire(m.name()),
                      duration_from_wire(m.timeout()), m.progress()};
    }
    case RequestBody::Release:
      return LocalRelease{request.body_as_Release()->pin()};
    case RequestBody::Cancel:
      return LocalCancel{number};
    case RequestBody::Wait:
      return decode_wait(number, *request.body_as_Wait());
    case RequestBody::Stat: {
      const auto& m = *request.body_as_Stat();
      return LocalStat{number, from_wire(*m.id()), from_wire(m.name()),
                       duration_from_wire(m.timeout())};
    }
    case RequestBody::List: {
      const auto& m = *request.body_as_List();
      return LocalList{number, from_wire(*m.after()), m.limit(), duration_from_wire(m.timeout())};
    }
    case RequestBody::Erase: {
      const auto& m = *request.body_as_Erase();
      return LocalErase{number, from_wire(*m.id()), from_wire(m.name()),
                        duration_from_wire(m.timeout())};
    }
    case RequestBody::Barrier: {
      const auto& m = *request.body_as_Barrier();
      return LocalBarrier{number, from_wire(m.name()), m.members(),
                          duration_from_wire(m.timeout())};
    }
    case RequestBody::Stats:
      return LocalStats{number};
    case RequestBody::Reduce:
      return decode_reduce(number, *request.body_as_Reduce());
    case RequestBody::Scratch:
      return LocalScratch{number, request.body_as_Scratch()->size(),
                          duration_from_wire(request.body_as_Scratch()->timeout())};
    case RequestBody::Collective:
      return decode_collective(number, *request.body_as_Collective());
    case RequestBody::NONE:
      break;
  }
  return fail(Errc::kProtocol,
              fmt::format("a request of unknown kind {}", static_cast<int>(request.body_type())));
}

bool is_answered(const LocalMessage& message) {
  return !std::holds_alternative<LocalPublish>(message) &&
         !std::holds_alternative<LocalAbandon>(message) &&
         !std::holds_alternative<LocalRelease>(message);
}

}  // namespace
}  // namespace local_codec

Status append_frame(const LocalMessage& message, std::vector<std::byte>& out) {
  const bool names_memory = std::visit(
      [](const auto& m) { return local_codec::kNamesMemory<std::decay_t<decltype(m)>>; }, message);
  if (names_memory) {
    return fail(Errc::kUnsupported, "memory of this process cannot be used by another one");
  }
  local_codec::Builder builder;
  const auto [type, body] =
      std::visit([&builder](const auto& m) { return local_codec::encode(builder, m); }, message);
  builder.Finish(local_wire::CreateRequest(builder, local_codec::number_of(message), type, body));
  return local_codec::append_finished(builder, out);
}

Result<LocalMessage> decode_local_message(std::span<const std::byte> buffer) {
  const auto* data = reinterpret_cast<const std::uint8_t*>(buffer.data());
  flatbuffers::Verifier verifier(data, buffer.size());
  if (!verifier.VerifyBuffer<local_wire::Request>(nullptr)) {
    return fail(Errc::kProtocol, "a frame that is no valid request");
  }
  auto message = local_codec::decode(*flatbuffers::GetRoot<local_wire::Request>(data));
  if (message && local_codec::is_answered(*message) && local_codec::number_of(*message) == 0) {
    return fail(Errc::kProtocol, "a request without a number");
  }
  return message;
}

}  // namespace lochos
