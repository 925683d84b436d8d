#include "directory/server.h"

#include <fmt/format.h>
#include <malloc.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <set>
#include <unordered_map>
#include <vector>

#include "base/event_fd.h"
#include "base/log.h"
#include "base/unique_fd.h"
#include "directory/connection.h"
#include "directory/table.h"
#include "transport/hello.h"

namespace lochos {
namespace {

// A stranger is judged within this time; what is silent until then is refused.
constexpr Duration kGreetingTimeout = std::chrono::milliseconds(900);
// After the last word, how long the peer may take to read it and hang up. Closing at once would
// reset the connection while bytes of the peer are unread, and destroy that last word.
constexpr Duration kLinger = std::chrono::milliseconds(500);
// No more of a node's requests are read while so much of its answers is unread: its own pace, not
// this process's memory, limits it.
constexpr std::size_t kPauseReadingBytes = 1024 * 1024;
// Others' doings also make messages for a node. One that has left this much unread is dead.
constexpr std::size_t kMaxOutputBytes = 64 * 1024 * 1024;
// Read at once from one connection; then it is the next one's turn.
constexpr std::size_t kReadBytes = 256 * 1024;
// When no descriptor is left for new connections, try again after this.
constexpr Duration kAcceptPause = std::chrono::milliseconds(100);
// After this many records have gone, their memory is handed back to the system.
constexpr std::size_t kTrimRecords = 10'000;

struct Connection {
  enum class Stage : std::uint8_t {
    kGreeting,  // its hello has not come
    kJoining,   // its Join has not come
    kJoined,
    kLeaving,  // the last word is said; waiting until the peer has read it and hung up
  };
  UniqueFd fd;
  SocketAddress peer;
  Stage stage = Stage::kGreeting;
  NodeId node;
  std::string name;
  Bytes greeting;
  FrameReader input;
  OutputBuffer output;
  Instant deadline = kNever;
  bool dirty = false;      // has output to flush this turn
  bool closed = false;     // freed at the end of the turn
  bool last_word = false;  // close after what is in `output`
  std::uint32_t epoll_events = 0;

  bool paused() const { return output.pending() > kPauseReadingBytes; }
};

std::uint64_t calendar_microseconds() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(since).count());
}

// The same for each life of a directory at one address of one host.
std::uint64_t cluster_of(const SocketAddress& address) {
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  std::uint64_t hash = 0xcbf29ce484222325ULL;  // FNV-1a
  for (const char c : fmt::format("{}/{}", host, address.to_string())) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  return hash | 1;  // 0 would mean any cluster
}

Result<UniqueFd> listen_on(const SocketAddress& address) {
  UniqueFd fd(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return fail(system_error(errno, "socket"));
  const int on = 1;
  // A directory that died leaves connections in TIME_WAIT; the next one must not wait for them.
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(fd.get(), address.get(), address.length()) != 0 ||
      ::listen(fd.get(), SOMAXCONN) != 0) {
    Error error = system_error(errno, fmt::format("listen on {}", address.to_string()));
    if (error.code() != Errc::kAddressInUse) return fail(std::move(error));
    return fail(std::move(error)
                    .with_operation("directory")
                    .with_fix(fmt::format("end the process that has port {} ('ss -ltnp sport = "
                                          ":{}' shows it), or choose another: "
                                          "port 0 takes any free one",
                                          address.port(), address.port())));
  }
  return fd;
}

class Server final : public DirectoryServer {
 public:
  Server(const DirectoryOptions& options, UniqueFd listener, UniqueFd epoll, EventFd wake,
         const SocketAddress& address)
      : options_(options),
        address_(address),
        table_(TableOptions{.epoch = calendar_microseconds(),
                            .cluster = cluster_of(address),
                            .heartbeat_interval = options.heartbeat_interval,
                            .dead_after = options.dead_after}),
        listener_(std::move(listener)),
        epoll_(std::move(epoll)),
        wake_(std::move(wake)),
        scratch_(kReadBytes) {
    hello_.purpose = HelloPurpose::kDirectory;
    hello_.max_message_bytes = kMaxFrameBytes;
  }

  Status start() {
    if (auto added = watch(listener_.get(), EPOLLIN, &listener_); !added) return added;
    return watch(wake_.fd(), EPOLLIN, &wake_);
  }

  SocketAddress address() const override { return address_; }
  void stop() override {
    stopped_ = true;
    wake_.signal();
  }
  Status run() override;

 private:
  using Stage = Connection::Stage;

