// What is particular to verbs; the promises common to all backends are in conformance_test.cc.
// Needs an RDMA port (Soft-RoCE will do: tests/lab/rxe) and says so where there is none.
#include "transport/verbs/verbs_transport.h"

#include <gtest/gtest.h>
#include <linux/capability.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <thread>
#include <vector>

#include "transport/topology.h"

namespace lochos {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A port with an IPv4 address, and what it is called.
struct UsablePort {
  VerbsPort port;
  VerbsGid gid;
  SocketAddress address;
};

// Errors: kUnsupported: there is none, and why.
Result<UsablePort> find_port() {
  auto ports = list_verbs_ports();
  if (!ports) return fail(ports.error());
  std::string reason = "there is no RDMA device";
  for (const VerbsPort& port : *ports) {
    reason = port.device + ": " + port.why_unusable;
    if (!port.why_unusable.empty()) continue;
    for (const VerbsGid& gid : port.gids) {
      if (!gid.gid.starts_with("::ffff:")) continue;
      return UsablePort{port, gid, *SocketAddress::parse(gid.gid.substr(7), 0)};
    }
    reason = port.device + ": no GID that stands for an IPv4 address";
  }
  return fail(Errc::kUnsupported, reason);
}

// One side: a transport, and what it has reported.
struct Side {
  std::unique_ptr<Transport> transport;
  std::vector<Completion> completions;
  std::vector<ConnectionEvent> events;
  std::vector<std::string> messages;

  void turn() {
    Completion batch[8];
    const std::size_t count = transport->poll(batch);
    for (std::size_t i = 0; i < count; ++i) {
      completions.push_back(batch[i]);
      if (batch[i].kind != Completion::Kind::kMessage) continue;
      messages.emplace_back(reinterpret_cast<const char*>(batch[i].message.data()),
                            batch[i].message.size());
    }
    std::vector<ConnectionEvent> fresh(
        4,
        ConnectionEvent{.kind = ConnectionEvent::Kind::kClosed, .endpoint = nullptr, .peer = {}});
    const std::size_t fresh_count =
        transport->poll_connections(std::chrono::steady_clock::now(), fresh);
    for (std::size_t i = 0; i < fresh_count; ++i)
      events.push_back(fresh[i]);
  }
  const ConnectionEvent* find(ConnectionEvent::Kind kind) const {
    for (const ConnectionEvent& event : events) {
      if (event.kind == kind) return &event;
    }
    return nullptr;
  }
  std::size_t count(Completion::Kind kind) const {
    return static_cast<std::size_t>(
        std::count_if(completions.begin(), completions.end(),
                      [&](const Completion& c) { return c.kind == kind; }));
  }
};

class VerbsTransport : public ::testing::Test {
 protected:
  void SetUp() override {
    auto found = find_port();
    // Only the device can be missing. The Soft-RoCE lab, where it is, takes a skipped test for a
    // failed one.
    if (!found && found.error().code() == Errc::kUnsupported)
      GTEST_SKIP() << found.error().to_string();
    ASSERT_TRUE(found) << found.error().to_string();
    usable_ = *found;
    options_.local = usable_.address;
  }

  static Side open(const VerbsOptions& options) {
    auto transport = open_verbs_transport(options);
    EXPECT_TRUE(transport) << transport.error().to_string();
    return Side{transport ? std::move(*transport) : nullptr, {}, {}, {}};
  }

  // Turns both sides, sleeping on their descriptors, until `done` or for 20 s.
  template <class Condition>
  static bool run_until(std::vector<Side*> sides, Condition done) {
    const auto deadline = std::chrono::steady_clock::now() + seconds(20);
    while (!done()) {
      const auto now = std::chrono::steady_clock::now();
      if (now > deadline) return false;
      for (Side* side : sides)
        side->turn();
      if (done()) return true;
      std::vector<pollfd> fds;
      bool sleep = true;
      for (Side* side : sides) {
        sleep = side->transport->arm() && sleep;
        fds.push_back({side->transport->event_fd(), POLLIN, 0});
      }
      if (sleep) ::poll(fds.data(), fds.size(), 50);
    }
    return true;
  }

  // Connects client to server and returns the client's endpoint.
  Endpoint* join(Side& client, Side& server) {
    auto address = server.transport->listen(options_.local);
    EXPECT_TRUE(address) << address.error().to_string();
    if (!address) return nullptr;
    Endpoint* endpoint =
        client.transport->connect(*address, std::chrono::steady_clock::now() + seconds(10));
    run_until({&client, &server}, [&] {
      return client.find(ConnectionEvent::Kind::kFailed) != nullptr ||
             (client.find(ConnectionEvent::Kind::kEstablished) != nullptr &&
              server.find(ConnectionEvent::Kind::kEstablished) != nullptr);
    });
    const ConnectionEvent* failed = client.find(ConnectionEvent::Kind::kFailed);
    EXPECT_EQ(failed, nullptr) << failed->error.to_string();
    EXPECT_NE(server.find(ConnectionEvent::Kind::kEstablished), nullptr);
    return endpoint;
  }

