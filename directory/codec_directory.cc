// What the directory says to nodes, as frames.
#include "directory/codec_wire.h"

namespace lochos {
namespace directory_codec {
namespace {

// One overload a message: builds its table.
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
                            &parent, all, raw(m.parent_policy), m.uncommitted);
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
    entries.push_back(wire::CreateListEntry(b, &id, name, entry.size, entry.sealed, entry.holders,
                                            entry.generation));
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
Offset<wire::ReduceReply> build(FlatBufferBuilder& b, const ReduceReply& m) {
  const auto included = b.CreateVector(m.included);
  return wire::CreateReduceReply(b, m.request, m.generation, m.size, included);
}
Offset<wire::ReduceTask> build(FlatBufferBuilder& b, const ReduceTask& m) {
  std::vector<Offset<wire::ReduceInput>> inputs;
  inputs.reserve(m.inputs.size());
  for (const ReduceInput& input : m.inputs) {
    const auto all = rails(b, input.rails);
    const wire::Id id = to_wire(input.id);
    const wire::Node node = to_wire(input.node);
    inputs.push_back(
        wire::CreateReduceInput(b, &id, input.generation, &node, all, raw(input.policy)));
  }
  const auto name = text(b, m.name);
  const auto all = b.CreateVector(inputs);
  const wire::Id output = to_wire(m.output);
  return wire::CreateReduceTask(b, m.reduce, m.slot, m.attempt, &output, m.generation, m.is_target,
                                name, m.size, m.chunk_bytes, raw(m.op), raw(m.dtype), m.divisor,
                                m.expected_inputs, all);
}
Offset<wire::ReduceCancel> build(FlatBufferBuilder& b, const ReduceCancel& m) {
  return wire::CreateReduceCancel(b, m.reduce, m.slot, m.attempt);
}
Offset<wire::Committed> build(FlatBufferBuilder& b, const Committed& m) {
  const wire::Id id = to_wire(m.id);
  return wire::CreateCommitted(b, &id, m.generation);
}
Offset<wire::Restarted> build(FlatBufferBuilder& b, const Restarted& m) {
  const wire::Id id = to_wire(m.id);
  return wire::CreateRestarted(b, &id, m.generation);
}
Offset<wire::CollectivePeers> build(FlatBufferBuilder& b, const CollectivePeers& m) {
  std::vector<Offset<wire::CollectivePeer>> peers;
  peers.reserve(m.peers.size());
  for (const CollectivePeer& peer : m.peers) {
    const auto all = rails(b, peer.rails);
    const wire::Node node = to_wire(peer.node);
    peers.push_back(wire::CreateCollectivePeer(b, peer.rank, &node, all, raw(peer.policy)));
  }
  const auto all = b.CreateVector(peers);
  return wire::CreateCollectivePeers(b, m.request, m.collective, m.chunk_bytes, all,
                                     raw(m.schedule));
}
Offset<wire::CollectiveEnd> build(FlatBufferBuilder& b, const CollectiveEnd& m) {
  return wire::CreateCollectiveEnd(b, m.collective);
}

// The way back.
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
          .parent_policy = r.policy(m.parent_policy()),
          .uncommitted = m.uncommitted()};
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
                             .holders = entry->holders(),
                             .generation = entry->generation()});
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
ReduceReply read(Reader& r, const wire::ReduceReply& m) {
  ReduceReply reply{
      .request = m.request(), .generation = m.generation(), .size = m.size(), .included = {}};
  const auto* included = m.included();
  if (included == nullptr || !r.at_most(included->size(), kMaxReduceSources)) return reply;
  reply.included.assign(included->begin(), included->end());
  return reply;
}
ReduceInput read(Reader& r, const wire::ReduceInput& m) {
  return {.id = r.id(m.id()),
          .generation = m.generation(),
          .node = r.node(m.node()),
          .rails = r.bounded_rails(m.rails()),
          .policy = r.policy(m.policy())};
}
ReduceTask read(Reader& r, const wire::ReduceTask& m) {
  ReduceTask task{.reduce = m.reduce(),
                  .slot = m.slot(),
                  .attempt = m.attempt(),
                  .output = r.id(m.output()),
                  .generation = m.generation(),
                  .is_target = m.is_target(),
                  .name = r.name(m.name()),
                  .size = m.size(),
                  .chunk_bytes = m.chunk_bytes(),
                  .op = r.op(m.op()),
                  .dtype = r.dtype(m.dtype()),
                  .divisor = m.divisor(),
                  .expected_inputs = m.expected_inputs(),
                  .inputs = {}};
  const std::size_t count = m.inputs() == nullptr ? 0 : m.inputs()->size();
  // Every input holds at least one source, so there are never more of them.
  const bool sound = r.hold(count > 0) && r.at_most(count, kMaxReduceSources) &&
                     r.at_most(m.expected_inputs(), kMaxReduceSources) && r.hold(m.divisor() > 0);
  if (!sound) return task;
  task.inputs.reserve(count);
  for (const wire::ReduceInput* input : *m.inputs())
    task.inputs.push_back(read(r, *input));
  return task;
}
ReduceCancel read(Reader&, const wire::ReduceCancel& m) {
  return {.reduce = m.reduce(), .slot = m.slot(), .attempt = m.attempt()};
}
Committed read(Reader& r, const wire::Committed& m) {
  return {.id = r.id(m.id()), .generation = m.generation()};
}
Restarted read(Reader& r, const wire::Restarted& m) {
  return {.id = r.id(m.id()), .generation = m.generation()};
}
CollectivePeers read(Reader& r, const wire::CollectivePeers& m) {
  CollectivePeers message{.request = m.request(),
                          .collective = m.collective(),
                          .chunk_bytes = m.chunk_bytes(),
                          .peers = {},
                          .schedule = r.schedule(m.schedule())};
  if (m.peers() == nullptr || !r.at_most(m.peers()->size(), kMaxCollectiveMembers)) return message;
  message.peers.reserve(m.peers()->size());
  for (const wire::CollectivePeer* peer : *m.peers()) {
    message.peers.push_back({.rank = peer->rank(),
                             .node = r.node(peer->node()),
                             .rails = r.bounded_rails(peer->rails()),
                             .policy = r.policy(peer->policy())});
  }
  return message;
}
CollectiveEnd read(Reader&, const wire::CollectiveEnd& m) {
  return {.collective = m.collective()};
}

}  // namespace
}  // namespace directory_codec

