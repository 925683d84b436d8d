#include "directory/client.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

#include "base/event_fd.h"
#include "base/unique_fd.h"
#include "directory/connection.h"
#include "transport/address.h"
#include "transport/hello.h"

namespace lochos {
namespace {

// A directory that accepts the connection but answers nothing is given up after this.
constexpr Duration kJoinTimeout = std::chrono::seconds(2);
// What a directory that does not read may leave here before it counts as lost.
constexpr std::size_t kMaxOutputBytes = 64 * 1024 * 1024;
// Bounds of what a directory may ask for as heartbeat interval.
constexpr Duration kMinHeartbeat = std::chrono::milliseconds(5);
constexpr Duration kMaxHeartbeat = std::chrono::seconds(10);
constexpr std::size_t kReadBytes = 256 * 1024;

// The socket and what waits to be written to it. Thread-safe: the engine thread writes requests,
// the heartbeat thread writes heartbeats, so that a busy engine never looks dead.
class Line {
 public:
  Line() : heartbeat_([this] { beat(); }) {
    encoder_.append(NodeMessage(Heartbeat{}), beat_frame_);
  }
  ~Line() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_all();
    heartbeat_.join();
  }

  void open(UniqueFd fd, int epoll) {
    const std::lock_guard lock(mutex_);
    fd_ = std::move(fd);
    epoll_ = epoll;
    waiting_for_room_ = false;
    output_.clear();
    error_.reset();
  }
  void close() {
    const std::lock_guard lock(mutex_);
    fd_.reset();  // leaves the epoll by itself
    output_.clear();
    interval_ = Duration(0);
  }
  void start_heartbeat(Duration interval) {
    {
      const std::lock_guard lock(mutex_);
      interval_ = std::clamp(interval, kMinHeartbeat, kMaxHeartbeat);
    }
    changed_.notify_all();
  }
  void write(std::span<const std::byte> bytes) {
    const std::lock_guard lock(mutex_);
    output_.bytes().insert(output_.bytes().end(), bytes.begin(), bytes.end());
    flush();
  }
  void send(const NodeMessage& message) {
    const std::lock_guard lock(mutex_);
    encoder_.append(message, output_.bytes());
    flush();
  }
  void room_in_socket() {
    const std::lock_guard lock(mutex_);
    flush();
  }
  // Engine thread. The descriptor is closed by that thread only, so it stays valid meanwhile.
  int fd() const { return fd_.get(); }
  std::optional<Error> error() const {
    const std::lock_guard lock(mutex_);
    return error_;
  }

 private:
  // REQUIRES: mutex_ is held.
  void flush() {
    if (!fd_ || error_) return;
    if (const auto written = output_.flush(fd_.get()); !written) {
      error_ = written.error();
    } else if (output_.pending() > kMaxOutputBytes) {
      error_ = Error(Errc::kConnectionLost, "the directory reads nothing");
    }
    const bool wait = !error_ && output_.pending() > 0;
    if (wait == waiting_for_room_ && !error_) return;
    waiting_for_room_ = wait;
    // After an error the socket is writable for ever: that wakes the engine thread.
    const bool wake = wait || error_.has_value();
    epoll_event event{.events = EPOLLIN | (wake ? std::uint32_t{EPOLLOUT} : 0U),
                      .data = {.fd = fd_.get()}};
    ::epoll_ctl(epoll_, EPOLL_CTL_MOD, fd_.get(), &event);
  }

  void beat() {
    std::unique_lock lock(mutex_);
    while (!stopped_) {
      if (interval_ == Duration(0)) {
        changed_.wait(lock);
        continue;
      }
      changed_.wait_for(lock, interval_);
      // Anything that still waits for room in the socket proves as much once it is read.
      if (stopped_ || interval_ == Duration(0) || output_.pending() > 0) continue;
      output_.bytes().insert(output_.bytes().end(), beat_frame_.begin(), beat_frame_.end());
      flush();
    }
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  UniqueFd fd_;
  int epoll_ = -1;
  OutputBuffer output_;
  FrameEncoder encoder_;
  Bytes beat_frame_;
  Duration interval_{0};  // 0: not joined
  bool stopped_ = false;
  bool waiting_for_room_ = false;
  std::optional<Error> error_;
  std::thread heartbeat_;  // last: it uses all of the above
};

// One question to the name service, on a thread of its own: it may take as long as it likes, also
// longer than whoever asked exists.
class Resolution {
 public:
  static Result<std::shared_ptr<Resolution>> start(const std::string& address) {
    auto done = EventFd::open();
    if (!done) return fail(done.error());
    auto resolution = std::make_shared<Resolution>(std::move(*done));
    std::thread([resolution, address] {
      auto answer = resolve(address);
      const std::lock_guard lock(resolution->mutex_);
      resolution->answer_ = std::move(answer);
      resolution->done_.signal();
    }).detach();
    return resolution;
  }
  explicit Resolution(EventFd done) : done_(std::move(done)) {}

