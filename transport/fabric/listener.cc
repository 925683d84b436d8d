#include "transport/fabric/listener.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <random>

#include "base/log.h"
#include "transport/fabric/rail.h"
#include "transport/fabric/socket.h"

namespace lochos::fabric {
namespace {

// Connections that have not greeted yet. More than this are a flood, and the oldest goes first.
constexpr std::size_t kMaxStrangers = 256;
constexpr int kAcceptsPerTurn = 64;
constexpr int kBacklog = 1024;
// At most one line of log for refused strangers in this time.
constexpr Duration kRefusalLogInterval = std::chrono::seconds(1);
// A connection to ourselves ends at once, unless the machine is drowning.
constexpr timeval kLoopbackTimeout{.tv_sec = 0, .tv_usec = 200'000};

// A passive endpoint that listens on `address`, whose requests arrive on the rail's event queue.
Result<PassiveEndpointHandle> open_passive(Rail& rail, const SocketAddress& address) {
  const InfoHandle info = rail.device().describe_endpoint(address, nullptr);
  fid_pep* passive = nullptr;
  int code = fi_passive_ep(rail.device().fabric(), info.get(), &passive, nullptr);
  PassiveEndpointHandle owner(code == 0 ? passive : nullptr);
  if (code == 0) code = fi_pep_bind(passive, &rail.event_queue()->fid, 0);
  if (code == 0) code = fi_listen(passive);
  if (code != 0) return fail(fabric_error(code, fmt::format("listen on {}", address.to_string())));
  return owner;
}

SocketAddress name_of(fid& object) {
  sockaddr_storage storage{};
  std::size_t length = sizeof storage;
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  if (fi_getname(&object, address, &length) != 0) return {};
  return SocketAddress(address, static_cast<socklen_t>(length));
}

SocketAddress source_of(const fi_info& request) {
  const auto* address = static_cast<const sockaddr*>(request.dest_addr);
  if (address == nullptr || (address->sa_family != AF_INET && address->sa_family != AF_INET6)) {
    return {};
  }
  return SocketAddress(address, static_cast<socklen_t>(request.dest_addrlen));
}

void reject(fid_pep* passive, const fi_info& request, const Error& reason, const Hello& local) {
  const auto refusal = encode_refusal(reason, local);
  fi_reject(passive, request.handle, refusal.data(), refusal.size());
}

class NativeListener final : public Listener {
 public:
  NativeListener(Rail& rail, PassiveEndpointHandle passive)
      : rail_(rail), passive_(std::move(passive)) {}

  SocketAddress address() const override { return name_of(passive_->fid); }
  void progress(Instant now) override { now_ = now; }
  Instant next_deadline() const override { return kNever; }

  void on_request(fid&, InfoHandle request, std::span<const std::byte> data) override {
    const SocketAddress source = source_of(*request);
    auto greeting = decode_greeting(data, rail_.hello());
    if (!greeting) {
      log_warning("refused a connection from {}: {}", source.to_string(),
                  greeting.error().to_string());
      reject(passive_.get(), *request, greeting.error(), rail_.hello());
      return;
    }
    if (Status accepted = rail_.accept(*request, *greeting, source, now_); !accepted) {
      log_warning("cannot accept {}: {}", source.to_string(), accepted.error().to_string());
      reject(passive_.get(), *request, accepted.error(), rail_.hello());
    }
  }

 private:
  Rail& rail_;
  const PassiveEndpointHandle passive_;
  Instant now_{};
};

// Somebody who connected and has not greeted yet.
struct Stranger {
  UniqueFd fd;
  SocketAddress source;
  Instant deadline;
  std::array<std::byte, kRequestHeaderBytes + kMaxRequestDataBytes> bytes;
  std::size_t wanted = kRequestHeaderBytes;
  std::size_t received = 0;

  std::span<const std::byte> so_far() const { return std::span(bytes).first(received); }
};

// A peer on its way into the provider.
struct Handover {
  UniqueFd socket;  // the peer's
  SocketAddress source;
  Greeting greeting;
  Instant deadline;
  PassiveEndpointHandle passive;
  SocketAddress passive_address;
  UniqueFd relay;  // our own connection to `passive`
  SocketAddress relay_address;
  int descriptor_hint = -1;
};

class GuardedListener final : public Listener {
 public:
  GuardedListener(Rail& rail, UniqueFd socket, UniqueFd spare)
      : rail_(rail), socket_(std::move(socket)), spare_(std::move(spare)) {}

  SocketAddress address() const override { return local_address(socket_.get()); }
  void progress(Instant now) override;
  void on_request(fid& passive, InfoHandle request, std::span<const std::byte> data) override;
  Instant next_deadline() const override;

 private:
  void accept_strangers();
  bool accept_one();
  // Whether the stranger is still one.
  bool read(Stranger& stranger);
  Status judge(Stranger& stranger);
  Status hand_over(Stranger& stranger);
  void refuse(Stranger& stranger, const Error& reason);
  void log_refusal(const SocketAddress& source, const Error& reason);

  Rail& rail_;
  const UniqueFd socket_;
  // Given up for a moment when descriptors run out, so that a waiting connection can be accepted
  // and closed; else it would keep us awake for ever.
  UniqueFd spare_;
  std::list<Stranger> strangers_;  // in the order of their deadlines
  std::list<Handover> handovers_;
  std::minstd_rand random_{std::random_device{}()};
  Instant now_{};
  Instant next_log_ = Instant::min();
  std::size_t unlogged_ = 0;
};

void GuardedListener::progress(Instant now) {
  now_ = now;
  accept_strangers();
  for (auto stranger = strangers_.begin(); stranger != strangers_.end();) {
    stranger = read(*stranger) ? std::next(stranger) : strangers_.erase(stranger);
  }
  std::erase_if(handovers_, [&](const Handover& handover) { return handover.deadline <= now; });
}

Instant GuardedListener::next_deadline() const {
  Instant next = kNever;
  if (!strangers_.empty()) next = strangers_.front().deadline;
  for (const Handover& handover : handovers_)
    next = std::min(next, handover.deadline);
  return next;
}

void GuardedListener::accept_strangers() {
  for (int count = 0; count < kAcceptsPerTurn && accept_one(); ++count) {
    if (strangers_.size() <= kMaxStrangers) continue;
    refuse(strangers_.front(), Error(Errc::kNoSpace, "too many connections without a greeting"));
    strangers_.pop_front();
  }
}

bool GuardedListener::accept_one() {
  UniqueFd fd(::accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!fd) {
    if (errno != EMFILE && errno != ENFILE) return false;
    spare_.reset();
    fd.reset(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const SocketAddress source = peer_address(fd.get());
    fd.reset();
    spare_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    log_refusal(source, system_error(EMFILE, "accept"));
    return false;
  }
  tune_socket(fd.get());
  Stranger& stranger = strangers_.emplace_back();
  stranger.source = peer_address(fd.get());
  stranger.deadline = saturating_add(now_, rail_.options().handshake_timeout);
  epoll_event event{.events = EPOLLIN | EPOLLRDHUP, .data = {.u64 = 0}};
  ::epoll_ctl(rail_.epoll_fd(), EPOLL_CTL_ADD, fd.get(), &event);
  stranger.fd = std::move(fd);
  return true;
}

bool GuardedListener::read(Stranger& stranger) {
  while (stranger.received < stranger.wanted) {
    const ssize_t count = ::recv(stranger.fd.get(), stranger.bytes.data() + stranger.received,
                                 stranger.wanted - stranger.received, 0);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
      if (now_ < stranger.deadline) return true;
      refuse(stranger, Error(Errc::kTimedOut, "no greeting came in time"));
      return false;
    }
    if (count <= 0) {
      log_refusal(stranger.source,
                  Error(Errc::kProtocol, "it closed the connection without a greeting"));
      return false;
    }
    stranger.received += static_cast<std::size_t>(count);
    if (Status judged = judge(stranger); !judged) {
      refuse(stranger, judged.error());
      return false;
    }
  }
  ::epoll_ctl(rail_.epoll_fd(), EPOLL_CTL_DEL, stranger.fd.get(), nullptr);
  if (Status handed = hand_over(stranger); !handed) refuse(stranger, handed.error());
  return false;
}

Status GuardedListener::judge(Stranger& stranger) {
  const auto header = stranger.so_far().first(std::min(stranger.received, kRequestHeaderBytes));
  auto data_bytes = request_data_bytes(header);
  if (data_bytes) {
    if (header.size() == kRequestHeaderBytes) stranger.wanted = kRequestHeaderBytes + *data_bytes;
    return {};
  }
  // Another service's client greets without a header, and understands a bare refusal.
  const auto own = encode(rail_.hello());
  const auto magic = stranger.so_far().first(std::min<std::size_t>(stranger.received, 4));
  if (!std::ranges::equal(magic, std::span(own).first(magic.size()))) {
    return fail(std::move(data_bytes).error());
  }
  stranger.wanted = kHelloBytes;
  if (stranger.received < kHelloBytes) return {};
  auto hello = decode_hello(stranger.so_far(), rail_.hello());
  return fail(hello ? Error(Errc::kProtocol, "a greeting without a connection request")
                    : std::move(hello).error());
}

Status GuardedListener::hand_over(Stranger& stranger) {
  const auto request = stranger.so_far();
  auto greeting = decode_greeting(request.subspan(kRequestHeaderBytes), rail_.hello());
  if (!greeting) return fail(std::move(greeting).error());

  sockaddr_in loopback{};
  loopback.sin_family = AF_INET;
  loopback.sin_addr.s_addr =
      htonl(0x7f000000U | std::uniform_int_distribution<std::uint32_t>(2, 0xfffffe)(random_));
  const SocketAddress hidden(reinterpret_cast<sockaddr*>(&loopback), sizeof loopback);
  auto passive = open_passive(rail_, hidden);
  if (!passive) return fail(std::move(passive).error());

  Handover handover{.socket = {},
                    .source = stranger.source,
                    .greeting = *greeting,
                    .deadline = stranger.deadline,
                    .passive = std::move(*passive),
                    .passive_address = {},
                    .relay = {},
                    .relay_address = {}};
  handover.passive_address = name_of(handover.passive->fid);
  handover.relay.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int relay = handover.relay.get();
  ::setsockopt(relay, SOL_SOCKET, SO_SNDTIMEO, &kLoopbackTimeout, sizeof kLoopbackTimeout);
  if (::connect(relay, handover.passive_address.get(), handover.passive_address.length()) != 0 ||
      ::send(relay, request.data(), request.size(), MSG_NOSIGNAL) !=
          static_cast<ssize_t>(request.size())) {
    return fail(system_error(errno, "reach the provider over loopback"));
  }
  handover.relay_address = local_address(relay);
  handover.descriptor_hint = next_descriptor(rail_.epoll_fd());
  handover.socket = std::move(stranger.fd);
  handovers_.push_back(std::move(handover));
  return {};
}

void GuardedListener::on_request(fid& passive, InfoHandle request, std::span<const std::byte>) {
  const auto found =
      std::find_if(handovers_.begin(), handovers_.end(), [&](const Handover& handover) {
        return &handover.passive->fid == &passive && handover.relay_address == source_of(*request);
      });
  if (found == handovers_.end()) return;
  Handover handover = std::move(*found);
  handovers_.erase(found);

  const Error unreachable(Errc::kSystem, "the provider's socket cannot be found");
  const int slot =
      find_socket(handover.passive_address, handover.relay_address, handover.descriptor_hint);
  Status accepted = fail(unreachable);
  if (slot >= 0 && ::dup3(handover.socket.get(), slot, O_CLOEXEC) == slot) {
    handover.socket.reset();
    accepted = rail_.accept(*request, handover.greeting, handover.source, now_);
  }
  if (!accepted) {
    log_warning("cannot accept {}: {}", handover.source.to_string(), accepted.error().to_string());
    reject(handover.passive.get(), *request, accepted.error(), rail_.hello());
  }
}

void GuardedListener::refuse(Stranger& stranger, const Error& reason) {
  log_refusal(stranger.source, reason);
  if (!stranger.fd) return;
  // One attempt, without waiting: a stranger who does not read gets nothing.
  if (request_data_bytes(stranger.so_far().first(std::min<std::size_t>(stranger.received, 4)))) {
    const auto answer = encode_rejection(reason, rail_.hello());
    ::send(stranger.fd.get(), answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  } else {
    const auto answer = encode_refusal(reason, rail_.hello());
    ::send(stranger.fd.get(), answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  ::shutdown(stranger.fd.get(), SHUT_WR);
}

void GuardedListener::log_refusal(const SocketAddress& source, const Error& reason) {
  if (now_ < next_log_) {
    ++unlogged_;
    return;
  }
  next_log_ = now_ + kRefusalLogInterval;
  log_warning("refused a connection from {} on {}: {}{}", source.to_string(), address().to_string(),
              reason.to_string(),
              unlogged_ > 0 ? fmt::format(" (and {} more before)", unlogged_) : "");
  unlogged_ = 0;
}

Error listen_error(int error, const SocketAddress& address) {
  Error failure = system_error(error, fmt::format("listen on {}", address.to_string()));
  if (error == EADDRINUSE) {
    return std::move(failure).with_fix(
        fmt::format("stop what uses port {} or choose another; port 0 takes any", address.port()));
  }
  if (error == EACCES) {
    return std::move(failure).with_fix("ports below 1024 need privileges; choose a higher one");
  }
  return failure;
}

Result<std::unique_ptr<Listener>> open_guarded(Rail& rail, const SocketAddress& address) {
  UniqueFd fd(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return fail(listen_error(errno, address));
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(fd.get(), address.get(), address.length()) != 0 || ::listen(fd.get(), kBacklog) != 0) {
    return fail(listen_error(errno, address));
  }
  epoll_event event{.events = EPOLLIN, .data = {.u64 = 0}};
  if (::epoll_ctl(rail.epoll_fd(), EPOLL_CTL_ADD, fd.get(), &event) != 0) {
    return fail(system_error(errno, "watch the listening socket"));
  }
  return std::make_unique<GuardedListener>(rail, std::move(fd),
                                           UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)));
}

}  // namespace

Result<std::unique_ptr<Listener>> open_listener(Rail& rail, const SocketAddress& address) {
  if (rail.device().uses_tcp_sockets()) return open_guarded(rail, address);
  auto passive = open_passive(rail, address);
  if (!passive) return fail(std::move(passive).error());
  return std::make_unique<NativeListener>(rail, std::move(*passive));
}

}  // namespace lochos::fabric
