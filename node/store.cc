// The calls of the public API, over any backend.
#include "node/store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "node/pending.h"
#include "node/reduce_request.h"
#include "node/store_backend.h"
#include "node/store_call.h"
#include "node/store_writer.h"

namespace lochos {

using namespace store_call;

namespace {

// A page of list(): with the longest names it still fits into a frame.
constexpr std::uint32_t kListPage = 500;
// put() of a large object publishes after each piece of this size.
constexpr std::size_t kCopyPiece = 1 << 20;

CallContext context_of(const char* operation, const Store::Key& key) {
  if (!key.name.empty() || !key.id) return {operation, key.name};
  return {operation, key.id->to_hex()};
}

// An engine in this process may write to the buffer until it has answered: its answer must be
// waited for, and the deadline is the engine's to keep.
Result<Started> start_get_into(StoreBackend& backend, const CallContext& context, Duration timeout,
                               const Store::Key& key, std::span<std::byte> buffer) {
  if (!backend.in_process()) {
    return start(backend, context, Deadline(timeout), LocalGet{0, *key.id, key.name, {}, true});
  }
  auto link = backend.link(kNever);
  if (!link) return fail(context.add_to(std::move(link.error())));
  auto request = (*link)->start(LocalGetInto{0, *key.id, key.name, buffer.data(), buffer.size(),
                                             std::max(timeout, Duration::zero())},
                                kNever);
  if (!request) return fail(context.add_to(std::move(request.error())));
  return Started{std::move(*link), std::move(*request)};
}

Error bad_key(const CallContext& context, const Store::Key& key) {
  return context.add_to(key.id.error());
}

// get_into: copies what has arrived, and knows what it has copied.
class Receiver {
 public:
  Receiver(std::span<std::byte> buffer, const CallContext& context)
      : buffer_(buffer), context_(context) {}

  // Errors: kInvalidArgument if the object does not fit.
  Status check(std::uint64_t size) const {
    if (size <= buffer_.size()) return {};
    return fail(context_.add_to(
        Error(Errc::kInvalidArgument,
              fmt::format("the object has {} bytes, the buffer {}", size, buffer_.size()))));
  }
  // The first `valid` bytes of `bytes` are the object's.
  void copy(std::span<const std::byte> bytes, std::uint64_t valid, std::uint64_t generation) {
    if (generation != generation_) copied_ = 0;
    generation_ = generation;
    if (valid <= copied_) return;
    std::memcpy(buffer_.data() + copied_, bytes.data() + copied_, valid - copied_);
    copied_ = valid;
  }