void FrameEncoder::append(const DirectoryMessage& message, Bytes& out) {
  using namespace directory_codec;
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

#define LOCHOS_DECODE(Type)          \
  case wire::DirectoryMessage::Type: \
    return checked<DirectoryMessage>(read(reader, *frame->message_as_##Type()), reader);

Result<DirectoryMessage> decode_directory_message(std::span<const std::byte> payload) {
  using namespace directory_codec;
  const AlignedBytes aligned(payload);
  const auto* frame = verified<wire::DirectoryFrame>(aligned);
  if (frame == nullptr) return fail(not_a_message());
  Reader reader;
  switch (frame->message_type()) {
    LOCHOS_DECODE(Joined)
    LOCHOS_DECODE(PutReply)
    LOCHOS_DECODE(Inline)
    LOCHOS_DECODE(Assign)
    LOCHOS_DECODE(Failed)
    LOCHOS_DECODE(EraseReply)
    LOCHOS_DECODE(StatReply)
    LOCHOS_DECODE(ListReply)
    LOCHOS_DECODE(WaitReply)
    LOCHOS_DECODE(BarrierReply)
    LOCHOS_DECODE(MembersReply)
    LOCHOS_DECODE(EdgeRevoked)
    LOCHOS_DECODE(Deleted)
    LOCHOS_DECODE(Withdrawn)
    LOCHOS_DECODE(Fenced)
    LOCHOS_DECODE(ReduceReply)
    LOCHOS_DECODE(ReduceTask)
    LOCHOS_DECODE(ReduceCancel)
    LOCHOS_DECODE(Committed)
    LOCHOS_DECODE(Restarted)
    LOCHOS_DECODE(CollectivePeers)
    LOCHOS_DECODE(CollectiveEnd)
    case wire::DirectoryMessage::NONE:
      break;
  }
  return fail(not_a_message());
}

#undef LOCHOS_DECODE

}  // namespace lochos