  Status watch(int fd, std::uint32_t events, void* tag) {
    epoll_event event{.events = events, .data = {.ptr = tag}};
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
      return fail(system_error(errno, "epoll_ctl"));
    }
    return {};
  }
  int sleep_ms(Instant now) const;
  void handle(const epoll_event& event);
  void accept_all();
  void add(UniqueFd fd, const SocketAddress& peer);
  void resume_accepting();
  void readable(Connection& c);
  void greet(Connection& c, std::span<const std::byte> bytes);
  void refuse(Connection& c, const Error& reason);
  void frames(Connection& c, std::span<const std::byte> bytes);
  bool frame(Connection& c, std::span<const std::byte> payload);
  void admit(Connection& c, const NodeMessage& message);
  void deliver_actions();
  void flush_dirty();
  void flush(Connection& c);
  void update_interest(Connection& c);
  void mark_dirty(Connection& c);
  void say_last_word(Connection& c);
  void broken(Connection& c, const Error& why);
  void close(Connection& c);
  void set_deadline(Connection& c, Instant when);
  void run_deadlines();
  void free_closed();
  void trim_memory();

  const DirectoryOptions options_;
  const SocketAddress address_;
  const SteadyClock clock_;
  Hello hello_;
  Table table_;
  UniqueFd listener_;
  UniqueFd epoll_;
  EventFd wake_;
  std::atomic<bool> stopped_ = false;

  Instant now_{};
  Bytes scratch_;
  FrameEncoder encoder_;
  Actions actions_;
  std::unordered_map<Connection*, std::unique_ptr<Connection>> connections_;
  std::unordered_map<NodeId, Connection*, NodeIdHash> nodes_;
  std::set<std::pair<Instant, Connection*>> deadlines_;
  std::vector<Connection*> dirty_;
  std::vector<Connection*> closed_;
  Instant accept_again_ = kNever;  // accepting is paused until then
  std::size_t most_records_ = 0;
};

Status Server::run() {
  std::vector<epoll_event> events(256);
  while (!stopped_) {
    const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                   sleep_ms(clock_.now()));
    if (count < 0 && errno != EINTR) return fail(system_error(errno, "epoll_wait"));
    now_ = clock_.now();
    for (int i = 0; i < count; ++i)
      handle(events[static_cast<std::size_t>(i)]);
    deliver_actions();
    // After reading: what members sent while this process slept counts before they are judged.
    if (now_ >= table_.next_deadline()) table_.tick(now_, actions_);
    deliver_actions();
    run_deadlines();
    while (!dirty_.empty()) {
      flush_dirty();
      deliver_actions();  // what a connection found broken means to others
    }
    free_closed();
    trim_memory();
  }
  return {};
}

