#include "tests/node/sim_cluster.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "node/peer_codec.h"

namespace lochos {
namespace {

// Far beyond what any of these transfers takes.
constexpr Duration kTooLong = std::chrono::minutes(2);
constexpr Duration kTick = std::chrono::milliseconds(10);

class CountedRegion final : public Region {
 public:
  CountedRegion(std::unique_ptr<Region> real, RegistrationCounts& counts)
      : Region(real->memory(), real->remote_address(real->memory().data()), real->remote_key()),
        real_(std::move(real)),
        counts_(counts) {
    ++counts_.made;
    ++counts_.live;
    counts_.bytes += memory().size();
  }
  ~CountedRegion() override {
    --counts_.live;
    counts_.bytes -= memory().size();
  }

 private:
  const std::unique_ptr<Region> real_;
  RegistrationCounts& counts_;
};

}  // namespace

Result<std::unique_ptr<Region>> CountingTransport::register_memory(std::span<std::byte> memory) {
  if (counts_.fail_after == 0) return fail(Errc::kPermission, "no more memory may be locked");
  --counts_.fail_after;
  auto real = real_->register_memory(memory);
  if (!real) return fail(std::move(real.error()));
  return std::make_unique<CountedRegion>(std::move(*real), counts_);
}

const Result<LocalPayload>* SimClient::answer(LocalRequestNumber request) const {
  for (const LocalReply& reply : replies) {
    const bool progress = reply.result && std::holds_alternative<LocalProgress>(*reply.result);
    if (reply.request == request && !progress) return &reply.result;
  }
  return nullptr;
}

Errc SimClient::error(LocalRequestNumber request) const {
  const auto* found = answer(request);
  EXPECT_NE(found, nullptr) << "no answer";
  if (found == nullptr) return Errc::kSystem;
  EXPECT_FALSE(*found) << "no error";
  return *found ? Errc::kSystem : found->error().code();
}

// The way to a table in the same thread: messages arrive at once, answers with the next turn.
class SimCluster::Channel final : public DirectoryChannel {
 public:
  Channel(SimCluster& cluster, Join join) : cluster_(cluster), join_(std::move(join)) {}

  void join() {
    Actions out;
    node = *cluster_.table_.join(cluster_.network_.now(), join_, out);
    cluster_.channels_[node] = this;
    cluster_.route(out);
  }
  void send(const NodeMessage& message) override {
    Actions out;
    cluster_.table_.apply(cluster_.network_.now(), node, message, out);
    cluster_.route(out);
  }
  void poll(Instant, std::vector<ChannelEvent>& events) override {
    if (held) return;
    for (DirectoryMessage& message : std::exchange(inbox, {})) {
      ChannelEvent event;
      event.message = std::move(message);
      events.push_back(std::move(event));
    }
  }
  int event_fd() const override { return -1; }
  Instant next_deadline() const override { return kNever; }
  bool joined() const override { return true; }
  std::string describe() const override { return "a table"; }

  NodeId node;
  std::deque<DirectoryMessage> inbox;
  bool held = false;