 private:
  const std::span<std::byte> buffer_;
  const CallContext& context_;
  std::uint64_t copied_ = 0;
  std::uint64_t generation_ = 0;
};

Error not_in_process(const CallContext& context) {
  return context.add_to(
      Error(Errc::kUnsupported, "the node is another process and cannot use this memory")
          .with_fix("use put(), create() or get_into(), or a node embedded in this process"));
}

// Copies what progress tells of, until there is a result. Errors: as Receiver::check; kProtocol.
Status copy_progress(const Started& started, Receiver& receiver) {
  LocalLink& link = *started.link;
  LocalRequest& request = *started.request;
  const auto pool = link.readable();
  for (;;) {
    link.wait(request, LocalLink::Until::kProgress);
    LocalProgress progress;
    {
      const std::lock_guard lock(link.mutex());
      if (request.result) return {};
      progress = *std::exchange(request.progress, std::nullopt);
    }
    if (auto fits = receiver.check(progress.size); !fits) return fits;
    if (progress.valid > progress.size || progress.size > pool.size() ||
        progress.offset > pool.size() - progress.size) {
      return fail(Error(Errc::kProtocol, "the node named bytes outside its pool"));
    }
    receiver.copy(pool.subspan(progress.offset, progress.size), progress.valid,
                  progress.generation);
  }
}

}  // namespace

Store::Key::Key(std::string_view key_name) : id(ObjectId::from_name(key_name)), name(key_name) {}
Store::Key::Key(const char* key_name) : Key(std::string_view(key_name)) {}
Store::Key::Key(const std::string& key_name) : Key(std::string_view(key_name)) {}
Store::Key::Key(const ObjectId& key_id) : id(key_id) {}

Store::Store(std::shared_ptr<StoreBackend> backend) : backend_(std::move(backend)) {}

Result<Store> Store::connect(const std::string& socket_path, Duration timeout) {
  auto backend = connect_socket_backend(socket_path, timeout);
  if (!backend) return fail(std::move(backend.error()));
  return Store(std::move(*backend));
}

// ---- making objects ----

Result<ObjectWriter> Store::create(const Key& key, std::uint64_t size, Duration timeout) {
  CallContext context = context_of("create", key);
  if (!key.id) return fail(bad_key(context, key));
  auto started =
      start(*backend_, context, Deadline(timeout), LocalCreate{0, *key.id, key.name, size, {}});
  if (!started) return fail(std::move(started.error()));
  auto created =
      expect<LocalCreated>(take_result(*started->link, *started->request, context), context);
  if (!created) return fail(std::move(created.error()));
  auto writer = ObjectWriter::Backend::make(std::move(started->link), *created, std::move(context));
  if (!writer) return fail(std::move(writer.error()));
  return ObjectWriter(std::move(*writer));
}

Status Store::put(const Key& key, std::span<const std::byte> bytes, Duration timeout) {
  const CallContext context = context_of("put", key);
  if (!key.id) return fail(bad_key(context, key));
  const Deadline deadline(timeout);
  if (bytes.size() <= kLocalInlineBytes) {
    return without_value(
        call<LocalDone>(*backend_, context, deadline,
                        LocalPutInline{0, *key.id, key.name, {bytes.begin(), bytes.end()}, {}}));
  }
  const auto as_put = [&context](Error error) {
    // The caller called neither create() nor seal().
    Error renamed(error.code(), error.message());
    return context.add_to(std::move(renamed)
                              .with_peer(error.peer())
                              .with_transport(error.transport())
                              .with_nic(error.nic())
                              .with_cause(error.cause())
                              .with_fix(error.fix())
                              .with_bytes(error.bytes_done(), error.bytes_total()));
  };
  auto writer = create(key, bytes.size(), timeout);
  if (!writer) return fail(as_put(std::move(writer.error())));
  for (std::size_t done = 0; done < bytes.size();) {
    const std::size_t piece = std::min(kCopyPiece, bytes.size() - done);
    std::memcpy(writer->bytes().data() + done, bytes.data() + done, piece);
    done += piece;
    if (done < bytes.size()) writer->publish(done);  // seal() says the rest
  }
  auto sealed = writer->seal(deadline.left());
  if (!sealed) return fail(as_put(std::move(sealed.error())));
  return {};
}

Status Store::put_user_memory(const Key& key, std::span<const std::byte> bytes, Duration timeout) {
  const CallContext context = context_of("put", key);
  if (!key.id) return fail(bad_key(context, key));
  if (!backend_->in_process()) return fail(not_in_process(context));
  return without_value(
      call<LocalDone>(*backend_, context, Deadline(timeout),
                      LocalPutUserMemory{0, *key.id, key.name, bytes.data(), bytes.size(), {}}));
}

// ---- user memory ----

class MemoryRegistration::Backend {
 public:
  Backend(std::shared_ptr<LocalLink> link, RegistrationNumber number, std::span<std::byte> bytes)
      : link_(std::move(link)), number_(number), bytes_(bytes) {}
  ~Backend() {
    // Without the engine there is no registration either.
    if (auto request = link_->start(LocalUnregisterMemory{0, number_}, kNever)) {
      link_->wait(**request, LocalLink::Until::kResult);
    }
  }
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  std::span<std::byte> bytes() const { return bytes_; }

