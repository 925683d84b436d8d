#include "node/group.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "directory/messages.h"
#include "node/store_call.h"

namespace lochos {

using namespace store_call;

static_assert(kMaxGroupNameBytes + 1 + 20 <= kMaxNameBytes);  // a slash and 64 bits in decimal

namespace {

// Not std::memcpy alone: it may not be given the null pointer of an empty span.
void copy(std::span<const std::byte> from, std::span<std::byte> to) {
  if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
}

bool root_gives(CollectiveKind kind) {
  return kind == CollectiveKind::kBroadcast || kind == CollectiveKind::kScatter;
}

const char* name_of(CollectiveKind kind) {
  return to_string(kind).data();  // of literals
}

CollectiveSpec with_sum(CollectiveSpec spec, ReduceOp op, DataType dtype) {
  spec.op = op;
  spec.dtype = dtype;
  return spec;
}
CollectiveSpec with_root(CollectiveSpec spec, std::uint32_t root) {
  spec.root = root;
  return spec;
}

}  // namespace

// ---- the buffer ----

GroupBuffer::GroupBuffer(GroupBuffer&& other) noexcept
    : backend_(std::move(other.backend_)),
      link_(std::move(other.link_)),
      writer_(std::exchange(other.writer_, 0)),
      bytes_(std::exchange(other.bytes_, {})) {}

GroupBuffer& GroupBuffer::operator=(GroupBuffer&& other) noexcept {
  if (this == &other) return *this;
  give_back();
  backend_ = std::move(other.backend_);
  link_ = std::move(other.link_);
  writer_ = std::exchange(other.writer_, 0);
  bytes_ = std::exchange(other.bytes_, {});
  return *this;
}

GroupBuffer::~GroupBuffer() {
  give_back();
}

void GroupBuffer::give_back() {
  if (writer_ != 0) link_->post(LocalAbandon{std::exchange(writer_, 0)});
}

Result<GroupBuffer> Group::buffer(std::uint64_t bytes, Duration timeout) {
  GroupBuffer buffer;
  if (bytes == 0) return buffer;
  const CallContext context{"buffer", name_};
  auto started = start(*backend_, context, Deadline(timeout), LocalScratch{0, bytes, {}});
  if (!started) return fail(std::move(started.error()));
  auto created =
      expect<LocalCreated>(take_result(*started->link, *started->request, context), context);
  if (!created) return fail(std::move(created.error()));
  buffer.backend_ = backend_;
  buffer.link_ = std::move(started->link);
  buffer.writer_ = created->writer;
  const auto pool = buffer.link_->writable();
  if (created->size != bytes || bytes > pool.size() || created->offset > pool.size() - bytes)
    return fail(context.add_to(Error(Errc::kProtocol, "the node named bytes outside its pool")));
  buffer.bytes_ = pool.subspan(created->offset, bytes);
  return buffer;
}

// ---- the group ----

Group::Group(std::shared_ptr<StoreBackend> backend, std::string name, std::uint32_t rank,
             std::uint32_t members)
    : backend_(std::move(backend)), name_(std::move(name)), rank_(rank), members_(members) {}

Result<Group> Group::open(const Store& store, std::string_view name, std::uint32_t rank,
                          std::uint32_t members) {
  const CallContext context{"group", std::string(name)};
  if (auto valid = ObjectId::from_name(name); !valid)
    return fail(context.add_to(std::move(valid.error())));
  if (name.size() > kMaxGroupNameBytes) {
    return fail(context.add_to(Error(
        Errc::kInvalidArgument, fmt::format("a group's name of {} bytes; at most {} are possible",
                                            name.size(), kMaxGroupNameBytes))));
  }
  const CollectiveSpec any{.members = members, .rank = rank};
  if (auto valid = check(any); !valid) return fail(context.add_to(std::move(valid.error())));
  return Group(store.backend_, std::string(name), rank, members);
}

CollectiveSpec Group::spec(CollectiveKind kind, std::uint64_t size) const {
  CollectiveSpec spec;
  spec.kind = kind;
  spec.members = members_;
  spec.rank = rank_;
  spec.size = size;
  return spec;
}

std::string Group::next_call_name() const {
  return fmt::format("{}/{}", name_, calls_);
}

CollectiveBlock Group::reduce_scatter_block(std::uint64_t bytes, DataType dtype) const {
  CollectiveSpec whole = spec(CollectiveKind::kReduceScatter, bytes);
  whole.dtype = dtype;
  return input_block(whole, rank_);
}

// What can be said before others are asked. Errors: kInvalidArgument.
Status Group::check_call(const CollectiveSpec& spec, std::uint64_t input_bytes) const {
  if (auto sound = check(spec); !sound) return sound;
  const bool gives = !root_gives(spec.kind) || rank_ == spec.root;
  if (!gives && input_bytes > 0) {
    return fail(Errc::kInvalidArgument,
                fmt::format("an input of {} bytes at rank {}; only the root, {}, gives one",
                            input_bytes, rank_, spec.root));
  }
  if (gives && input_bytes != spec.size) {
    return fail(Errc::kInvalidArgument,
                fmt::format("an input of {} bytes where {} are announced", input_bytes, spec.size));
  }
  return {};
}

Result<ObjectView> Group::run(const CollectiveSpec& spec, GroupBuffer input, Duration timeout) {
  const CallContext context{name_of(spec.kind), next_call_name()};
  if (auto sound = check_call(spec, input.size()); !sound)
    return fail(context.add_to(std::move(sound.error())));
  return run_unchecked(spec, std::move(input), timeout);
}

Result<ObjectView> Group::run_unchecked(const CollectiveSpec& spec, GroupBuffer input,
                                        Duration timeout) {
  const CallContext context{name_of(spec.kind), next_call_name()};
  if (input.link_ && input.backend_ != backend_) {
    return fail(context.add_to(
        Error(Errc::kInvalidArgument, "the input was made by a group of another store")));
  }
  const Deadline deadline(timeout);
  LocalCollective message{0, input.writer_, context.object, spec, deadline.left()};
  Result<Started> started = fail(Errc::kClosed, "");
  if (input.link_) {
    // The input lies behind this connection: on another one the node would not know it.
    auto request = input.link_->start(std::move(message), deadline.at());
    if (!request) return fail(context.add_to(std::move(request.error())));
    started = Started{input.link_, std::move(*request)};
  } else {
    started = start(*backend_, context, deadline, std::move(message));
    if (!started) return fail(std::move(started.error()));
  }
  ++calls_;
  auto view = expect<LocalView>(take_result(*started->link, *started->request, context), context);
  if (!view) return fail(std::move(view.error()));
  input.writer_ = 0;  // the node took it over
  auto result = view_of(started->link, *view, context);
  if (result && result->size() != result_bytes(spec)) {
    return fail(context.add_to(
        Error(Errc::kProtocol, fmt::format("the node gave a result of {} bytes", result->size()))));
  }
  return result;
}

Status Group::run_copied(const CollectiveSpec& spec, std::span<const std::byte> in,
                         std::span<std::byte> out, Duration timeout) {
  const CallContext context{name_of(spec.kind), next_call_name()};
  if (auto sound = check_call(spec, in.size()); !sound)
    return fail(context.add_to(std::move(sound.error())));
  const bool has_it = spec.kind == CollectiveKind::kBroadcast && rank_ == spec.root;
  const std::uint64_t expected = has_it ? 0 : result_bytes(spec);
  if (out.size() != expected) {
    return fail(context.add_to(
        Error(Errc::kInvalidArgument,
              fmt::format("the result has {} bytes, the memory for it {}", expected, out.size()))));
  }
  const Deadline deadline(timeout);
  auto input = buffer(in.size(), deadline.left());
  if (!input) {
    // The others must not wait for this member: all fail.
    if (input.error().code() == Errc::kNoSpace) {
      auto refused = run_unchecked(spec, GroupBuffer(), deadline.left());
      if (!refused) return fail(std::move(refused.error()));
    }
    return fail(std::move(input.error()));
  }
  copy(in, input->bytes());
  auto result = run(spec, std::move(*input), deadline.left());
  if (!result) return fail(std::move(result.error()));
  if (!has_it) copy(result->bytes(), out);
  return {};
}

// ---- in the pool ----

Result<ObjectView> Group::broadcast(std::uint32_t root, std::uint64_t bytes, GroupBuffer input,
                                    Duration timeout) {
  return run(with_root(spec(CollectiveKind::kBroadcast, bytes), root), std::move(input), timeout);
}

Result<ObjectView> Group::allreduce(GroupBuffer input, ReduceOp op, DataType dtype,
                                    Duration timeout) {
  const CollectiveSpec call = with_sum(spec(CollectiveKind::kAllreduce, input.size()), op, dtype);
  return run(call, std::move(input), timeout);
}

Result<ObjectView> Group::reduce_scatter(GroupBuffer input, ReduceOp op, DataType dtype,
                                         Duration timeout) {
  const CollectiveSpec call =
      with_sum(spec(CollectiveKind::kReduceScatter, input.size()), op, dtype);
  return run(call, std::move(input), timeout);
}

Result<ObjectView> Group::allgather(GroupBuffer input, Duration timeout) {
  const CollectiveSpec call = spec(CollectiveKind::kAllgather, input.size());
  return run(call, std::move(input), timeout);
}

Result<ObjectView> Group::gather(std::uint32_t root, GroupBuffer input, Duration timeout) {
  const CollectiveSpec call = with_root(spec(CollectiveKind::kGather, input.size()), root);
  return run(call, std::move(input), timeout);
}

Result<ObjectView> Group::scatter(std::uint32_t root, std::uint64_t bytes, GroupBuffer input,
                                  Duration timeout) {
  return run(with_root(spec(CollectiveKind::kScatter, bytes), root), std::move(input), timeout);
}

Result<ObjectView> Group::all_to_all(GroupBuffer input, Duration timeout) {
  const CollectiveSpec call = spec(CollectiveKind::kAllToAll, input.size());
  return run(call, std::move(input), timeout);
}

Status Group::barrier(Duration timeout) {
  const CallContext context{"barrier", next_call_name()};
  auto started =
      start(*backend_, context, Deadline(timeout), LocalBarrier{0, context.object, members_, {}});
  if (!started) return fail(std::move(started.error()));
  ++calls_;
  return without_value(
      expect<LocalDone>(take_result(*started->link, *started->request, context), context));
}

// ---- in the caller's memory ----

Status Group::broadcast(std::uint32_t root, std::span<std::byte> bytes, Duration timeout) {
  const CollectiveSpec call = with_root(spec(CollectiveKind::kBroadcast, bytes.size()), root);
  if (rank_ == root) return run_copied(call, bytes, {}, timeout);
  return run_copied(call, {}, bytes, timeout);
}

Status Group::allreduce(std::span<const std::byte> in, std::span<std::byte> out, ReduceOp op,
                        DataType dtype, Duration timeout) {
  return run_copied(with_sum(spec(CollectiveKind::kAllreduce, in.size()), op, dtype), in, out,
                    timeout);
}

Status Group::reduce_scatter(std::span<const std::byte> in, std::span<std::byte> out, ReduceOp op,
                             DataType dtype, Duration timeout) {
  return run_copied(with_sum(spec(CollectiveKind::kReduceScatter, in.size()), op, dtype), in, out,
                    timeout);
}

Status Group::allgather(std::span<const std::byte> in, std::span<std::byte> out, Duration timeout) {
  return run_copied(spec(CollectiveKind::kAllgather, in.size()), in, out, timeout);
}

Status Group::gather(std::uint32_t root, std::span<const std::byte> in, std::span<std::byte> out,
                     Duration timeout) {
  const CollectiveSpec call = with_root(spec(CollectiveKind::kGather, in.size()), root);
  if (rank_ != root) out = {};
  return run_copied(call, in, out, timeout);
}

Status Group::scatter(std::uint32_t root, std::span<const std::byte> in, std::span<std::byte> out,
                      Duration timeout) {
  const CollectiveSpec call =
      with_root(spec(CollectiveKind::kScatter, out.size() * members_), root);
  if (rank_ != root) in = {};
  return run_copied(call, in, out, timeout);
}

Status Group::all_to_all(std::span<const std::byte> in, std::span<std::byte> out,
                         Duration timeout) {
  return run_copied(spec(CollectiveKind::kAllToAll, in.size()), in, out, timeout);
}

}  // namespace lochos
