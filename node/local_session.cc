#include "node/local_session.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <type_traits>
#include <utility>

#include "base/log.h"

namespace lochos {
namespace {

// What one client is read at a time, so that none keeps the others waiting.
constexpr std::size_t kReadBytes = 128 * 1024;
// Replies that a client has not read. Beyond the first bound its further requests wait; what the
// requests it has made already can bring on top is bounded by the second one, and a client that
// lets it come so far is disconnected.
constexpr std::size_t kPauseBytes = 1 << 20;
constexpr std::size_t kMostUnreadBytes = 64 << 20;
static_assert(kMostUnreadBytes > 2 * kPauseBytes && kPauseBytes >= kMaxFrameBytes);

std::string peer_of(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return "a local client";
  return fmt::format("local client (process {})", peer.pid);
}

// One message: our hello, the size of the pool, and the pool itself.
bool send_welcome(int socket, const Pool& pool) {
  std::array<std::byte, kLocalAnswerBytes> answer{};
  const auto hello = encode(local_hello());
  const PoolOffer offer{pool.memory().size(), pool.stats().reserved};
  std::memcpy(answer.data(), hello.data(), hello.size());
  std::memcpy(answer.data() + hello.size(), &offer, sizeof offer);

  iovec part{answer.data(), answer.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  const int memfd = pool.memfd();
  std::memcpy(CMSG_DATA(header), &memfd, sizeof memfd);
  // A fresh socket takes it whole.
  return ::sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(answer.size());
}

}  // namespace

LocalSession::LocalSession(UniqueFd socket, int epoll, Engine& engine, Instant now)
    : socket_(std::move(socket)),
      epoll_(epoll),
      engine_(engine),
      greeting_deadline_(saturating_add(now, kLocalGreetingTimeout)) {}

LocalSession::~LocalSession() {
  ended_ = true;  // whatever the engine still says to it is dropped
  if (greeted_) engine_.forget(*this, std::chrono::steady_clock::now());
}

Status LocalSession::watch() {
  epoll_event event{};
  event.events = interest_ = EPOLLIN;
  event.data.ptr = this;
  if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, socket_.get(), &event) != 0) {
    return fail(system_error(errno, "epoll_ctl"));
  }
  return {};
}

void LocalSession::update_interest() {
  const std::uint32_t wanted = (unread_bytes() > kPauseBytes ? 0U : std::uint32_t{EPOLLIN}) |
                               (unread_bytes() > 0 ? std::uint32_t{EPOLLOUT} : 0U);
  if (wanted == interest_ || ended_) return;
  epoll_event event{};
  event.events = interest_ = wanted;
  event.data.ptr = this;
  ::epoll_ctl(epoll_, EPOLL_CTL_MOD, socket_.get(), &event);
}

void LocalSession::end(const std::string& why) {
  if (ended_) return;
  ended_ = true;
  if (!why.empty()) log_warning("{} disconnected: {}", peer_of(socket_.get()), why);
  // Makes the descriptor readable, so that the server looks at this session also if the end was
  // found while the engine delivered.
  ::shutdown(socket_.get(), SHUT_RDWR);
}

// ---- greeting ----