  UsablePort usable_;
  VerbsOptions options_;
};

TEST_F(VerbsTransport, MovesMessagesAndWrites) {
  Side client = open(options_), server = open(options_);
  ASSERT_TRUE(client.transport && server.transport);
  Endpoint* endpoint = join(client, server);
  ASSERT_NE(endpoint, nullptr);

  std::vector<std::byte> source(1 << 20), target(1 << 20);
  for (std::size_t i = 0; i < source.size(); ++i)
    source[i] = static_cast<std::byte>(i * 31 >> 3);
  auto from = client.transport->register_memory(source);
  auto to = server.transport->register_memory(target);
  ASSERT_TRUE(from && to);
  char text[] = "a message without a region";
  std::vector<WorkRequest> requests;
  const std::size_t chunk = 64 * 1024;
  for (std::size_t at = 0; at < source.size(); at += chunk) {
    requests.push_back({.opcode = Opcode::kWriteImmediate,
                        .immediate = static_cast<std::uint32_t>(at),
                        .local = source.data() + at,
                        .length = chunk,
                        .region = from->get(),
                        .remote_address = (*to)->remote_address(target.data() + at),
                        .remote_key = (*to)->remote_key(),
                        .context = at});
  }
  requests.push_back({.opcode = Opcode::kSend,
                      .local = reinterpret_cast<std::byte*>(text),
                      .length = std::strlen(text),
                      .context = 77});
  ASSERT_EQ(endpoint->post(requests), requests.size());
  ASSERT_TRUE(run_until({&client, &server}, [&] {
    return server.messages.size() == 1 &&
           client.count(Completion::Kind::kRequest) == requests.size();
  }));
  EXPECT_EQ(server.messages[0], text);
  EXPECT_EQ(source, target);
  EXPECT_EQ(server.count(Completion::Kind::kImmediate), requests.size() - 1);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(client.completions[i].context, requests[i].context);
    EXPECT_EQ(client.completions[i].status, Completion::Status::kDone);
  }
  endpoint->close();
  ASSERT_TRUE(run_until({&client, &server}, [&] {
    return client.find(ConnectionEvent::Kind::kClosed) != nullptr &&
           server.find(ConnectionEvent::Kind::kClosed) != nullptr;
  }));
  EXPECT_EQ(client.find(ConnectionEvent::Kind::kClosed)->error.code(), Errc::kClosed);
  EXPECT_EQ(server.find(ConnectionEvent::Kind::kClosed)->error.code(), Errc::kConnectionLost);
}

// A refused remote key breaks the connection; what was posted still ends exactly once.
TEST_F(VerbsTransport, WrongRemoteKeyEndsBothSidesAndEveryRequestOnce) {
  Side client = open(options_), server = open(options_);
  ASSERT_TRUE(client.transport && server.transport);
  Endpoint* endpoint = join(client, server);
  ASSERT_NE(endpoint, nullptr);
  std::vector<std::byte> source(64 * 1024);
  auto from = client.transport->register_memory(source);
  ASSERT_TRUE(from);
  std::vector<WorkRequest> requests(40, WorkRequest{.opcode = Opcode::kWrite,
                                                    .local = source.data(),
                                                    .length = source.size(),
                                                    .region = from->get(),
                                                    .remote_address = 4096,
                                                    .remote_key = 0x123456});
  for (std::size_t i = 0; i < requests.size(); ++i)
    requests[i].context = i;
  ASSERT_EQ(endpoint->post(requests), requests.size());
  ASSERT_TRUE(run_until({&client, &server},
                        [&] { return client.find(ConnectionEvent::Kind::kClosed) != nullptr; }));
  ASSERT_EQ(client.completions.size(), requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(client.completions[i].context, i);
    EXPECT_EQ(client.completions[i].status, Completion::Status::kFlushed);
  }
  const Error& error = client.find(ConnectionEvent::Kind::kClosed)->error;
  EXPECT_EQ(error.code(), Errc::kConnectionLost);
  EXPECT_NE(error.message().find("refused access"), std::string::npos) << error.to_string();
  EXPECT_TRUE(run_until({&client, &server},
                        [&] { return server.find(ConnectionEvent::Kind::kClosed) != nullptr; }));
}

