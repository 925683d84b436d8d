#include "node/node.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "base/event_fd.h"
#include "base/log.h"
#include "directory/client.h"
#include "node/engine.h"
#include "node/engine_queue.h"
#include "node/local_server.h"
#include "node/rails.h"
#include "node/store_backend.h"
#include "transport/topology.h"

namespace lochos {
namespace {

// Messages from clients in this process, on their way to the engine thread.
class Queue final : public EngineQueue {
 public:
  explicit Queue(EventFd event) : event_(std::move(event)) {}

  bool attach(std::shared_ptr<EmbeddedClient> client) override {
    const std::lock_guard lock(mutex_);
    if (closed_) return false;
    LocalClient* key = client.get();
    clients_.emplace(key, std::move(client));
    return true;
  }

  bool submit(LocalClient& client, LocalMessage message) override {
    return push({&client, std::move(message), false});
  }

  void detach(EmbeddedClient& client) override { push({&client, LocalMessage{}, true}); }

  // Engine thread. Returns whether there was anything.
  bool drain(Engine& engine, Instant now) {
    {
      const std::lock_guard lock(mutex_);
      std::swap(entries_, draining_);
      signalled_ = false;
    }
    for (Entry& entry : draining_) {
      if (!entry.detach) {
        engine.handle(*entry.client, std::move(entry.message), now);
        continue;
      }
      engine.forget(*entry.client, now);
      std::shared_ptr<EmbeddedClient> last;  // dies outside the lock
      const std::lock_guard lock(mutex_);
      if (auto node = clients_.extract(entry.client); !node.empty())
        last = std::move(node.mapped());
    }
    const bool any = !draining_.empty();
    draining_.clear();
    return any;
  }

  void clear_event() const { event_.clear(); }
  void wake() const { event_.signal(); }
  int fd() const { return event_.fd(); }

  // After the engine has ended.
  void close() {
    std::unordered_map<LocalClient*, std::shared_ptr<EmbeddedClient>> clients;
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
      entries_.clear();
      clients.swap(clients_);
    }
    for (auto& [key, client] : clients)
      client->closed();
  }

 private:
  struct Entry {
    LocalClient* client;
    LocalMessage message;
    bool detach;
  };

  bool push(Entry entry) {
    bool wake_engine = false;
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return false;
      entries_.push_back(std::move(entry));
      wake_engine = !std::exchange(signalled_, true);
    }
    if (wake_engine) event_.signal();
    return true;
  }

  const EventFd event_;
  std::mutex mutex_;
  std::vector<Entry> entries_;                                                 // guarded by mutex_
  std::unordered_map<LocalClient*, std::shared_ptr<EmbeddedClient>> clients_;  // guarded by mutex_
  bool signalled_ = false;                                                     // guarded by mutex_
  bool closed_ = false;                                                        // guarded by mutex_
  std::vector<Entry> draining_;                                                // engine thread only
};

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unnamed";
}

class NodeThread final : public Node {
 public:
  static Result<std::unique_ptr<Node>> start(const NodeOptions& options);

  NodeThread() = default;
  ~NodeThread() override {
    stopping_.store(true, std::memory_order_relaxed);
    if (queue_) queue_->wake();
    if (thread_.joinable()) thread_.join();
    if (queue_) queue_->close();
  }

  Store store() override { return Store(make_embedded_backend(queue_, pool_)); }

  Status wait_until_joined(Duration timeout) override {
    std::unique_lock lock(mutex_);
    const auto is_joined = [this] { return joined_; };
    const Instant deadline = saturating_add(clock_.now(), timeout);
    const bool in_time = deadline == kNever ? (joined_changed_.wait(lock, is_joined), true)
                                            : joined_changed_.wait_until(lock, deadline, is_joined);
    if (in_time) return {};
    return fail(
        Error(Errc::kTimedOut, directory_state_)
            .with_operation("join")
            .with_peer(directory_)
            .with_fix("start `lochos directory` there, or give its address with --directory"));
  }

  std::vector<std::string> rail_addresses() const override { return rail_addresses_; }

 private:
  void run();
  bool serve(Instant now);
  void sleep(Instant now);
  void note_joined();

  // Constant after start().
  SteadyClock clock_;
  std::string directory_;
  std::shared_ptr<const PoolMapping> pool_;
  std::vector<std::string> rail_addresses_;
  std::shared_ptr<Queue> queue_;
  UniqueFd epoll_;
  Binding thread_binding_;
  int numa_node_ = kAnyNumaNode;

  // Engine thread only.
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<LocalServer> server_;

  std::thread thread_;
  std::atomic<bool> stopping_{false};

  std::mutex mutex_;
  std::condition_variable joined_changed_;
  bool joined_ = false;                            // guarded by mutex_
  std::string directory_state_ = "not connected";  // guarded by mutex_
};