void LocalSession::refuse(const Error& reason) {
  const auto refusal = encode_refusal(reason, local_hello());
  [[maybe_unused]] const auto sent =
      ::send(socket_.get(), refusal.data(), refusal.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  end(reason.message());
}

void LocalSession::refuse_silence() {
  if (hello_bytes_ == 0) {
    refuse(Error(Errc::kTimedOut, "it said nothing"));
  } else {
    refuse(Error(Errc::kProtocol, "its greeting is incomplete"));
  }
}

void LocalSession::greet() {
  const auto room = std::span(hello_).subspan(hello_bytes_);
  const ssize_t count = ::recv(socket_.get(), room.data(), room.size(), MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) return end("");  // gone before it said anything: a check whether we live
  hello_bytes_ += static_cast<std::size_t>(count);
  const auto magic = encode(local_hello());
  const std::size_t known = std::min(hello_bytes_, sizeof(std::uint32_t));
  const bool stranger = !std::equal(magic.begin(), magic.begin() + known, hello_.begin());
  if (hello_bytes_ < kHelloBytes && !stranger) return;
  if (auto hello = decode_hello(hello_, local_hello()); !hello) return refuse(hello.error());
  accept_client();
}

void LocalSession::accept_client() {
  if (!send_welcome(socket_.get(), engine_.pool())) {
    return end(errno == EPIPE ? "" : system_error(errno, "passing the pool to it").message());
  }
  greeted_ = true;
}

// ---- requests ----

void LocalSession::serve(Instant now) {
  if (ended_) return;
  if (unread_bytes() > 0) flush();
  if (!greeted_) {
    greet();
  } else if (unread_bytes() <= kPauseBytes) {
    read(now);
  }
}

void LocalSession::read(Instant now) {
  const auto room = frames_.prepare(kReadBytes);
  const ssize_t count =
      ::recv(socket_.get(), room.data(), std::min(room.size(), kReadBytes), MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) return end("");
  frames_.commit(static_cast<std::size_t>(count));
  handle_frames(now);
  update_interest();
}

void LocalSession::handle_frames(Instant now) {
  while (!ended_) {
    const auto frame = frames_.next();
    if (frame && frame->empty()) break;
    auto message = frame ? decode_local_message(*frame) : fail(frame.error());
    if (!message) {
      end(message.error().message());
      break;
    }
    if (!note_request(*message)) return end("it used the number of a request that is under way");
    engine_.handle(*this, std::move(*message), now);
  }
}

// The engine keeps its operations by these numbers: a client must not make it mix two up.
bool LocalSession::note_request(const LocalMessage& message) {
  return std::visit(
      [this](const auto& m) {
        using Message = std::decay_t<decltype(m)>;
        if constexpr (requires { m.request; } && !std::is_same_v<Message, LocalCancel>) {
          return outstanding_.insert(m.request).second;
        } else {
          return true;
        }
      },
      message);
}

// ---- replies ----

bool LocalSession::hold_back(const LocalReply& reply) {
  if (reply.result) {
    if (const auto* progress = std::get_if<LocalProgress>(&*reply.result)) {
      if (unread_bytes() == 0) return false;
      held_back_[reply.request] = *progress;
      return true;
    }
  }
  outstanding_.erase(reply.request);
  const auto held = held_back_.find(reply.request);
  if (held == held_back_.end()) return false;
  const LocalProgress progress = held->second;
  held_back_.erase(held);
  // A failed get leaves the pin to the client, who must have heard of it.
  if (!reply.result) append(LocalReply{reply.request, progress});
  return false;
}

void LocalSession::append(const LocalReply& reply) {
  auto appended = append_frame(reply, out_);
  if (appended) return;
  const LocalReply instead{reply.request, fail(std::move(appended.error()))};
  [[maybe_unused]] const auto replaced = append_frame(instead, out_);
}

void LocalSession::deliver(LocalReply reply) {
  if (ended_ || hold_back(reply)) return;
  append(reply);
  flush();
}

void LocalSession::flush() {
  while (unread_bytes() > 0 && !ended_) {
    const ssize_t count =
        ::send(socket_.get(), out_.data() + out_sent_, unread_bytes(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count > 0) {
      out_sent_ += static_cast<std::size_t>(count);
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      return end("");
    }
  }
  if (unread_bytes() == 0) {
    out_.clear();
    out_sent_ = 0;
    for (const auto& [request, progress] : std::exchange(held_back_, {}))
      append(LocalReply{request, progress});  // sent with the next turn of this socket
  } else if (out_sent_ > kPauseBytes) {
    out_.erase(out_.begin(), out_.begin() + static_cast<std::ptrdiff_t>(out_sent_));
    out_sent_ = 0;
  }
  if (unread_bytes() > kMostUnreadBytes) {
    end(fmt::format("it leaves {} bytes of replies unread", unread_bytes()));
  }
  update_interest();
}

}  // namespace lochos