TEST_F(VerbsTransport, NobodyListensIsRefusedQuickly) {
  Side client = open(options_);
  ASSERT_TRUE(client.transport);
  client.transport->connect(usable_.address.with_port(1),
                            std::chrono::steady_clock::now() + seconds(10));
  ASSERT_TRUE(run_until({&client}, [&] { return !client.events.empty(); }));
  EXPECT_EQ(client.events[0].kind, ConnectionEvent::Kind::kFailed);
  EXPECT_EQ(client.events[0].error.code(), Errc::kUnreachable);
  EXPECT_NE(client.events[0].error.to_string().find("nothing listens"), std::string::npos)
      << client.events[0].error.to_string();
}

TEST_F(VerbsTransport, EmptyGidIndexIsRefusedWithTheValidOnes) {
  options_.gid_index = 200;
  auto transport = open_verbs_transport(options_);
  ASSERT_FALSE(transport);
  EXPECT_EQ(transport.error().code(), Errc::kInvalidArgument);
  EXPECT_NE(transport.error().message().find(usable_.gid.gid), std::string::npos)
      << transport.error().to_string();
}

// The index alone decides: both sides come up on the address it stands for.
TEST_F(VerbsTransport, GidIndexThatIsAskedForIsUsed) {
  for (const VerbsGid& gid : usable_.port.gids) {
    SCOPED_TRACE(gid.gid);
    VerbsOptions options = options_;
    options.gid_index = gid.index;
    Side client = open(options), server = open(options);
    ASSERT_TRUE(client.transport && server.transport);
    auto address = server.transport->listen(options.local);
    ASSERT_TRUE(address) << address.error().to_string();
    Endpoint* endpoint =
        client.transport->connect(*address, std::chrono::steady_clock::now() + seconds(10));
    ASSERT_TRUE(run_until({&client, &server}, [&] { return !client.events.empty(); }));
    ASSERT_EQ(client.events[0].kind, ConnectionEvent::Kind::kEstablished)
        << client.events[0].error.to_string();
    EXPECT_NE(endpoint->describe().find("GID " + std::to_string(gid.index) + " "),
              std::string::npos)
        << endpoint->describe();
  }
}

TEST_F(VerbsTransport, SmallerMtuOfEitherSideIsUsed) {
  VerbsOptions small = options_;
  small.mtu = 512;
  Side client = open(options_), server = open(small);
  ASSERT_TRUE(client.transport && server.transport);
  Endpoint* endpoint = join(client, server);
  ASSERT_NE(endpoint, nullptr);
  EXPECT_NE(endpoint->describe().find("MTU 512"), std::string::npos) << endpoint->describe();
  std::vector<std::byte> source(100'000, std::byte{7}), target(100'000);
  auto from = client.transport->register_memory(source);
  auto to = server.transport->register_memory(target);
  ASSERT_TRUE(from && to);
  const WorkRequest request{.opcode = Opcode::kWriteImmediate,
                            .local = source.data(),
                            .length = source.size(),
                            .region = from->get(),
                            .remote_address = (*to)->remote_address(target.data()),
                            .remote_key = (*to)->remote_key()};
  ASSERT_EQ(endpoint->post({&request, 1}), 1U);
  ASSERT_TRUE(run_until({&client, &server},
                        [&] { return server.count(Completion::Kind::kImmediate) == 1; }));
  EXPECT_EQ(source, target);
}

// More connections than the completion queue was made for: it grows under traffic and loses
// nothing.
TEST_F(VerbsTransport, CompletionQueueGrowsWithTheConnections) {
  constexpr std::size_t kConnections = 40;
  Side client = open(options_), server = open(options_);
  ASSERT_TRUE(client.transport && server.transport);
  auto address = server.transport->listen(options_.local);
  ASSERT_TRUE(address);
  std::size_t sent = 0;
  char text[] = "hello";
  for (std::size_t i = 0; i < kConnections; ++i) {
    Endpoint* endpoint =
        client.transport->connect(*address, std::chrono::steady_clock::now() + seconds(20));
    ASSERT_TRUE(run_until({&client, &server}, [&] { return client.events.size() == i + 1; }));
    ASSERT_EQ(client.events.back().kind, ConnectionEvent::Kind::kEstablished)
        << client.events.back().error.to_string();
    const std::vector<WorkRequest> requests(3,
                                            WorkRequest{.opcode = Opcode::kSend,
                                                        .local = reinterpret_cast<std::byte*>(text),
                                                        .length = sizeof text});
    sent += endpoint->post(requests);
  }
  EXPECT_EQ(sent, 3 * kConnections);
  EXPECT_TRUE(run_until(
      {&client, &server},
      [&] { return server.messages.size() == sent && client.completions.size() == sent; }))
      << server.messages.size() << " messages";
}