 private:
  SimCluster& cluster_;
  const Join join_;
};

SimCluster::SimCluster(std::size_t nodes, std::uint64_t pool_bytes) {
  for (std::size_t i = 0; i < nodes; ++i) {
    auto host = std::make_unique<Host>();
    host->address = *SocketAddress::parse("10.0.0." + std::to_string(i + 1) + ":0");
    TransportOptions options;
    options.hello.purpose = HelloPurpose::kData;
    options.hello.max_message_bytes = kMaxPeerMessageBytes;
    options.receive_buffer_bytes = kMaxPeerMessageBytes;
    auto transport = std::make_unique<CountingTransport>(
        network_.open_transport(host->address, options), host->counts, TransportKind::kTcp);
    const SocketAddress listening = *transport->listen(host->address);
    Join join;
    join.name = "node" + std::to_string(i);
    join.rails = {{TransportKind::kTcp, listening.to_string()}};
    auto channel = std::make_unique<Channel>(*this, join);
    host->channel = channel.get();
    PoolOptions pool_options;
    pool_options.bytes = pool_bytes;
    auto pool = Pool::open(pool_options);
    EXPECT_TRUE(pool) << pool.error().to_string();
    std::vector<Rail> rails;
    rails.push_back({std::move(transport), listening});
    auto engine = Engine::create({}, std::move(*pool), std::move(rails), std::move(channel));
    EXPECT_TRUE(engine) << engine.error().to_string();
    host->engine = std::move(*engine);
    hosts_.push_back(std::move(host));
    hosts_.back()->channel->join();
  }
}

// Engines end before the network that carries them.
SimCluster::~SimCluster() {
  channels_.clear();
  for (auto& host : hosts_)
    host->engine.reset();
}

void SimCluster::route(Actions& out) {
  for (Outgoing& action : out) {
    const auto channel = channels_.find(action.to);
    if (channel != channels_.end()) channel->second->inbox.push_back(std::move(action.message));
  }
}

bool SimCluster::turn() {
  bool busy = false;
  for (auto& host : hosts_) {
    if (host->engine) busy |= host->engine->turn(network_.now());
    const bool waits = host->engine && !host->channel->held && !host->channel->inbox.empty();
    busy |= waits || (host->engine && !host->engine->arm());
  }
  Actions out;
  for (const auto& [node, channel] : channels_)
    table_.apply(network_.now(), node, Heartbeat{}, out);
  table_.tick(network_.now(), out);
  busy |= !out.empty();
  route(out);
  return busy;
}

bool SimCluster::run(const std::function<bool()>& done) {
  const Instant end = network_.now() + kTooLong;
  while (!done()) {
    if (turn()) continue;
    if (network_.now() >= end) return false;
    network_.step(network_.now() + kTick);
  }
  return true;
}

void SimCluster::pass(Duration time) {
  const Instant end = network_.now() + time;
  EXPECT_TRUE(run([&] { return network_.now() >= end; }));
}

LocalRequestNumber SimCluster::ask(std::size_t node, LocalMessage message) {
  ++last_request_;
  std::visit(
      [this](auto& m) {
        using Message = std::decay_t<decltype(m)>;
        if constexpr (requires { m.request; } && !std::is_same_v<Message, LocalCancel>) {
          m.request = last_request_;
        }
      },
      message);
  engine(node).handle(client(node), std::move(message), network_.now());
  return last_request_;
}

WriterNumber SimCluster::begin(std::size_t node, const std::string& name,
                               const std::vector<std::byte>& bytes, std::uint64_t published) {
  const auto request = ask(node, LocalCreate{0, id_of(name), name, bytes.size(), kNoTimeout});
  EXPECT_TRUE(run([&] { return client(node).answer(request) != nullptr; }));
  const auto* created = client(node).as<LocalCreated>(request);
  EXPECT_NE(created, nullptr);
  if (created == nullptr) return 0;
  std::memcpy(engine(node).pool().memory().data() + created->offset, bytes.data(), bytes.size());
  ask(node, LocalPublish{created->writer, published});
  return created->writer;
}

LocalRequestNumber SimCluster::put(std::size_t node, const std::string& name,
                                   const std::vector<std::byte>& bytes) {
  const WriterNumber writer = begin(node, name, bytes, bytes.size());
  const auto request = ask(node, LocalSeal{0, writer, kNoTimeout});
  EXPECT_TRUE(run([&] { return client(node).as<LocalDone>(request) != nullptr; }));
  return request;
}

LocalRequestNumber SimCluster::get_into(std::size_t node, const std::string& name,
                                        std::span<std::byte> buffer, Duration timeout) {
  return ask(node, LocalGetInto{0, id_of(name), name, buffer.data(), buffer.size(), timeout});
}

LocalRequestNumber SimCluster::get(std::size_t node, const std::string& name) {
  return ask(node, LocalGet{0, id_of(name), name, kNoTimeout, false});
}

void SimCluster::hold_directory(std::size_t node, bool held) {
  hosts_.at(node)->channel->held = held;
}

void SimCluster::kill(std::size_t node) {
  Host& host = *hosts_.at(node);
  const NodeId id = host.channel->node;
  channels_.erase(id);
  network_.kill(host.address, /*reset=*/true);
  host.engine.reset();
  Actions out;
  table_.disconnect(network_.now(), id, out);
  route(out);
}

std::span<const std::byte> SimCluster::bytes(std::size_t node, const LocalView& view) {
  if (view.external != nullptr) return {view.external, view.size};
  return engine(node).pool().memory().subspan(view.offset, view.size);
}

ObjectId id_of(const std::string& name) {
  return *ObjectId::from_name(name);
}

}  // namespace lochos
