#include "node/store_writer.h"

#include <utility>

#include "base/check.h"

namespace lochos {
namespace {

// A message to the engine costs some microseconds on both sides: 64 KiB are produced in no less,
// and are little against what a chain of nodes has in flight.
constexpr std::uint64_t kPublishBytes = 64 * 1024;
constexpr Duration kPublishDelay = std::chrono::milliseconds(1);

}  // namespace

ObjectWriter::Backend::Backend(std::shared_ptr<LocalLink> link, WriterNumber writer,
                               std::span<std::byte> bytes, CallContext context)
    : link_(std::move(link)),
      writer_(writer),
      bytes_(bytes),
      context_(std::move(context)),
      published_at_(std::chrono::steady_clock::now()) {}

Result<std::unique_ptr<ObjectWriter::Backend>> ObjectWriter::Backend::make(
    std::shared_ptr<LocalLink> link, const LocalCreated& created, CallContext context) {
  const auto pool = link->writable();
  if (created.size > pool.size() || created.offset > pool.size() - created.size) {
    link->post(LocalAbandon{created.writer});
    return fail(context.add_to(Error(Errc::kProtocol, "the node named bytes outside its pool")));
  }
  const auto bytes = pool.subspan(created.offset, created.size);
  return std::unique_ptr<Backend>(
      new Backend(std::move(link), created.writer, bytes, std::move(context)));
}

ObjectWriter::Backend::~Backend() {
  if (!ended_) link_->post(LocalAbandon{writer_});
}

void ObjectWriter::Backend::publish(std::uint64_t count) {
  LOCHOS_CHECK(count <= bytes_.size());
  const std::lock_guard lock(mutex_);
  if (ended_ || count <= published_) return;
  const Instant now = std::chrono::steady_clock::now();
  const bool due = count - published_ >= kPublishBytes || count == bytes_.size() ||
                   now - published_at_ >= kPublishDelay;
  if (!due) return;
  published_ = count;
  published_at_ = now;
  link_->post(LocalPublish{writer_, count});
}

Status ObjectWriter::Backend::seal(Duration timeout) {
  const std::lock_guard lock(mutex_);
  const CallContext context{"seal", context_.object};
  if (ended_) {
    return fail(context.add_to(Error(Errc::kClosed, "the object was sealed before, or failed to")));
  }
  ended_ = true;
  timeout = std::max(timeout, Duration::zero());
  const Instant deadline = saturating_add(std::chrono::steady_clock::now(), timeout);
  auto request = link_->start(LocalSeal{0, writer_, timeout}, deadline);
  if (!request) return fail(context.add_to(std::move(request.error())));
  auto done = expect<LocalDone>(take_result(*link_, **request, context), context);
  if (done) return {};
  // If the node did not answer at all it may still seal later: the caller was told that it failed.
  if (done.error().code() == Errc::kTimedOut) link_->post(LocalAbandon{writer_});
  return fail(std::move(done.error()));
}

// ---- the public handle ----

ObjectWriter::ObjectWriter(std::unique_ptr<Backend> backend) : backend_(std::move(backend)) {}
ObjectWriter::ObjectWriter(ObjectWriter&&) noexcept = default;
ObjectWriter& ObjectWriter::operator=(ObjectWriter&&) noexcept = default;
ObjectWriter::~ObjectWriter() = default;

std::span<std::byte> ObjectWriter::bytes() const {
  return backend_->bytes();
}
void ObjectWriter::publish(std::uint64_t count) {
  backend_->publish(count);
}
Status ObjectWriter::seal(Duration timeout) {
  return backend_->seal(timeout);
}

}  // namespace lochos
