#include "node/local_link_socket.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "node/pool_memory.h"
#include "node/store_backend.h"

namespace lochos {
namespace {

constexpr std::size_t kReadBytes = 64 * 1024;
// Of requests that the socket did not take. Beyond it, starting another one waits.
constexpr std::size_t kMostUnsentBytes = 256 * 1024;

Instant now() {
  return std::chrono::steady_clock::now();
}

Error lost() {
  return Error(Errc::kConnectionLost, "the node closed the connection")
      .with_cause("its process has ended, or it refused what this side sent");
}

}  // namespace

Result<std::shared_ptr<SocketLink>> SocketLink::open(const std::string& path, Instant deadline) {
  auto connection = connect_to_node(path, deadline);
  if (!connection) return fail(std::move(connection.error()));
  auto wake = EventFd::open();
  if (!wake) return fail(std::move(wake.error()));
  auto views = map_pool(connection->memfd.get(), connection->pool_bytes, Access::kReadOnly);
  if (!views) return fail(std::move(views.error()).with_operation("connect"));
  auto writers = map_pool(connection->memfd.get(), connection->pool_bytes, Access::kReadWrite);
  if (!writers) return fail(std::move(writers.error()).with_operation("connect"));
  return std::shared_ptr<SocketLink>(new SocketLink(path, std::move(connection->socket),
                                                    std::move(*wake), std::move(*views),
                                                    std::move(*writers)));
}

SocketLink::SocketLink(std::string path, UniqueFd socket, EventFd wake,
                       std::shared_ptr<const PoolMapping> views,
                       std::shared_ptr<const PoolMapping> writers)
    : path_(std::move(path)),
      socket_(std::move(socket)),
      wake_(std::move(wake)),
      views_(std::move(views)),
      writers_(std::move(writers)) {}

SocketLink::~SocketLink() {
  {
    const Lock lock(mutex());
    stopping_ = true;
    wake_.signal();
    service_due_.notify_all();
  }
  if (service_.joinable()) service_.join();
}

bool SocketLink::alive() const {
  const Lock lock(table_.mutex());
  return !ended_;
}

// ---- sending ----

void SocketLink::send(const LocalMessage& message) {
  if (ended_) return;
  // Only messages of bounded size come here; start() checks the others.
  if (append_frame(message, unsent_)) flush();
}

void SocketLink::send(const std::vector<LocalMessage>& messages) {
  for (const LocalMessage& message : messages)
    send(message);
}

void SocketLink::flush() {
  std::size_t sent = 0;
  while (sent < unsent_.size() && !ended_) {
    const ssize_t count = ::send(socket_.get(), unsent_.data() + sent, unsent_.size() - sent,
                                 MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count > 0) {
      sent += static_cast<std::size_t>(count);
    } else if (errno != EINTR) {
      if (errno != EAGAIN) end(lost());
      break;
    }
  }
  unsent_.erase(unsent_.begin(),
                unsent_.begin() + static_cast<std::ptrdiff_t>(std::min(sent, unsent_.size())));
  if (unsent_.size() <= kMostUnsentBytes) room_.notify_all();
}

void SocketLink::end(Error error) {
  if (ended_) return;
  ended_ = std::move(error).with_peer(describe());
  unsent_.clear();
  table_.fail_all(*ended_);
  room_.notify_all();
  wake_.signal();
}

// Bytes that the socket did not take are written by whoever reads, and somebody must read.
void SocketLink::see_to_the_rest() {
  if (reading_) {
    if (!unsent_.empty()) wake_.signal();  // to wait for room as well
  } else if (waiting_.empty() && needs_service()) {
    if (start_service()) service_due_.notify_one();
  }
}

bool SocketLink::needs_service() const {
  return !ended_ && (table_.needs_reader() || !unsent_.empty());
}

Status SocketLink::make_room(Lock& lock, LocalRequest& request) {
  while (unsent_.size() > kMostUnsentBytes && !ended_) {
    if (now() >= request.give_up) return fail(no_answer_error(*this));
    if (reading_) {
      room_.wait_until(lock, request.give_up);
    } else {
      read_turn(lock, request.give_up);
    }
  }
  return {};
}

Result<std::shared_ptr<LocalRequest>> SocketLink::start(LocalMessage message, Instant deadline) {
  Lock lock(mutex());
  auto request = table_.add(deadline);
  set_request_number(message, request->number);
  Status sent = make_room(lock, *request);
  if (sent && !ended_) sent = append_frame(message, unsent_);
  if (sent) flush();
  if (sent && ended_) sent = fail(*ended_);
  if (sent) {
    see_to_the_rest();
    return request;
  }
  table_.remove(*request);
  return fail(std::move(sent.error()));
}

void SocketLink::post(LocalMessage message) {
  const Lock lock(mutex());
  send(message);
  see_to_the_rest();
}

// ---- receiving ----

bool SocketLink::receive() {
  const auto room = frames_.prepare(kReadBytes);
  const ssize_t count = ::recv(socket_.get(), room.data(), room.size(), MSG_DONTWAIT);
  if (count > 0) frames_.commit(static_cast<std::size_t>(count));
  return count > 0 || (count < 0 && (errno == EAGAIN || errno == EINTR));
}

void SocketLink::dispatch() {
  std::vector<LocalMessage> follow_ups;
  while (!ended_) {
    const auto frame = frames_.next();
    if (frame && frame->empty()) break;
    auto reply = frame ? decode_local_reply(*frame) : fail(frame.error());
    if (!reply) {
      end(std::move(reply.error()));
      break;
    }
    table_.deliver(std::move(*reply), follow_ups);
  }
  send(follow_ups);
}

void SocketLink::read_turn(Lock& lock, Instant until) {
  reading_ = true;
  const auto events = static_cast<short>(unsent_.empty() ? POLLIN : POLLIN | POLLOUT);
  lock.unlock();
  std::array<pollfd, 2> fds{pollfd{socket_.get(), events, 0}, pollfd{wake_.fd(), POLLIN, 0}};
  int timeout = -1;
  if (until != kNever) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - now());
    timeout = static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1'000'000));
  }
  bool open = true;
  if (::poll(fds.data(), fds.size(), timeout) > 0) {
    if ((fds[1].revents & POLLIN) != 0) wake_.clear();
    if ((fds[0].revents & ~POLLOUT) != 0) open = receive();
  }
  lock.lock();
  reading_ = false;
  dispatch();
  if (!open) end(lost());
  if (!unsent_.empty()) flush();
}

