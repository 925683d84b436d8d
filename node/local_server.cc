#include "node/local_server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/log.h"
#include "node/local_session.h"

namespace lochos {
namespace {

// Bounds what a user's runaway processes can cost the node; a job has a client a rank and device.
constexpr std::size_t kMostClients = 4096;
constexpr int kMostAccepts = 64;  // a turn
// Without a free descriptor nothing can be accepted, yet the listener stays readable.
constexpr Duration kAcceptPause = std::chrono::milliseconds(100);

Error named(Error error, const std::string& path) {
  return std::move(error).with_operation("listen").with_peer(path);
}

// Held while a socket file is judged and replaced, so that of two nodes that start at once one sees
// the other. The file goes when the lock does.
class PathLock {
 public:
  static Result<PathLock> take(const std::string& path) {
    const std::string file = path + ".lock";
    for (;;) {
      UniqueFd fd(::open(file.c_str(), O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600));
      if (!fd) return fail(named(system_error(errno, "creating " + file), path));
      while (::flock(fd.get(), LOCK_EX) != 0) {
        if (errno != EINTR) return fail(named(system_error(errno, "locking " + file), path));
      }
      struct stat held {};
      // Its holder before us removed it: that lock excludes nobody any more.
      if (::fstat(fd.get(), &held) == 0 && held.st_nlink > 0) return PathLock(std::move(fd), file);
    }
  }
  PathLock(PathLock&&) = default;
  PathLock& operator=(PathLock&&) = delete;
  ~PathLock() {
    if (fd_) ::unlink(file_.c_str());
  }

 private:
  PathLock(UniqueFd fd, std::string file) : fd_(std::move(fd)), file_(std::move(file)) {}
  UniqueFd fd_;
  std::string file_;
};

Result<UniqueFd> make_socket() {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return fail(system_error(errno, "socket"));
  return fd;
}

// Removes a socket file whose process is gone. Errors: kAddressInUse.
Status remove_stale(const std::string& path, const sockaddr_un& address) {
  struct stat file {};
  if (::lstat(path.c_str(), &file) != 0) return {};
  if (!S_ISSOCK(file.st_mode)) {
    return fail(Error(Errc::kAddressInUse, path + " exists and is no socket")
                    .with_fix("remove it, or choose another --socket"));
  }
  auto probe = make_socket();
  if (!probe) return fail(std::move(probe.error()));
  const bool answered =
      ::connect(probe->get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  if (answered || (errno != ECONNREFUSED && errno != ENOENT)) {
    return fail(Error(Errc::kAddressInUse, "another process serves the socket " + path)
                    .with_cause("a node is already running there")
                    .with_fix("stop it, or choose another --socket"));
  }
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
    return fail(system_error(errno, "removing the socket of a node that is gone"));
  }
  return {};
}

Result<UniqueFd> listen_at(const std::string& path) {
  sockaddr_un address{};
  if (auto valid = make_socket_address(path, address); !valid) {
    return fail(named(std::move(valid.error()), path));
  }
  auto lock = PathLock::take(path);
  if (!lock) return fail(std::move(lock.error()));
  if (auto gone = remove_stale(path, address); !gone) {
    return fail(named(std::move(gone.error()), path));
  }
  auto listener = make_socket();
  if (!listener) return fail(named(std::move(listener.error()), path));
  // The file gets the mode of the descriptor: there is no instant at which others could connect.
  if (::fchmod(listener->get(), 0600) != 0 ||
      ::bind(listener->get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener->get(), SOMAXCONN) != 0) {
    return fail(named(system_error(errno, "binding " + path), path));
  }
  return listener;
}

class SocketServer final : public LocalServer {
 public:
  SocketServer(std::string path, UniqueFd listener, UniqueFd epoll, Engine& engine)
      : path_(std::move(path)),
        listener_(std::move(listener)),
        epoll_(std::move(epoll)),
        engine_(engine) {
    struct stat file {};
    if (::lstat(path_.c_str(), &file) == 0) file_ = {file.st_dev, file.st_ino};
  }
  ~SocketServer() override;