  int fd() const { return done_.fd(); }
  std::optional<Result<std::vector<SocketAddress>>> answer() const {
    const std::lock_guard lock(mutex_);
    return answer_;
  }

 private:
  mutable std::mutex mutex_;
  std::optional<Result<std::vector<SocketAddress>>> answer_;
  EventFd done_;
};

class Client final : public DirectoryChannel {
 public:
  Client(DirectoryClientOptions options, UniqueFd epoll)
      : options_(std::move(options)),
        epoll_(std::move(epoll)),
        backoff_(options_.min_backoff),
        random_(std::random_device{}()),
        scratch_(kReadBytes) {
    hello_.purpose = HelloPurpose::kDirectory;
    hello_.max_message_bytes = kMaxFrameBytes;
  }
  ~Client() override = default;

  void send(const NodeMessage& message) override {
    if (stage_ == Stage::kJoined) line_.send(message);
  }
  void poll(Instant now, std::vector<ChannelEvent>& events) override;
  int event_fd() const override { return epoll_.get(); }
  Instant next_deadline() const override { return deadline_; }
  bool joined() const override { return stage_ == Stage::kJoined; }
  std::string describe() const override {
    if (joined()) return options_.address;
    return fmt::format("{} ({})", options_.address, last_error_);
  }

 private:
  enum class Stage : std::uint8_t {
    kPause,       // until deadline_, then the next attempt
    kResolving,   // waiting for the name service
    kConnecting,  // waiting for TCP
    kGreeting,    // waiting for the directory's hello
    kJoining,     // waiting for Joined
    kJoined,
  };

  void start_attempt(Instant now);
  void resolved(Instant now);
  void connect_next(Instant now);
  void connected(Instant now);
  void readable(Instant now, std::vector<ChannelEvent>& events);
  void greeting_bytes(Instant now, std::span<const std::byte> bytes,
                      std::vector<ChannelEvent>& events);
  void frame_bytes(Instant now, std::span<const std::byte> bytes,
                   std::vector<ChannelEvent>& events);
  bool message(Instant now, DirectoryMessage received, std::vector<ChannelEvent>& events);
  void greeting_ended(Instant now, const Error& otherwise, std::vector<ChannelEvent>& events);
  void attempt_failed(Instant now, Error error);
  void lost(Instant now, Error error, std::vector<ChannelEvent>& events);
  void pause(Instant now);

  const DirectoryClientOptions options_;
  Hello hello_;
  UniqueFd epoll_;
  Line line_;

