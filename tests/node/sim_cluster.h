// Some engines and a directory's table in one thread and in virtual time, over simulated rails that
// count what is registered. One thread; nothing waits.
#pragma once

#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "directory/channel.h"
#include "directory/table.h"
#include "node/engine.h"
#include "transport/sim/sim_network.h"

namespace lochos {

// What CountingTransports register. Outlives them and their regions.
struct RegistrationCounts {
  std::size_t live = 0;
  std::size_t made = 0;
  std::uint64_t bytes = 0;  // of the live ones
  // So many more succeed, then kPermission.
  std::size_t fail_after = std::numeric_limits<std::size_t>::max();
};

// Another transport that says it is of kind `kind` and counts its registrations.
class CountingTransport final : public Transport {
 public:
  CountingTransport(std::unique_ptr<Transport> real, RegistrationCounts& counts, TransportKind kind)
      : real_(std::move(real)), counts_(counts), kind_(kind) {}

  TransportKind kind() const override { return kind_; }
  std::string describe() const override { return real_->describe(); }
  const Limits& limits() const override { return real_->limits(); }
  Result<std::unique_ptr<Region>> register_memory(std::span<std::byte> memory) override;
  Result<SocketAddress> listen(const SocketAddress& address) override {
    return real_->listen(address);
  }
  Endpoint* connect(const SocketAddress& address, Instant deadline) override {
    return real_->connect(address, deadline);
  }
  void set_hello(const Hello& hello) override { real_->set_hello(hello); }
  std::size_t poll(std::span<Completion> completions) override { return real_->poll(completions); }
  std::size_t poll_connections(Instant now, std::span<ConnectionEvent> events) override {
    return real_->poll_connections(now, events);
  }
  int event_fd() const override { return real_->event_fd(); }
  bool arm() override { return real_->arm(); }
  Instant next_deadline() const override { return real_->next_deadline(); }

 private:
  const std::unique_ptr<Transport> real_;
  RegistrationCounts& counts_;
  const TransportKind kind_;
};

// A client in the engine's process: keeps what it is told.
class SimClient final : public LocalClient {
 public:
  void deliver(LocalReply reply) override { replies.push_back(std::move(reply)); }
  bool in_process() const override { return true; }

  // The final answer to the request, or null.
  const Result<LocalPayload>* answer(LocalRequestNumber request) const;
  // Its error, which must be there.
  Errc error(LocalRequestNumber request) const;
  template <class T>
  const T* as(LocalRequestNumber request) const {
    const auto* found = answer(request);
    return found != nullptr && *found ? std::get_if<T>(&**found) : nullptr;
  }

  std::vector<LocalReply> replies;
};

class SimCluster {
 public:
  explicit SimCluster(std::size_t nodes, std::uint64_t pool_bytes = 16 << 20);
  ~SimCluster();

  // Runs until `done`; false if nothing happens any more, or after too long a (virtual) time.
  bool run(const std::function<bool()>& done);
  // Lets `time` pass.
  void pass(Duration time);
  // Asks the node for something; the request's number.
  LocalRequestNumber ask(std::size_t node, LocalMessage message);
  LocalRequestNumber put(std::size_t node, const std::string& name,
                         const std::vector<std::byte>& bytes);
  // An object that is being filled, `published` of its bytes so far.
  WriterNumber begin(std::size_t node, const std::string& name, const std::vector<std::byte>& bytes,
                     std::uint64_t published);
  LocalRequestNumber get_into(std::size_t node, const std::string& name,
                              std::span<std::byte> buffer, Duration timeout = kNoTimeout);
  LocalRequestNumber get(std::size_t node, const std::string& name);
  // While held, what the directory says does not reach the node.
  void hold_directory(std::size_t node, bool held);
  // The process is gone, and its connections break.
  void kill(std::size_t node);

  Engine& engine(std::size_t node) { return *hosts_.at(node)->engine; }
  SimClient& client(std::size_t node) { return hosts_.at(node)->client; }
  RegistrationCounts& counts(std::size_t node) { return hosts_.at(node)->counts; }
  std::span<const std::byte> bytes(std::size_t node, const LocalView& view);
  NodeStats stats(std::size_t node) { return engine(node).stats(); }
  Table& table() { return table_; }
  Instant now() const { return network_.now(); }

 private:
  class Channel;
  struct Host {
    RegistrationCounts counts;
    SimClient client;
    SocketAddress address;
    Channel* channel = nullptr;  // the engine's
    std::unique_ptr<Engine> engine;
    WriterNumber last_writer = 0;
  };

  void route(Actions& out);
  bool turn();

  SimNetwork network_{1};
  Table table_{TableOptions{}};
  std::map<NodeId, Channel*> channels_;
  std::vector<std::unique_ptr<Host>> hosts_;
  LocalRequestNumber last_request_ = 0;
};

ObjectId id_of(const std::string& name);

}  // namespace lochos
