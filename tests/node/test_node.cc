#include "tests/node/test_node.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <deque>
#include <random>

#include "node/store_backend.h"

namespace lochos {

class TestNode::Queue final : public EngineQueue {
 public:
  bool attach(std::shared_ptr<EmbeddedClient> client) override {
    const std::lock_guard lock(mutex_);
    if (closed_) return false;
    clients_.push_back(std::move(client));
    return true;
  }
  bool submit(LocalClient& client, LocalMessage message) override {
    return push([&client, m = std::move(message)](FakeEngine& engine) mutable {
      engine.handle(client, std::move(m), std::chrono::steady_clock::now());
    });
  }
  void detach(EmbeddedClient& client) override {
    push([this, &client](FakeEngine& engine) {
      engine.forget(client, std::chrono::steady_clock::now());
      const std::lock_guard lock(mutex_);
      std::erase_if(clients_, [&client](const auto& entry) { return entry.get() == &client; });
    });
  }
  bool push(std::function<void(FakeEngine&)> work) {
    const std::lock_guard lock(mutex_);
    if (closed_) return false;
    work_.push_back(std::move(work));
    wake_.signal();
    return true;
  }
  void drain(FakeEngine& engine) {
    wake_.clear();
    std::deque<std::function<void(FakeEngine&)>> work;
    {
      const std::lock_guard lock(mutex_);
      work.swap(work_);
    }
    for (auto& item : work)
      item(engine);
  }
  void close(FakeEngine& engine) {
    drain(engine);
    std::vector<std::shared_ptr<EmbeddedClient>> clients;
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
      clients.swap(clients_);
    }
    for (const auto& client : clients)
      client->closed();
  }
  void wake() { wake_.signal(); }
  int fd() const { return wake_.fd(); }

 private:
  EventFd wake_ = EventFd::open().value();
  std::mutex mutex_;
  bool closed_ = false;
  std::deque<std::function<void(FakeEngine&)>> work_;
  std::vector<std::shared_ptr<EmbeddedClient>> clients_;
};

TestNode::TestNode(std::string socket_path, std::uint64_t pool_bytes)
    : path_(std::move(socket_path)), queue_(std::make_shared<Queue>()) {
  PoolOptions options;
  options.bytes = pool_bytes;
  auto pool = Pool::open(options).value();
  pool_ = pool->mapping();
  engine_ = std::make_unique<FakeEngine>(std::move(pool));
  if (!path_.empty()) {
    auto server = LocalServer::open(path_, *engine_);
    EXPECT_TRUE(server) << server.error().to_string();
    server_ = std::move(*server);
  }
  thread_ = std::thread([this] { loop(); });
}

void TestNode::loop() {
  while (!stopping_) {
    std::vector<pollfd> fds{{queue_->fd(), POLLIN, 0}};
    if (server_) fds.push_back({server_->event_fd(), POLLIN, 0});
    Instant deadline = engine_->next_deadline();
    if (server_) deadline = std::min(deadline, server_->next_deadline());
    int timeout = -1;
    if (deadline != kNever) {
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      timeout = static_cast<int>(std::max<std::int64_t>(0, left.count()));
    }
    ::poll(fds.data(), fds.size(), timeout);
    const std::lock_guard turn(turn_mutex_);
    const Instant now = std::chrono::steady_clock::now();
    queue_->drain(*engine_);
    if (server_) server_->poll(now);
    engine_->turn(now);
  }
}

void TestNode::stop() {
  if (!thread_.joinable()) return;
  stopping_ = true;
  queue_->wake();
  thread_.join();
  queue_->close(*engine_);
  server_.reset();
  engine_.reset();
}

void TestNode::run(const std::function<void(FakeEngine&)>& work) {
  EventFd done = EventFd::open().value();
  ASSERT_TRUE(queue_->push([&](FakeEngine& engine) {
    work(engine);
    done.signal();
  }));
  pollfd entry{done.fd(), POLLIN, 0};
  ASSERT_EQ(::poll(&entry, 1, 10'000), 1);
  // Reading is what orders the work before our return; poll alone orders nothing.
  ASSERT_TRUE(done.clear());
}

std::size_t TestNode::clients() {
  std::size_t count = 0;
  run([&](FakeEngine&) { count = server_->clients(); });
  return count;
}

Store TestNode::connect() {
  auto store = Store::connect(path_, std::chrono::seconds(5));
  if (!store) throw std::runtime_error(store.error().to_string());
  return *store;
}

Store TestNode::embedded() {
  return Store(make_embedded_backend(queue_, pool_));
}

bool eventually(const std::function<bool()>& condition) {
  const Instant deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

std::vector<std::byte> pattern(std::size_t size, unsigned seed) {
  std::vector<std::byte> bytes(size);
  std::mt19937 random(seed);
  std::generate(bytes.begin(), bytes.end(), [&random] { return static_cast<std::byte>(random()); });
  return bytes;
}

}  // namespace lochos