  Stage stage_ = Stage::kPause;
  Instant deadline_{};  // of the stage; in the past: the first attempt is due
  Duration backoff_;
  std::minstd_rand random_;
  std::string last_error_ = "not tried yet";
  std::shared_ptr<Resolution> resolution_;
  std::vector<SocketAddress> addresses_;
  std::size_t next_address_ = 0;
  Bytes greeting_;
  FrameReader input_;
  Bytes scratch_;
  NodeId node_;  // of the latest join
};

void Client::poll(Instant now, std::vector<ChannelEvent>& events) {
  if (stage_ == Stage::kPause) {
    if (now >= deadline_) start_attempt(now);
    return;
  }
  std::array<epoll_event, 4> ready;
  const int count = ::epoll_wait(epoll_.get(), ready.data(), static_cast<int>(ready.size()), 0);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = ready[static_cast<std::size_t>(i)];
    if (stage_ == Stage::kResolving) {
      resolved(now);
    } else if (event.data.fd != line_.fd()) {
      continue;  // of an attempt that has just failed
    } else if (stage_ == Stage::kConnecting) {
      connected(now);
    } else {
      if ((event.events & EPOLLOUT) != 0) line_.room_in_socket();
      if ((event.events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) readable(now, events);
    }
  }
  if (stage_ == Stage::kJoined) {
    if (auto error = line_.error()) lost(now, std::move(*error), events);
  } else if (stage_ != Stage::kPause && now >= deadline_) {
    attempt_failed(
        now, Error(Errc::kTimedOut,
                   stage_ == Stage::kResolving ? "the name service does not answer" : "no answer"));
  }
}

// ---- an attempt ----

void Client::start_attempt(Instant now) {
  addresses_.clear();
  next_address_ = 0;
  if (const auto numeric = SocketAddress::parse(options_.address)) {
    addresses_.push_back(*numeric);
    connect_next(now);
    return;
  }
  auto resolution = Resolution::start(options_.address);
  if (!resolution) {
    attempt_failed(now, resolution.error());
    return;
  }
  resolution_ = std::move(*resolution);
  epoll_event event{.events = EPOLLIN, .data = {.fd = resolution_->fd()}};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, resolution_->fd(), &event);
  stage_ = Stage::kResolving;
  deadline_ = now + std::max(options_.connect_timeout, kJoinTimeout) * 5;
}

void Client::resolved(Instant now) {
  auto answer = resolution_->answer();
  if (!answer) return;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, resolution_->fd(), nullptr);
  resolution_.reset();
  if (!*answer) {
    attempt_failed(now, answer->error());
    return;
  }
  addresses_ = std::move(**answer);
  connect_next(now);
}

void Client::connect_next(Instant now) {
  const SocketAddress address = addresses_[next_address_++];
  stage_ = Stage::kConnecting;
  UniqueFd fd(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return attempt_failed(now, system_error(errno, "socket"));
  tune_socket(fd.get(), options_.connect_timeout + kJoinTimeout);
  const int raw = fd.get();
  if (::connect(raw, address.get(), address.length()) != 0 && errno != EINPROGRESS) {
    return attempt_failed(now, system_error(errno, address.to_string()));
  }
  epoll_event event{.events = EPOLLOUT, .data = {.fd = raw}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, raw, &event) != 0) {
    return attempt_failed(now, system_error(errno, "epoll_ctl"));
  }
  line_.open(std::move(fd), epoll_.get());
  greeting_.clear();
  input_.clear();
  deadline_ = now + options_.connect_timeout;
}

void Client::connected(Instant now) {
  int code = 0;
  socklen_t length = sizeof code;
  ::getsockopt(line_.fd(), SOL_SOCKET, SO_ERROR, &code, &length);
  if (code != 0) {
    return attempt_failed(now, system_error(code, addresses_[next_address_ - 1].to_string()));
  }
  epoll_event event{.events = EPOLLIN, .data = {.fd = line_.fd()}};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, line_.fd(), &event);
  hello_.node = node_;
  line_.write(encode(hello_));
  stage_ = Stage::kGreeting;
  deadline_ = now + kJoinTimeout;
}

void Client::readable(Instant now, std::vector<ChannelEvent>& events) {
  const ssize_t count = ::recv(line_.fd(), scratch_.data(), scratch_.size(), 0);
  if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
  if (count <= 0) {
    Error error = count == 0 ? Error(Errc::kConnectionLost, "closed by the directory")
                             : system_error(errno, "receive");
    return stage_ == Stage::kGreeting ? greeting_ended(now, error, events)
                                      : lost(now, std::move(error), events);
  }
  const std::span<const std::byte> bytes(scratch_.data(), static_cast<std::size_t>(count));
  if (stage_ == Stage::kGreeting) {
    greeting_bytes(now, bytes, events);
  } else {
    frame_bytes(now, bytes, events);
  }
}

void Client::greeting_bytes(Instant now, std::span<const std::byte> bytes,
                            std::vector<ChannelEvent>& events) {
  const std::size_t wanted = std::min(kHelloBytes - greeting_.size(), bytes.size());
  greeting_.insert(greeting_.end(), bytes.begin(),
                   bytes.begin() + static_cast<std::ptrdiff_t>(wanted));
  if (greeting_.size() < kHelloBytes) return;
  if (const auto hello = decode_hello(greeting_, hello_); !hello) {
    return attempt_failed(now, hello.error());
  }
  Join join = options_.join;
  if (node_) join.previous = node_;
  line_.send(join);
  stage_ = Stage::kJoining;
  deadline_ = now + kJoinTimeout;
  if (bytes.size() > wanted) frame_bytes(now, bytes.subspan(wanted), events);
}