TEST_F(VerbsTransport, OptionsOutOfRangeAreNamed) {
  const auto refused = [&](auto change) {
    VerbsOptions options = options_;
    change(options);
    auto transport = open_verbs_transport(options);
    EXPECT_FALSE(transport);
    return transport ? Errc::kSystem : transport.error().code();
  };
  EXPECT_EQ(refused([](auto& o) { o.retry_count = 7; }), Errc::kInvalidArgument);
  EXPECT_EQ(refused([](auto& o) { o.mtu = 1500; }), Errc::kInvalidArgument);
  EXPECT_EQ(refused([](auto& o) { o.service_level = 16; }), Errc::kInvalidArgument);
  EXPECT_EQ(refused([](auto& o) { o.traffic_class = 256; }), Errc::kInvalidArgument);
  EXPECT_EQ(refused([](auto& o) { o.local = *SocketAddress::parse("192.0.2.7", 0); }),
            Errc::kUnsupported);
}

// Drops CAP_IPC_LOCK from the calling thread; the process keeps it.
void give_up_locking_without_limit() {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct data[2]{};
  syscall(SYS_capget, &header, data);
  data[0].effective &= ~(1U << CAP_IPC_LOCK);
  syscall(SYS_capset, &header, data);
}

TEST_F(VerbsTransport, LockedMemoryLimitIsExplained) {
  rlimit before{};
  getrlimit(RLIMIT_MEMLOCK, &before);
  rlimit low = before;
  low.rlim_cur = 64 * 1024;
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &low), 0);
  std::thread limited([&] {
    give_up_locking_without_limit();
    auto transport = open_verbs_transport(options_);
    ASSERT_FALSE(transport);
    EXPECT_EQ(transport.error().code(), Errc::kPermission);
    const std::string text = transport.error().to_string();
    for (const char* part : {"64 KiB", "4 MiB", "RLIMIT_MEMLOCK", "ulimit -l unlimited",
                             "LimitMEMLOCK=infinity", "limits.conf", "cap_ipc_lock"}) {
      EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
    }
  });
  limited.join();
  setrlimit(RLIMIT_MEMLOCK, &before);
}

