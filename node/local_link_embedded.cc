// The link to an engine in this process. The engine thread puts answers into the request table and
// wakes the waiting thread; nothing is encoded or copied.
#include <atomic>
#include <utility>

#include "node/local_link.h"
#include "node/store_backend.h"

namespace lochos {
namespace {

Error ended() {
  return {Errc::kClosed, "the node in this process has ended"};
}

// The engine's view of the link. Outlives the link until the engine has forgotten it.
class Client final : public EmbeddedClient {
 public:
  explicit Client(EngineQueue& queue) : queue_(queue) {}

  void deliver(LocalReply reply) override {
    const std::lock_guard lock(table_.mutex());
    std::vector<LocalMessage> follow_ups;
    table_.deliver(std::move(reply), follow_ups);
    send(std::move(follow_ups));
  }
  void closed() override {
    const std::lock_guard lock(table_.mutex());
    open_ = false;
    table_.fail_all(ended());
  }

  // REQUIRES (both): the table's mutex held.
  bool send(LocalMessage message) {
    if (!open_) return false;
    open_ = queue_.submit(*this, std::move(message));
    if (!open_) table_.fail_all(ended());
    return open_;
  }
  void send(std::vector<LocalMessage> messages) {
    for (LocalMessage& message : messages)
      send(std::move(message));
  }

  bool is_open() const { return open_; }
  RequestTable& table() { return table_; }

 private:
  EngineQueue& queue_;  // it holds us, not we it: it delivers only while it lives
  std::atomic<bool> open_{true};
  RequestTable table_;
};

class EmbeddedLink final : public LocalLink {
 public:
  EmbeddedLink(std::shared_ptr<EngineQueue> queue, std::shared_ptr<const PoolMapping> pool)
      : queue_(std::move(queue)),
        pool_(std::move(pool)),
        client_(std::make_shared<Client>(*queue_)),
        attached_(queue_->attach(client_)) {}
  ~EmbeddedLink() override {
    if (attached_) queue_->detach(*client_);
  }

  bool alive() const override { return attached_ && client_->is_open(); }
  std::string describe() const override { return "the node in this process"; }

  Result<std::shared_ptr<LocalRequest>> start(LocalMessage message, Instant deadline) override {
    const std::lock_guard lock(mutex());
    auto request = table().add(deadline);
    set_request_number(message, request->number);
    if (client_->send(std::move(message))) return request;
    table().remove(*request);
    return fail(ended());
  }
  void post(LocalMessage message) override {
    const std::lock_guard lock(mutex());
    client_->send(std::move(message));
  }
  void wait(LocalRequest& request, Until until) override {
    std::unique_lock lock(mutex());
    const bool came = request.changed.wait_until(lock, request.give_up, [&request, until] {
      return request.result || (until == Until::kProgress && request.progress);
    });
    if (!came) give_up(request, no_answer_error(*this));
  }
  bool ready(LocalRequest& request) override {
    const std::lock_guard lock(mutex());
    if (!request.result && std::chrono::steady_clock::now() >= request.give_up) {
      give_up(request, no_answer_error(*this));
    }
    return request.result.has_value();
  }
  void cancel(LocalRequest& request) override {
    const std::lock_guard lock(mutex());
    give_up(request, Error(Errc::kCancelled, "cancelled by the caller"));
  }
  void abandon(LocalRequest& request) override {
    const std::lock_guard lock(mutex());
    std::vector<LocalMessage> follow_ups;
    table().abandon(request, follow_ups);
    client_->send(std::move(follow_ups));
  }
  Result<int> watch(LocalRequest& request) override {
    const std::lock_guard lock(mutex());
    return table().watch(request);
  }

  std::mutex& mutex() override { return table().mutex(); }
  std::span<const std::byte> readable() const override { return pool_->memory(); }
  std::span<std::byte> writable() const override { return pool_->memory(); }

 private:
  RequestTable& table() { return client_->table(); }
  void give_up(LocalRequest& request, Error error) {
    std::vector<LocalMessage> follow_ups;
    table().give_up(request, std::move(error), follow_ups);
    client_->send(std::move(follow_ups));
  }

  const std::shared_ptr<EngineQueue> queue_;
  const std::shared_ptr<const PoolMapping> pool_;
  const std::shared_ptr<Client> client_;
  const bool attached_;
};

class EmbeddedBackend final : public StoreBackend {
 public:
  EmbeddedBackend(std::shared_ptr<EngineQueue> queue, std::shared_ptr<const PoolMapping> pool)
      : link_(std::make_shared<EmbeddedLink>(std::move(queue), std::move(pool))) {}

  Result<std::shared_ptr<LocalLink>> link(Instant) override {
    if (!link_->alive()) return fail(ended());
    return std::static_pointer_cast<LocalLink>(link_);
  }
  bool in_process() const override { return true; }

 private:
  const std::shared_ptr<EmbeddedLink> link_;
};

}  // namespace

std::shared_ptr<StoreBackend> make_embedded_backend(std::shared_ptr<EngineQueue> queue,
                                                    std::shared_ptr<const PoolMapping> pool) {
  return std::make_shared<EmbeddedBackend>(std::move(queue), std::move(pool));
}

}  // namespace lochos
