#include "node/pending.h"

#include <utility>

#include "base/check.h"
#include "node/reduce_request.h"
#include "node/store_backend.h"

namespace lochos {

PendingState::PendingState(CallContext context, std::shared_ptr<LocalLink> link,
                           std::shared_ptr<LocalRequest> request)
    : context_(std::move(context)), link_(std::move(link)), request_(std::move(request)) {}

PendingState::PendingState(CallContext context, Error error)
    : context_(std::move(context)), error_(context_.add_to(std::move(error))) {}

PendingState::~PendingState() {
  if (request_ && !taken_) link_->abandon(*request_);
}

bool PendingState::ready() {
  return !request_ || link_->ready(*request_);
}

void PendingState::cancel() {
  if (request_) link_->cancel(*request_);
}

Result<int> PendingState::event_fd() {
  if (request_) return link_->watch(*request_);
  const std::lock_guard lock(mutex_);
  if (!failed_event_) {
    auto event = EventFd::open();
    if (!event) return fail(std::move(event.error()));
    event->signal();
    failed_event_.emplace(std::move(*event));
  }
  return failed_event_->fd();
}

Result<LocalPayload> PendingState::take() {
  {
    const std::lock_guard lock(mutex_);
    LOCHOS_CHECK(!taken_);
    taken_ = true;
    if (error_) return fail(*error_);
  }
  return take_result(*link_, *request_, context_);
}

Result<LocalPayload> take_result(LocalLink& link, LocalRequest& request,
                                 const CallContext& context) {
  link.wait(request, LocalLink::Until::kResult);
  const std::lock_guard lock(link.mutex());
  if (!*request.result) return fail(context.add_to(std::move(request.result->error())));
  return std::move(*request.result);
}

namespace {

// Held by all copies of a view.
class Pin {
 public:
  Pin(std::shared_ptr<LocalLink> link, PinNumber number)
      : link_(std::move(link)), number_(number) {}
  ~Pin() {
    if (number_ != 0) link_->post(LocalRelease{number_});
  }
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;

 private:
  const std::shared_ptr<LocalLink> link_;
  const PinNumber number_;
};

}  // namespace

Result<ObjectView> view_of(const std::shared_ptr<LocalLink>& link, const LocalView& view,
                           const CallContext& context) {
  auto pin = std::make_shared<Pin>(link, view.pin);
  std::span<const std::byte> bytes;
  if (view.external != nullptr) {
    bytes = {view.external, view.size};
  } else {
    const auto pool = link->readable();
    if (view.size > pool.size() || view.offset > pool.size() - view.size) {
      return fail(context.add_to(Error(Errc::kProtocol, "the node named bytes outside its pool")));
    }
    bytes = pool.subspan(view.offset, view.size);
  }
  return StoreBackend::make_view(bytes, view.generation, std::move(pin));
}

// ---- the public handles ----

PendingBase::PendingBase(std::shared_ptr<PendingState> state) : state_(std::move(state)) {}
PendingBase::PendingBase(PendingBase&&) noexcept = default;
PendingBase& PendingBase::operator=(PendingBase&&) noexcept = default;
PendingBase::~PendingBase() = default;

bool PendingBase::ready() const {
  return state_->ready();
}
void PendingBase::cancel() {
  state_->cancel();
}
Result<int> PendingBase::event_fd() const {
  return state_->event_fd();
}

template <>
Result<ObjectView> Pending<ObjectView>::take() {
  auto view = expect<LocalView>(state_->take(), state_->context());
  if (!view) return fail(std::move(view.error()));
  return view_of(state_->link(), *view, state_->context());
}

template <>
Result<std::vector<std::size_t>> Pending<std::vector<std::size_t>>::take() {
  auto ready = expect<LocalReady>(state_->take(), state_->context());
  if (!ready) return fail(std::move(ready.error()));
  return std::vector<std::size_t>(ready->positions.begin(), ready->positions.end());
}

template <>
Result<ReduceResult> Pending<ReduceResult>::take() {
  const CallContext& context = state_->context();
  auto reduced = expect<LocalReduced>(state_->take(), context);
  if (!reduced) return fail(std::move(reduced.error()));
  auto result = reduce_result(*reduced, context.sources);
  if (!result) return fail(context.add_to(std::move(result.error())));
  return result;
}

ObjectView StoreBackend::make_view(std::span<const std::byte> bytes, std::uint64_t generation,
                                   std::shared_ptr<void> pin) {
  ObjectView view;
  view.bytes_ = bytes;
  view.generation_ = generation;
  view.pin_ = std::move(pin);
  return view;
}

Pending<ObjectView> StoreBackend::make_pending_view(std::shared_ptr<PendingState> state) {
  return Pending<ObjectView>(std::move(state));
}

Pending<std::vector<std::size_t>> StoreBackend::make_pending_wait(
    std::shared_ptr<PendingState> state) {
  return Pending<std::vector<std::size_t>>(std::move(state));
}

Pending<ReduceResult> StoreBackend::make_pending_reduce(std::shared_ptr<PendingState> state) {
  return Pending<ReduceResult>(std::move(state));
}

}  // namespace lochos