int Server::sleep_ms(Instant now) const {
  Instant next = std::min(table_.next_deadline(), accept_again_);
  if (!deadlines_.empty()) next = std::min(next, deadlines_.begin()->first);
  if (next == kNever) return -1;
  if (next <= now) return 0;
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(next - now).count();
  return static_cast<int>(std::min<std::int64_t>(ms, 60'000));
}

void Server::handle(const epoll_event& event) {
  if (event.data.ptr == &wake_) {
    wake_.clear();
    return;
  }
  if (event.data.ptr == &listener_) {
    accept_all();
    return;
  }
  Connection& c = *static_cast<Connection*>(event.data.ptr);
  if (c.closed) return;
  if ((event.events & EPOLLOUT) != 0) flush(c);
  if (!c.closed && (event.events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) readable(c);
}

// ---- connections come ----

void Server::accept_all() {
  while (true) {
    sockaddr_storage storage{};
    socklen_t length = sizeof storage;
    auto* peer = reinterpret_cast<sockaddr*>(&storage);
    UniqueFd fd(::accept4(listener_.get(), peer, &length, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd) {
      add(std::move(fd), SocketAddress(peer, length));
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      log_warning("directory: cannot accept more connections ({} open): {}", connections_.size(),
                  system_error(errno, "accept").message());
      epoll_event event{.events = 0, .data = {.ptr = &listener_}};
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listener_.get(), &event);
      accept_again_ = now_ + kAcceptPause;
      return;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return;
    }
    // Anything else concerns a connection that ended before it was accepted.
  }
}

void Server::resume_accepting() {
  accept_again_ = kNever;
  epoll_event event{.events = EPOLLIN, .data = {.ptr = &listener_}};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listener_.get(), &event);
}

void Server::add(UniqueFd fd, const SocketAddress& peer) {
  auto owned = std::make_unique<Connection>();
  Connection& c = *owned;
  c.fd = std::move(fd);
  c.peer = peer;
  c.epoll_events = EPOLLIN;
  tune_socket(c.fd.get(), options_.dead_after);
  if (!watch(c.fd.get(), EPOLLIN, &c)) return;  // no memory for one more: it is closed
  set_deadline(c, now_ + kGreetingTimeout);
  connections_[&c] = std::move(owned);
}

void Server::readable(Connection& c) {
  if (c.stage == Stage::kJoined && c.paused()) return;
  const ssize_t count = ::recv(c.fd.get(), scratch_.data(), scratch_.size(), 0);
  if (count < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return;
    broken(c, system_error(errno, "receive"));
    return;
  }
  if (count == 0) {
    broken(c, Error(Errc::kConnectionLost, "closed by the node"));
    return;
  }
  const std::span<const std::byte> bytes(scratch_.data(), static_cast<std::size_t>(count));
  switch (c.stage) {
    case Stage::kGreeting:
      greet(c, bytes);
      break;
    case Stage::kJoining:
    case Stage::kJoined:
      frames(c, bytes);
      break;
    case Stage::kLeaving:
      break;
  }
}

void Server::greet(Connection& c, std::span<const std::byte> bytes) {
  const std::size_t wanted = std::min(kHelloBytes - c.greeting.size(), bytes.size());
  c.greeting.insert(c.greeting.end(), bytes.begin(),
                    bytes.begin() + static_cast<std::ptrdiff_t>(wanted));
  const auto ours = encode(hello_);
  // The first four bytes tell a node from a stranger: no need to wait for more.
  const std::size_t judged = std::min<std::size_t>(c.greeting.size(), 4);
  const bool stranger = !std::equal(
      c.greeting.begin(), c.greeting.begin() + static_cast<std::ptrdiff_t>(judged), ours.begin());
  if (!stranger && c.greeting.size() < kHelloBytes) return;
  const auto hello = decode_hello(c.greeting, hello_);
  c.greeting = {};
  if (!hello) {
    refuse(c, hello.error());
    return;
  }
  c.output.bytes().insert(c.output.bytes().end(), ours.begin(), ours.end());
  mark_dirty(c);
  c.stage = Stage::kJoining;
  set_deadline(c, now_ + options_.dead_after);
  if (bytes.size() > wanted) frames(c, bytes.subspan(wanted));
}

void Server::refuse(Connection& c, const Error& reason) {
  log_debug("directory: refused {}: {}", c.peer.to_string(), reason.to_string());
  const auto refusal = encode_refusal(reason, hello_);
  c.output.bytes().insert(c.output.bytes().end(), refusal.begin(), refusal.end());
  say_last_word(c);
}

void Server::frames(Connection& c, std::span<const std::byte> bytes) {
  const auto status = c.input.feed(
      bytes, [&](std::span<const std::byte> payload) { return frame(c, payload) && !c.paused(); });
  if (!status && !c.closed) broken(c, status.error());
}

// Returns whether the next frame may be looked at.
bool Server::frame(Connection& c, std::span<const std::byte> payload) {
  if (c.stage == Stage::kLeaving || c.closed) return true;  // what it still says is void
  const auto message = decode_node_message(payload);
  if (!message) {
    broken(c, message.error());
    return false;
  }
  if (c.stage == Stage::kJoining) {
    admit(c, *message);
  } else {
    table_.apply(now_, c.node, *message, actions_);
    if (std::holds_alternative<Leave>(*message)) {
      nodes_.erase(c.node);
      say_last_word(c);
    }
  }
  deliver_actions();
  return !c.closed;
}

void Server::admit(Connection& c, const NodeMessage& message) {
  const Join* join = std::get_if<Join>(&message);
  if (join == nullptr) {
    broken(c, Error(Errc::kProtocol, "its first message was not Join"));
    return;
  }
  const auto node = table_.join(now_, *join, actions_);
  if (!node) {
    encoder_.append(
        DirectoryMessage(
            Failed{.request = 0, .code = node.error().code(), .message = node.error().message()}),
        c.output.bytes());
    say_last_word(c);
    return;
  }
  set_deadline(c, kNever);
  c.stage = Stage::kJoined;
  c.node = *node;
  c.name = join->name;
  nodes_[*node] = &c;
  log_info("directory: node {} ('{}') joined from {}", node->to_string(), c.name,
           c.peer.to_string());
}

// ---- messages go ----

void Server::deliver_actions() {
  // Delivery can break a connection, and that makes further actions.
  for (std::size_t index = 0; index < actions_.size(); ++index) {
    const auto found = nodes_.find(actions_[index].to);
    if (found == nodes_.end()) continue;
    Connection& c = *found->second;
    encoder_.append(actions_[index].message, c.output.bytes());
    if (std::holds_alternative<Fenced>(actions_[index].message)) {
      log_warning("directory: node {} ('{}') at {} was declared dead", c.node.to_string(), c.name,
                  c.peer.to_string());
      nodes_.erase(found);
      say_last_word(c);
    } else if (c.output.pending() > kMaxOutputBytes) {
      broken(c, Error(Errc::kConnectionLost,
                      fmt::format("it left {} bytes unread", c.output.pending())));
    } else {
      mark_dirty(c);
    }
  }
  actions_.clear();
}

void Server::mark_dirty(Connection& c) {
  if (c.dirty) return;
  c.dirty = true;
  dirty_.push_back(&c);
}

void Server::flush_dirty() {
  for (std::size_t index = 0; index < dirty_.size(); ++index) {
    Connection& c = *dirty_[index];
    c.dirty = false;
    if (!c.closed) flush(c);
  }
  dirty_.clear();
}

void Server::flush(Connection& c) {
  const bool was_paused = c.paused();
  const auto written = c.output.flush(c.fd.get());
  if (!written) {
    broken(c, written.error());
    return;
  }
  if (c.stage == Stage::kJoined && was_paused) {
    // Its heartbeats wait behind the requests that are not read; that it reads proves as much.
    if (*written > 0) table_.apply(now_, c.node, Heartbeat{}, actions_);
    if (!c.paused()) frames(c, {});
    if (c.closed) return;
  }
  if (c.last_word && c.output.pending() == 0) {
    c.last_word = false;
    ::shutdown(c.fd.get(), SHUT_WR);
  }
  update_interest(c);
}

void Server::update_interest(Connection& c) {
  const bool reads = c.stage != Stage::kJoined || !c.paused();
  std::uint32_t events = reads ? std::uint32_t{EPOLLIN} : 0U;
  if (c.output.pending() > 0) events |= EPOLLOUT;
  if (events == c.epoll_events) return;
  c.epoll_events = events;
  epoll_event event{.events = events, .data = {.ptr = &c}};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, c.fd.get(), &event);
}

// ---- connections go ----

void Server::say_last_word(Connection& c) {
  c.stage = Stage::kLeaving;
  c.last_word = true;
  set_deadline(c, now_ + kLinger);
  mark_dirty(c);
}

void Server::broken(Connection& c, const Error& why) {
  if (c.stage == Stage::kJoined) {
    log_info("directory: node {} ('{}') at {} is gone: {}", c.node.to_string(), c.name,
             c.peer.to_string(), why.to_string());
    nodes_.erase(c.node);
    table_.disconnect(now_, c.node, actions_);
  }
  close(c);
}

void Server::close(Connection& c) {
  if (c.closed) return;
  c.closed = true;
  set_deadline(c, kNever);
  c.fd.reset();
  closed_.push_back(&c);
}

void Server::set_deadline(Connection& c, Instant when) {
  if (c.deadline != kNever) deadlines_.erase({c.deadline, &c});
  c.deadline = when;
  if (when != kNever) deadlines_.insert({when, &c});
}

void Server::run_deadlines() {
  if (accept_again_ <= now_) resume_accepting();
  while (!deadlines_.empty() && deadlines_.begin()->first <= now_) {
    Connection& c = *deadlines_.begin()->second;
    if (c.stage == Stage::kGreeting) {
      refuse(c, Error(Errc::kProtocol, "the peer said nothing that is a greeting"));
    } else {
      close(c);
    }
  }
}

void Server::free_closed() {
  for (Connection* c : closed_)
    connections_.erase(c);
  closed_.clear();
}

void Server::trim_memory() {
  const TableStats stats = table_.stats();
  const std::size_t records = stats.entries + stats.copies;
  most_records_ = std::max(most_records_, records);
  if (most_records_ - records < std::max(kTrimRecords, most_records_ / 2)) return;
  most_records_ = records;
  ::malloc_trim(0);
}

}  // namespace

Result<std::unique_ptr<DirectoryServer>> DirectoryServer::open(const DirectoryOptions& options) {
  auto listener = listen_on(options.listen);
  if (!listener) return fail(listener.error());
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  auto* bound = reinterpret_cast<sockaddr*>(&storage);
  if (::getsockname(listener->get(), bound, &length) != 0) {
    return fail(system_error(errno, "getsockname"));
  }
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return fail(system_error(errno, "epoll_create1"));
  auto wake = EventFd::open();
  if (!wake) return fail(wake.error());
  auto server = std::make_unique<Server>(options, std::move(*listener), std::move(epoll),
                                         std::move(*wake), SocketAddress(bound, length));
  if (auto started = server->start(); !started) return fail(started.error());
  return server;
}

}  // namespace lochos