// A peer in a process of its own, which takes whatever arrives until it is killed.
class PeerProcess {
 public:
  // REQUIRES: this process has no transport open (RDMA objects do not survive a fork).
  explicit PeerProcess(const VerbsOptions& options) {
    int ends[2];
    if (pipe(ends) != 0) return;
    pid_ = fork();
    if (pid_ == 0) serve(options, ends[1]);
    ::close(ends[1]);
    Introduction introduction;
    if (read(ends[0], &introduction, sizeof introduction) == sizeof introduction) {
      introduction_ = introduction;
    }
    ::close(ends[0]);
  }
  ~PeerProcess() {
    kill(SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  void kill(int signal) const { ::kill(pid_, signal); }

  struct Introduction {
    std::uint16_t port = 0;
    std::uint64_t address = 0;
    std::uint64_t key = 0;
  };
  const Introduction& introduction() const { return introduction_; }

  static constexpr std::size_t kMemoryBytes = 64 * 1024;

 private:
  [[noreturn]] static void serve(const VerbsOptions& options, int pipe_end) {
    auto transport = open_verbs_transport(options);
    if (!transport) _exit(1);
    Side side{std::move(*transport), {}, {}, {}};
    auto address = side.transport->listen(options.local);
    std::vector<std::byte> memory(kMemoryBytes);
    auto region = side.transport->register_memory(memory);
    if (!address || !region) _exit(1);
    const Introduction introduction{.port = address->port(),
                                    .address = (*region)->remote_address(memory.data()),
                                    .key = (*region)->remote_key()};
    if (write(pipe_end, &introduction, sizeof introduction) < 0) _exit(1);
    for (;;) {
      side.turn();
      side.completions.clear();
      if (!side.transport->arm()) continue;
      pollfd fd{side.transport->event_fd(), POLLIN, 0};
      ::poll(&fd, 1, 1000);
    }
  }

  pid_t pid_ = -1;
  Introduction introduction_;
};

class VerbsPeer : public VerbsTransport {
 protected:
  // Connects to a peer in another process and keeps writing to it.
  void begin() {
    peer_ = std::make_unique<PeerProcess>(options_);
    ASSERT_NE(peer_->introduction().port, 0);
    client_ = open(options_);
    ASSERT_TRUE(client_.transport);
    auto region = client_.transport->register_memory(memory_);
    ASSERT_TRUE(region);
    region_ = std::move(*region);
    endpoint_ = client_.transport->connect(options_.local.with_port(peer_->introduction().port),
                                           std::chrono::steady_clock::now() + seconds(10));
    ASSERT_TRUE(run_until({&client_}, [&] { return !client_.events.empty(); }));
    ASSERT_EQ(client_.events[0].kind, ConnectionEvent::Kind::kEstablished);
  }
  std::size_t write_on(std::size_t count) {
    const std::vector<WorkRequest> requests(
        count, WorkRequest{.opcode = Opcode::kWriteImmediate,
                           .local = memory_.data(),
                           .length = 4096,
                           .region = region_.get(),
                           .remote_address = peer_->introduction().address,
                           .remote_key = peer_->introduction().key});
    const std::size_t accepted = endpoint_->post(requests);
    posted_ += accepted;
    return accepted;
  }

  std::unique_ptr<PeerProcess> peer_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(PeerProcess::kMemoryBytes);
  Side client_;
  std::unique_ptr<Region> region_;  // goes before the transport
  Endpoint* endpoint_ = nullptr;
  std::size_t posted_ = 0;
};

TEST_F(VerbsPeer, KilledPeerEndsTheConnectionSoon) {
  begin();
  write_on(64);
  ASSERT_TRUE(run_until({&client_}, [&] { return client_.completions.size() > 16; }));
  const auto killed = std::chrono::steady_clock::now();
  peer_->kill(SIGKILL);
  ASSERT_TRUE(run_until({&client_}, [&] {
    write_on(16);
    return client_.find(ConnectionEvent::Kind::kClosed) != nullptr;
  }));
  EXPECT_LT(std::chrono::steady_clock::now() - killed, seconds(5));
  EXPECT_EQ(client_.completions.size(), posted_);
  EXPECT_EQ(client_.find(ConnectionEvent::Kind::kClosed)->error.code(), Errc::kConnectionLost);
}

// More immediates than the stopped peer has receive buffers: its NIC asks to wait, and the sender
// waits as long as it takes. Its queue is full meanwhile, and that is all.
TEST_F(VerbsPeer, StoppedPeerIsWaitedFor) {
  begin();
  peer_->kill(SIGSTOP);
  const auto stopped = std::chrono::steady_clock::now();
  constexpr std::size_t kWanted = 600;
  run_until({&client_}, [&] {
    if (posted_ < kWanted) write_on(std::min<std::size_t>(16, kWanted - posted_));
    return std::chrono::steady_clock::now() - stopped > seconds(2);
  });
  EXPECT_EQ(client_.find(ConnectionEvent::Kind::kClosed), nullptr);
  EXPECT_LT(client_.completions.size(), kWanted);
  peer_->kill(SIGCONT);
  ASSERT_TRUE(run_until({&client_}, [&] {
    if (posted_ < kWanted) write_on(std::min<std::size_t>(16, kWanted - posted_));
    return client_.completions.size() == kWanted;
  })) << client_.completions.size();
  for (const Completion& completion : client_.completions) {
    EXPECT_EQ(completion.status, Completion::Status::kDone);
  }
}

// The caller's heartbeat decides that a stopped peer is dead: close() ends the wait at once.
TEST_F(VerbsPeer, CloseEndsTheWaitForAStoppedPeer) {
  begin();
  peer_->kill(SIGSTOP);
  const auto stopped = std::chrono::steady_clock::now();
  run_until({&client_}, [&] {
    write_on(16);
    return std::chrono::steady_clock::now() - stopped > milliseconds(500);
  });
  ASSERT_GT(endpoint_->outstanding(), 0U);
  const auto closed = std::chrono::steady_clock::now();
  endpoint_->close();
  ASSERT_TRUE(run_until({&client_},
                        [&] { return client_.find(ConnectionEvent::Kind::kClosed) != nullptr; }));
  EXPECT_LT(std::chrono::steady_clock::now() - closed, seconds(2));
  EXPECT_EQ(client_.completions.size(), posted_);
}

TEST_F(VerbsTransport, PortInUseNamesThePort) {
  Side first = open(options_), second = open(options_);
  ASSERT_TRUE(first.transport && second.transport);
  auto address = first.transport->listen(options_.local);
  ASSERT_TRUE(address);
  EXPECT_NE(address->port(), 0);
  auto taken = second.transport->listen(*address);
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code(), Errc::kAddressInUse);
  EXPECT_NE(taken.error().message().find(std::to_string(address->port())), std::string::npos)
      << taken.error().to_string();
}

}  // namespace
}  // namespace lochos