// The other side hung up before it had greeted: perhaps after a refusal that says why.
void Client::greeting_ended(Instant now, const Error& otherwise,
                            std::vector<ChannelEvent>& events) {
  if (greeting_.empty()) return lost(now, otherwise, events);
  attempt_failed(now, decode_refusal(greeting_, hello_));
}

void Client::frame_bytes(Instant now, std::span<const std::byte> bytes,
                         std::vector<ChannelEvent>& events) {
  std::optional<Error> broken;
  const auto status = input_.feed(bytes, [&](std::span<const std::byte> payload) {
    auto received = decode_directory_message(payload);
    if (!received) {
      broken = received.error();
      return false;
    }
    return message(now, std::move(*received), events);
  });
  if (!status) broken = status.error();
  if (broken) lost(now, std::move(*broken), events);
}

// Returns whether the connection goes on.
bool Client::message(Instant now, DirectoryMessage received, std::vector<ChannelEvent>& events) {
  if (stage_ == Stage::kJoining) {
    if (const auto* refused = std::get_if<Failed>(&received)) {
      attempt_failed(now, Error(refused->code, refused->message));
      return false;
    }
    const auto* joined = std::get_if<Joined>(&received);
    if (joined == nullptr || !joined->node) {
      attempt_failed(now, Error(Errc::kProtocol, "the directory's first message was not Joined"));
      return false;
    }
    node_ = joined->node;
    stage_ = Stage::kJoined;
    deadline_ = kNever;
    backoff_ = options_.min_backoff;
    tune_socket(line_.fd(), joined->dead_after);
    line_.start_heartbeat(joined->heartbeat_interval);
  } else if (std::holds_alternative<Fenced>(received)) {
    lost(now, Error(Errc::kFenced, "the directory declared this node dead"), events);
    return false;
  }
  events.push_back({.kind = ChannelEvent::Kind::kMessage, .message = std::move(received)});
  return true;
}

// ---- how it ends ----

void Client::lost(Instant now, Error error, std::vector<ChannelEvent>& events) {
  if (stage_ != Stage::kJoined) return attempt_failed(now, std::move(error));
  last_error_ = error.to_string();
  events.push_back({.kind = ChannelEvent::Kind::kLost,
                    .message = {},
                    .error = std::move(error).with_peer(options_.address)});
  pause(now);
}

void Client::attempt_failed(Instant now, Error error) {
  last_error_ = error.to_string();
  // Other addresses of the same name are tried at once, unless a directory has answered.
  if (stage_ == Stage::kConnecting && next_address_ < addresses_.size()) {
    line_.close();
    return connect_next(now);
  }
  pause(now);
}

// Waits half to all of the back-off, so that nodes which lost the directory at the same moment do
// not all come back at the same moment.
void Client::pause(Instant now) {
  line_.close();
  if (resolution_) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, resolution_->fd(), nullptr);
  resolution_.reset();
  input_.clear();
  stage_ = Stage::kPause;
  std::uniform_real_distribution<double> share(0.5, 1.0);
  deadline_ = now + std::chrono::duration_cast<Duration>(backoff_ * share(random_));
  backoff_ = std::min(backoff_ * 2, options_.max_backoff);
}

// The form only; whether the host exists is asked later, and again at every attempt.
Status check_address(const std::string& address) {
  const auto numeric = SocketAddress::parse(address);
  if (numeric) return {};
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0 || address.find(':') != colon || address[0] == '[') {
    return fail(numeric.error());
  }
  const std::string_view digits = std::string_view(address).substr(colon + 1);
  std::uint16_t port = 0;
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (code != std::errc() || end != digits.data() + digits.size()) return fail(numeric.error());
  return {};
}

}  // namespace

Result<std::unique_ptr<DirectoryChannel>> open_directory_client(DirectoryClientOptions options) {
  if (auto valid = check_address(options.address); !valid) return fail(valid.error());
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return fail(system_error(errno, "epoll_create1"));
  return std::make_unique<Client>(std::move(options), std::move(epoll));
}

}  // namespace lochos