 private:
  const std::shared_ptr<LocalLink> link_;
  const RegistrationNumber number_;
  const std::span<std::byte> bytes_;
};

MemoryRegistration::MemoryRegistration(std::unique_ptr<Backend> backend)
    : backend_(std::move(backend)) {}
MemoryRegistration::MemoryRegistration(MemoryRegistration&&) noexcept = default;
MemoryRegistration& MemoryRegistration::operator=(MemoryRegistration&&) noexcept = default;
MemoryRegistration::~MemoryRegistration() = default;

std::span<std::byte> MemoryRegistration::bytes() const {
  return backend_->bytes();
}

Result<MemoryRegistration> Store::register_memory(std::span<std::byte> memory) {
  const CallContext context{"register memory", ""};
  if (!backend_->in_process()) return fail(not_in_process(context));
  // However long it takes: an answer that nobody waited for would leave the memory registered.
  auto started = start(*backend_, context, Deadline(kNoTimeout),
                       LocalRegisterMemory{0, memory.data(), memory.size()});
  if (!started) return fail(std::move(started.error()));
  auto registered =
      expect<LocalRegistered>(take_result(*started->link, *started->request, context), context);
  if (!registered) return fail(std::move(registered.error()));
  return MemoryRegistration(std::make_unique<MemoryRegistration::Backend>(
      std::move(started->link), registered->registration, memory));
}

// ---- reading objects ----

Result<ObjectView> Store::get(const Key& key, Duration timeout) {
  const CallContext context = context_of("get", key);
  if (!key.id) return fail(bad_key(context, key));
  auto started =
      start(*backend_, context, Deadline(timeout), LocalGet{0, *key.id, key.name, {}, false});
  if (!started) return fail(std::move(started.error()));
  auto view = expect<LocalView>(take_result(*started->link, *started->request, context), context);
  if (!view) return fail(std::move(view.error()));
  return view_of(started->link, *view, context);
}

Pending<ObjectView> Store::get_async(const Key& key, Duration timeout) {
  CallContext context = context_of("get", key);
  const auto failed = [&context](Error error) {
    return StoreBackend::make_pending_view(
        std::make_shared<PendingState>(std::move(context), std::move(error)));
  };
  if (!key.id) return failed(key.id.error());
  auto started =
      start(*backend_, context, Deadline(timeout), LocalGet{0, *key.id, key.name, {}, false});
  if (!started) return failed(std::move(started.error()));
  return StoreBackend::make_pending_view(std::make_shared<PendingState>(
      std::move(context), std::move(started->link), std::move(started->request)));
}

Result<std::uint64_t> Store::get_into(const Key& key, std::span<std::byte> buffer,
                                      Duration timeout) {
  const CallContext context = context_of("get", key);
  if (!key.id) return fail(bad_key(context, key));
  auto started = start_get_into(*backend_, context, timeout, key, buffer);
  if (!started) return fail(std::move(started.error()));
  Receiver receiver(buffer, context);
  if (auto copied = copy_progress(*started, receiver); !copied) {
    started->link->abandon(*started->request);
    return fail(std::move(copied.error()));
  }
  auto payload = take_result(*started->link, *started->request, context);
  if (payload) {
    if (const auto* received = std::get_if<LocalReceived>(&*payload)) return received->size;
  }
  auto answer = expect<LocalView>(std::move(payload), context);
  if (!answer) return fail(std::move(answer.error()));
  auto view = view_of(started->link, *answer, context);
  if (!view) return fail(std::move(view.error()));
  if (auto fits = receiver.check(view->size()); !fits) return fail(std::move(fits.error()));
  receiver.copy(view->bytes(), view->size(), view->generation());
  return view->size();
}

// ---- asking ----

namespace {

// Checks the arguments of wait(). Errors: kInvalidArgument.
Result<LocalWait> make_wait(std::span<const Store::Key> keys, std::size_t count) {
  if (count == 0 || count > keys.size() || keys.size() > kMaxWaitIds) {
    return fail(Errc::kInvalidArgument,
                fmt::format("waiting for {} of {} objects; the count must be 1 to the number of "
                            "objects, and that at most {}",
                            count, keys.size(), kMaxWaitIds));
  }
  LocalWait wait;
  wait.count = static_cast<std::uint32_t>(count);
  wait.ids.reserve(keys.size());
  for (const Store::Key& key : keys) {
    if (!key.id) return fail(Error(key.id.error()).with_object(key.name));
    wait.ids.push_back(*key.id);
  }
  return wait;
}

CallContext wait_context(std::span<const Store::Key> keys) {
  if (keys.size() == 1) return context_of("wait", keys[0]);
  return {"wait", fmt::format("{} objects", keys.size())};
}

}  // namespace

Pending<std::vector<std::size_t>> Store::wait_async(std::span<const Key> keys, std::size_t count,
                                                    Duration timeout) {
  CallContext context = wait_context(keys);
  const auto failed = [&context](Error error) {
    return StoreBackend::make_pending_wait(
        std::make_shared<PendingState>(std::move(context), std::move(error)));
  };
  auto message = make_wait(keys, count);
  if (!message) return failed(std::move(message.error()));
  auto started = start(*backend_, context, Deadline(timeout), std::move(*message));
  if (!started) return failed(std::move(started.error()));
  return StoreBackend::make_pending_wait(std::make_shared<PendingState>(
      std::move(context), std::move(started->link), std::move(started->request)));
}

Result<std::vector<std::size_t>> Store::wait(std::span<const Key> keys, std::size_t count,
                                             Duration timeout) {
  return wait_async(keys, count, timeout).take();
}

// ---- combining objects ----

Pending<ReduceResult> Store::reduce_async(const Key& target, std::span<const Key> sources,
                                          const ReduceOptions& options, Duration timeout) {
  CallContext context = context_of("reduce", target);
  context.sources = sources.size();
  const auto failed = [&context](Error error) {
    return StoreBackend::make_pending_reduce(
        std::make_shared<PendingState>(std::move(context), std::move(error)));
  };
  auto message = make_reduce(target, sources, options);
  if (!message) return failed(std::move(message.error()));
  auto started = start(*backend_, context, Deadline(timeout), std::move(*message));
  if (!started) return failed(std::move(started.error()));
  return StoreBackend::make_pending_reduce(std::make_shared<PendingState>(
      std::move(context), std::move(started->link), std::move(started->request)));
}

Result<ReduceResult> Store::reduce(const Key& target, std::span<const Key> sources,
                                   const ReduceOptions& options, Duration timeout) {
  return reduce_async(target, sources, options, timeout).take();
}

Result<ObjectStat> Store::stat(const Key& key, Duration timeout) {
  const CallContext context = context_of("stat", key);
  if (!key.id) return fail(bad_key(context, key));
  return call<ObjectStat>(*backend_, context, Deadline(timeout),
                          LocalStat{0, *key.id, key.name, {}});
}

Result<std::vector<ObjectStat>> Store::list(Duration timeout) {
  const CallContext context{"list", ""};
  const Deadline deadline(timeout);
  std::vector<ObjectStat> all;
  ObjectId after;
  for (;;) {
    auto page =
        call<LocalListPage>(*backend_, context, deadline, LocalList{0, after, kListPage, {}});
    if (!page) return fail(std::move(page.error()));
    for (ObjectStat& entry : page->objects)
      all.push_back(std::move(entry));
    if (!page->more || page->objects.empty()) return all;
    after = all.back().id;
  }
}

Status Store::erase(const Key& key, Duration timeout) {
  const CallContext context = context_of("erase", key);
  if (!key.id) return fail(bad_key(context, key));
  return without_value(
      call<LocalDone>(*backend_, context, Deadline(timeout), LocalErase{0, *key.id, key.name, {}}));
}

Status Store::barrier(std::string_view name, std::uint32_t members, Duration timeout) {
  const CallContext context{"barrier", std::string(name)};
  if (auto valid = ObjectId::from_name(name); !valid) {
    return fail(context.add_to(std::move(valid.error())));
  }
  if (members == 0) {
    return fail(context.add_to(Error(Errc::kInvalidArgument, "a barrier of no members")));
  }
  return without_value(call<LocalDone>(*backend_, context, Deadline(timeout),
                                       LocalBarrier{0, std::string(name), members, {}}));
}

Result<NodeStats> Store::stats(Duration timeout) {
  return call<NodeStats>(*backend_, CallContext{"stats", ""}, Deadline(timeout), LocalStats{});
}

}  // namespace lochos