// The thread that stops reading sees to it that another one goes on.
void SocketLink::pass_on() {
  if (reading_) return;
  if (!waiting_.empty()) {
    waiting_.front()->changed.notify_all();
  } else if (service_.joinable()) {
    service_due_.notify_one();
  }
}

void SocketLink::wait(LocalRequest& request, Until until) {
  Lock lock(mutex());
  while (!request.result && !(until == Until::kProgress && request.progress)) {
    if (now() >= request.give_up) {
      give_up(request, no_answer_error(*this));
    } else if (!reading_) {
      read_turn(lock, request.give_up);
    } else {
      waiting_.push_back(&request);
      request.changed.wait_until(lock, request.give_up);
      waiting_.erase(std::find(waiting_.begin(), waiting_.end(), &request));
    }
  }
  pass_on();
}

bool SocketLink::ready(LocalRequest& request) {
  Lock lock(mutex());
  if (!request.result && !reading_) {
    read_turn(lock, now());
    pass_on();
  }
  if (!request.result && now() >= request.give_up) give_up(request, no_answer_error(*this));
  return request.result.has_value();
}

void SocketLink::give_up(LocalRequest& request, Error error) {
  std::vector<LocalMessage> follow_ups;
  table_.give_up(request, std::move(error), follow_ups);
  send(follow_ups);
  see_to_the_rest();
}

void SocketLink::cancel(LocalRequest& request) {
  const Lock lock(mutex());
  give_up(request, Error(Errc::kCancelled, "cancelled by the caller"));
}

void SocketLink::abandon(LocalRequest& request) {
  const Lock lock(mutex());
  std::vector<LocalMessage> follow_ups;
  table_.abandon(request, follow_ups);
  send(follow_ups);
  see_to_the_rest();
}

// ---- the service thread ----

Result<int> SocketLink::watch(LocalRequest& request) {
  const Lock lock(mutex());
  auto fd = table_.watch(request);
  if (!fd || request.result) return fd;
  if (auto started = start_service(); !started) return fail(std::move(started.error()));
  if (reading_) {
    wake_.signal();  // the reader may sleep beyond this request's time
  } else {
    service_due_.notify_one();
  }
  return fd;
}

Status SocketLink::start_service() {
  if (service_.joinable()) return {};
  try {
    service_ = std::thread([this] { serve(); });
  } catch (const std::system_error& error) {
    return fail(system_error(error.code().value(), "starting a thread"));
  }
  return {};
}

void SocketLink::serve() {
  Lock lock(mutex());
  while (!stopping_) {
    for (const auto& request : table_.overdue(now()))
      give_up(*request, no_answer_error(*this));
    const bool needed = needs_service();
    if (needed && !reading_ && waiting_.empty()) {
      read_turn(lock, table_.next_give_up());
      if (!waiting_.empty()) pass_on();
    } else if (needed) {
      service_due_.wait_until(lock, table_.next_give_up());
    } else {
      service_due_.wait(lock);
    }
  }
}

// ---- the backend ----

namespace {

class SocketBackend final : public StoreBackend {
 public:
  SocketBackend(std::string path, std::shared_ptr<SocketLink> link)
      : path_(std::move(path)), link_(std::move(link)) {}

  Result<std::shared_ptr<LocalLink>> link(Instant deadline) override {
    const std::lock_guard lock(mutex_);
    if (!link_->alive()) {
      auto again = SocketLink::open(path_, deadline);
      if (!again) return fail(std::move(again.error()));
      link_ = std::move(*again);
    }
    return std::static_pointer_cast<LocalLink>(link_);
  }
  bool in_process() const override { return false; }

 private:
  const std::string path_;
  std::mutex mutex_;  // held while a lost connection is made again: one does it, the others wait
  std::shared_ptr<SocketLink> link_;
};

}  // namespace

Result<std::shared_ptr<StoreBackend>> connect_socket_backend(const std::string& socket_path,
                                                             Duration timeout) {
  auto link =
      SocketLink::open(socket_path, saturating_add(now(), std::max(timeout, Duration::zero())));
  if (!link) return fail(std::move(link.error()));
  return std::shared_ptr<StoreBackend>(
      std::make_shared<SocketBackend>(socket_path, std::move(*link)));
}

}  // namespace lochos