  bool poll(Instant now) override;
  int event_fd() const override { return epoll_.get(); }
  Instant next_deadline() const override;
  const std::string& path() const override { return path_; }
  std::size_t clients() const override { return sessions_.size(); }

  bool listen_for_clients(bool on);

 private:
  void accept_clients(Instant now);
  void add(UniqueFd socket, Instant now);
  void refuse_silent(Instant now);
  void after_serving(LocalSession& session);

  const std::string path_;
  const UniqueFd listener_;
  const UniqueFd epoll_;
  Engine& engine_;
  std::pair<dev_t, ino_t> file_{};
  Instant accept_again_ = kNever;  // when accepting is paused
  std::unordered_map<LocalSession*, std::unique_ptr<LocalSession>> sessions_;
  std::set<std::pair<Instant, LocalSession*>> greeting_;  // by deadline
};

SocketServer::~SocketServer() {
  sessions_.clear();
  struct stat file {};
  if (::lstat(path_.c_str(), &file) == 0 && std::pair(file.st_dev, file.st_ino) == file_) {
    ::unlink(path_.c_str());
  }
}

bool SocketServer::listen_for_clients(bool on) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = nullptr;  // all others are sessions
  return ::epoll_ctl(epoll_.get(), on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, listener_.get(), &event) ==
         0;
}

bool SocketServer::poll(Instant now) {
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    auto* session = static_cast<LocalSession*>(events[static_cast<std::size_t>(i)].data.ptr);
    if (session == nullptr) {
      accept_clients(now);
    } else {
      session->serve(now);
      after_serving(*session);
    }
  }
  if (!greeting_.empty() || accept_again_ != kNever) refuse_silent(now);
  return count > 0;
}

// Each session comes at most once in a batch of events, so it may go at once.
void SocketServer::after_serving(LocalSession& session) {
  if (session.greeted() || session.ended()) {
    greeting_.erase({session.greeting_deadline(), &session});
  }
  if (session.ended()) sessions_.erase(&session);
}

void SocketServer::refuse_silent(Instant now) {
  if (now >= accept_again_) {
    accept_again_ = kNever;
    listen_for_clients(true);
  }
  while (!greeting_.empty() && greeting_.begin()->first <= now) {
    LocalSession* session = greeting_.begin()->second;
    session->refuse_silence();
    after_serving(*session);
  }
}

void SocketServer::accept_clients(Instant now) {
  for (int i = 0; i < kMostAccepts; ++i) {
    UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket) {
      add(std::move(socket), now);
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
      log_warning("no local client can be accepted for now: {}",
                  system_error(errno, "accept").message());
      listen_for_clients(false);
      accept_again_ = saturating_add(now, kAcceptPause);
      return;
    } else if (errno != ECONNABORTED && errno != EINTR) {
      return;
    }
  }
}

void SocketServer::add(UniqueFd socket, Instant now) {
  auto session = std::make_unique<LocalSession>(std::move(socket), epoll_.get(), engine_, now);
  if (sessions_.size() >= kMostClients) {
    session->refuse(Error(Errc::kNoSpace, fmt::format("there are {} clients", kMostClients)));
    return;
  }
  if (!session->watch()) return;
  LocalSession* const key = session.get();
  greeting_.emplace(key->greeting_deadline(), key);
  sessions_.emplace(key, std::move(session));
}

Instant SocketServer::next_deadline() const {
  return greeting_.empty() ? accept_again_ : std::min(accept_again_, greeting_.begin()->first);
}

}  // namespace

Result<std::unique_ptr<LocalServer>> LocalServer::open(const std::string& path, Engine& engine) {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return fail(named(system_error(errno, "epoll_create1"), path));
  auto listener = listen_at(path);
  if (!listener) return fail(std::move(listener.error()));
  auto server =
      std::make_unique<SocketServer>(path, std::move(*listener), std::move(epoll), engine);
  if (!server->listen_for_clients(true)) return fail(named(system_error(errno, "epoll_ctl"), path));
  return server;
}

}  // namespace lochos
