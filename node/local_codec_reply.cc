#include <fmt/format.h>

#include <utility>

#include "node/local_wire.h"

namespace lochos {
namespace local_codec {
namespace {

using wire::ReplyBody;
using Body = std::pair<ReplyBody, flatbuffers::Offset<void>>;

flatbuffers::Offset<wire::Object> object(Builder& b, const ObjectStat& s) {
  std::vector<flatbuffers::Offset<wire::Holder>> offsets;
  offsets.reserve(s.holders.size());
  for (const ObjectStat::Holder& holder : s.holders) {
    const auto name = to_wire(b, holder.node_name);
    const auto node = to_wire(holder.node);
    const auto parent = to_wire(holder.parent);
    offsets.push_back(wire::CreateHolder(b, &node, name, holder.complete, &parent));
  }
  const auto name = to_wire(b, s.name);
  const flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<wire::Holder>>> holders =
      offsets.empty() ? 0 : b.CreateVector(offsets);
  const auto id = to_wire(s.id);
  return wire::CreateObject(b, &id, name, s.size, s.generation, s.sealed, s.is_inline, holders,
                            s.holder_count);
}

Body encode(Builder& b, const Error& e) {
  const auto message = to_wire(b, e.message());
  const auto operation = to_wire(b, e.operation());
  const auto name = to_wire(b, e.object());
  const auto peer = to_wire(b, e.peer());
  const auto transport = to_wire(b, e.transport());
  const auto nic = to_wire(b, e.nic());
  const auto cause = to_wire(b, e.cause());
  const auto fix = to_wire(b, e.fix());
  return {ReplyBody::Failure,
          wire::CreateFailure(b, static_cast<std::uint8_t>(e.code()), message, operation, name,
                              peer, transport, nic, cause, fix, e.bytes_done(), e.bytes_total())
              .Union()};
}
Body encode(Builder& b, const LocalDone&) {
  return {ReplyBody::Done, wire::CreateDone(b).Union()};
}
Body encode(Builder& b, const LocalCreated& r) {
  return {ReplyBody::Created, wire::CreateCreated(b, r.writer, r.offset, r.size).Union()};
}
Body encode(Builder& b, const LocalView& r) {
  return {ReplyBody::View, wire::CreateView(b, r.pin, r.offset, r.size, r.generation).Union()};
}
Body encode(Builder& b, const LocalProgress& r) {
  return {ReplyBody::Progress,
          wire::CreateProgress(b, r.pin, r.offset, r.size, r.valid, r.generation).Union()};
}
// Never sent: only what embedded clients ask is answered so.
Body encode(Builder&, const LocalReceived&) {
  return {ReplyBody::NONE, 0};
}
Body encode(Builder&, const LocalRegistered&) {
  return {ReplyBody::NONE, 0};
}
Body encode(Builder& b, const LocalReady& r) {
  return {ReplyBody::Ready, wire::CreateReady(b, b.CreateVector(r.positions)).Union()};
}
Body encode(Builder& b, const ObjectStat& r) {
  return {ReplyBody::Object, object(b, r).Union()};
}
Body encode(Builder& b, const LocalListPage& r) {
  std::vector<flatbuffers::Offset<wire::Object>> offsets;
  offsets.reserve(r.objects.size());
  for (const ObjectStat& entry : r.objects)
    offsets.push_back(object(b, entry));
  return {ReplyBody::ListPage, wire::CreateListPage(b, b.CreateVector(offsets), r.more).Union()};
}
Body encode(Builder& b, const NodeStats& r) {
  std::vector<flatbuffers::Offset<flatbuffers::String>> lines;
  for (const std::string& line : r.rails)
    lines.push_back(b.CreateString(line));
  const auto rails = b.CreateVector(lines);
  const auto name = to_wire(b, r.node_name);
  const auto directory = to_wire(b, r.directory);
  const auto node = to_wire(r.node);
  return {ReplyBody::NodeFigures,
          wire::CreateNodeFigures(b, r.pool_bytes, r.pool_used_bytes, r.objects, r.pinned,
                                  r.evictions, r.bytes_sent, r.bytes_received, r.edges_started,
                                  r.edges_failed, r.transport_fallbacks, r.huge_page_bytes, name,
                                  &node, directory, rails)
              .Union()};
}

Body encode(Builder& b, const LocalReduced& r) {
  const auto included = b.CreateVector(r.included);
  return {ReplyBody::Reduced, wire::CreateReduced(b, r.size, r.generation, included).Union()};
}

Result<Error> decode(const wire::Failure& f) {
  if (f.code() > static_cast<std::uint8_t>(Errc::kSystem)) {
    return fail(Errc::kProtocol, fmt::format("an error of unknown code {}", f.code()));
  }
  return Error(static_cast<Errc>(f.code()), from_wire(f.message()))
      .with_operation(from_wire(f.operation()))
      .with_object(from_wire(f.object()))
      .with_peer(from_wire(f.peer()))
      .with_transport(from_wire(f.transport()))
      .with_nic(from_wire(f.nic()))
      .with_cause(from_wire(f.cause()))
      .with_fix(from_wire(f.fix()))
      .with_bytes(f.bytes_done(), f.bytes_total());
}

ObjectStat decode(const wire::Object& o) {
  ObjectStat stat;
  stat.id = from_wire(*o.id());
  stat.name = from_wire(o.name());
  stat.size = o.size();
  stat.generation = o.generation();
  stat.sealed = o.sealed();
  stat.is_inline = o.is_inline();
  stat.holder_count = o.holder_count();
  if (o.holders() == nullptr) return stat;
  for (const wire::Holder* holder : *o.holders()) {
    stat.holders.push_back({from_wire(holder->node()), from_wire(holder->node_name()),
                            holder->complete(), from_wire(holder->parent())});
  }
  return stat;
}

LocalListPage decode(const wire::ListPage& page) {
  LocalListPage out;
  out.more = page.more();
  if (page.objects() == nullptr) return out;
  for (const wire::Object* entry : *page.objects())
    out.objects.push_back(decode(*entry));
  return out;
}

LocalReady decode(const wire::Ready& ready) {
  LocalReady out;
  if (ready.positions() != nullptr) {
    out.positions.assign(ready.positions()->begin(), ready.positions()->end());
  }
  return out;
}

NodeStats decode(const wire::NodeFigures& f) {
  NodeStats stats;
  stats.pool_bytes = f.pool_bytes();
  stats.pool_used_bytes = f.pool_used_bytes();
  stats.objects = f.objects();
  stats.pinned = f.pinned();
  stats.evictions = f.evictions();
  stats.bytes_sent = f.bytes_sent();
  stats.bytes_received = f.bytes_received();
  stats.edges_started = f.edges_started();
  stats.edges_failed = f.edges_failed();
  stats.transport_fallbacks = f.transport_fallbacks();
  stats.huge_page_bytes = f.huge_page_bytes();
  stats.node_name = from_wire(f.node_name());
  stats.node = from_wire(f.node());
  stats.directory = from_wire(f.directory());
  if (f.rails() != nullptr) {
    for (const flatbuffers::String* line : *f.rails())
      stats.rails.push_back(line->str());
  }
  return stats;
}

LocalReduced decode(const wire::Reduced& reduced) {
  LocalReduced out{reduced.size(), reduced.generation(), {}};
  if (reduced.included() != nullptr) {
    out.included.assign(reduced.included()->begin(), reduced.included()->end());
  }
  return out;
}

Result<LocalReply> decode(const wire::Reply& reply) {
  const auto answer = [&reply](LocalPayload payload) {
    return LocalReply{reply.number(), std::move(payload)};
  };
  switch (reply.body_type()) {
    case ReplyBody::Failure: {
      auto error = decode(*reply.body_as_Failure());
      if (!error) return fail(std::move(error.error()));
      return LocalReply{reply.number(), fail(std::move(*error))};
    }
    case ReplyBody::Done:
      return answer(LocalDone{});
    case ReplyBody::Created: {
      const auto& r = *reply.body_as_Created();
      return answer(LocalCreated{r.writer(), r.offset(), r.size()});
    }
    case ReplyBody::View: {
      const auto& r = *reply.body_as_View();
      return answer(LocalView{r.pin(), r.offset(), r.size(), r.generation(), nullptr});
    }
    case ReplyBody::Progress: {
      const auto& r = *reply.body_as_Progress();
      return answer(LocalProgress{r.pin(), r.offset(), r.size(), r.valid(), r.generation()});
    }
    case ReplyBody::Ready:
      return answer(decode(*reply.body_as_Ready()));
    case ReplyBody::Object:
      return answer(decode(*reply.body_as_Object()));
    case ReplyBody::ListPage:
      return answer(decode(*reply.body_as_ListPage()));
    case ReplyBody::NodeFigures:
      return answer(decode(*reply.body_as_NodeFigures()));
    case ReplyBody::Reduced:
      if (const auto* included = reply.body_as_Reduced()->included();
          included != nullptr && included->size() > kMaxReduceSources) {
        return fail(Errc::kProtocol, fmt::format("a reduce of {} sources; the limit is {}",
                                                 included->size(), kMaxReduceSources));
      }
      return answer(decode(*reply.body_as_Reduced()));
    case ReplyBody::NONE:
      break;
  }
  return fail(Errc::kProtocol,
              fmt::format("a reply of unknown kind {}", static_cast<int>(reply.body_type())));
}

}  // namespace
}  // namespace local_codec

Status append_frame(const LocalReply& reply, std::vector<std::byte>& out) {
  if (reply.result) {
    const auto* view = std::get_if<LocalView>(&*reply.result);
    const bool names_memory = (view != nullptr && view->external != nullptr) ||
                              std::holds_alternative<LocalReceived>(*reply.result) ||
                              std::holds_alternative<LocalRegistered>(*reply.result);
    if (names_memory) {
      return fail(Errc::kUnsupported, "the object lies in the memory of another process");
    }
  }
  local_codec::Builder builder;
  const auto [type, body] =
      reply.result
          ? std::visit([&builder](const auto& r) { return local_codec::encode(builder, r); },
                       *reply.result)
          : local_codec::encode(builder, reply.result.error());
  builder.Finish(local_wire::CreateReply(builder, reply.request, type, body));
  return local_codec::append_finished(builder, out);
}

Result<LocalReply> decode_local_reply(std::span<const std::byte> buffer) {
  const auto* data = reinterpret_cast<const std::uint8_t*>(buffer.data());
  flatbuffers::Verifier verifier(data, buffer.size());
  if (!verifier.VerifyBuffer<local_wire::Reply>(nullptr)) {
    return fail(Errc::kProtocol, "a frame that is no valid reply");
  }
  return local_codec::decode(*flatbuffers::GetRoot<local_wire::Reply>(data));
}

}  // namespace lochos