Result<std::unique_ptr<Node>> NodeThread::start(const NodeOptions& options) {
  auto node = std::make_unique<NodeThread>();
  auto plan = plan_rails(options);
  if (!plan) return fail(plan.error());
  auto opened = open_rails(options, *plan);
  if (!opened) return fail(opened.error());

  PoolOptions pool_options;
  pool_options.bytes = options.pool_bytes;
  pool_options.huge_pages = options.huge_pages;
  pool_options.numa_node = plan->numa_node;
  auto pool = Pool::open(pool_options);
  if (!pool) return fail(std::move(pool.error()).with_operation("open the pool"));
  node->pool_ = (*pool)->mapping();
  node->numa_node_ = plan->numa_node;

  DirectoryClientOptions client_options;
  client_options.address = options.directory;
  client_options.join.name = options.name.empty() ? host_name() : options.name;
  client_options.join.policy = options.transport;
  client_options.join.pool_bytes = options.pool_bytes;
  for (const Rail& rail : *opened) {
    client_options.join.rails.push_back({rail.transport->kind(), rail.listen_address.to_string()});
    node->rail_addresses_.push_back(
        fmt::format("{}={}", to_string(rail.transport->kind()), rail.listen_address.to_string()));
  }
  EngineOptions engine_options;
  engine_options.name = client_options.join.name;
  engine_options.policy = options.transport;

  auto channel = open_directory_client(std::move(client_options));
  if (!channel) return fail(std::move(channel.error()).with_operation("join"));
  node->directory_ = options.directory;

  auto engine =
      Engine::create(engine_options, std::move(*pool), std::move(*opened), std::move(*channel));
  if (!engine) return fail(std::move(engine.error()).with_operation("register the pool"));
  node->engine_ = std::move(*engine);

  if (!options.socket_path.empty()) {
    auto server = LocalServer::open(options.socket_path, *node->engine_);
    if (!server) return fail(std::move(server.error()).with_operation("listen for local clients"));
    node->server_ = std::move(*server);
  }

  auto event = EventFd::open();
  if (!event) return fail(event.error());
  node->queue_ = std::make_shared<Queue>(std::move(*event));
  node->epoll_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  if (!node->epoll_) return fail(system_error(errno, "epoll_create1"));
  std::vector<int> descriptors = node->engine_->event_fds();
  descriptors.push_back(node->queue_->fd());
  if (node->server_) descriptors.push_back(node->server_->event_fd());
  for (const int descriptor : descriptors) {
    epoll_event interest{};
    interest.events = EPOLLIN;
    interest.data.fd = descriptor;
    if (::epoll_ctl(node->epoll_.get(), EPOLL_CTL_ADD, descriptor, &interest) != 0) {
      return fail(system_error(errno, "epoll_ctl"));
    }
  }
  NodeThread* self = node.get();
  node->thread_ = std::thread([self] { self->run(); });
  return node;
}

// The event loop: serve everybody once, and sleep when there was nothing to do.
void NodeThread::run() {
  if (numa_node_ != kAnyNumaNode) bind_thread(numa_node_);
  while (!stopping_.load(std::memory_order_relaxed)) {
    const Instant now = clock_.now();
    const bool busy = serve(now);
    note_joined();
    if (!busy && engine_->arm()) sleep(now);
  }
  engine_->leave();
  server_.reset();
  engine_.reset();
}

bool NodeThread::serve(Instant now) {
  bool busy = queue_->drain(*engine_, now);
  if (server_) busy |= server_->poll(now);
  busy |= engine_->turn(now);
  return busy;
}

void NodeThread::sleep(Instant now) {
  Instant next = engine_->next_deadline();
  if (server_) next = std::min(next, server_->next_deadline());
  int timeout_ms = -1;
  if (next != kNever) {
    const auto wait =
        std::chrono::ceil<std::chrono::milliseconds>(std::max(next - now, Duration::zero()));
    timeout_ms = static_cast<int>(std::min<std::int64_t>(wait.count(), 60'000));
  }
  std::array<epoll_event, 8> events;
  const int count =
      ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
  for (int i = 0; i < count; ++i) {
    if (events[static_cast<std::size_t>(i)].data.fd == queue_->fd()) queue_->clear_event();
  }
}

void NodeThread::note_joined() {
  const bool joined = engine_->joined();
  const std::lock_guard lock(mutex_);
  if (!joined) directory_state_ = engine_->stats().directory;
  if (joined == joined_) return;
  joined_ = joined;
  joined_changed_.notify_all();
}

}  // namespace

Result<std::unique_ptr<Node>> Node::start(const NodeOptions& options) {
  return NodeThread::start(options);
}

}  // namespace lochos
