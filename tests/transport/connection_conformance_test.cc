// The promises of transport.h about connections, once each, over every backend.
#include <poll.h>

#include <algorithm>
#include <filesystem>

#include "tests/transport/conformance.h"

namespace lochos {
namespace {

using Kind = ConnectionEvent::Kind;
using std::chrono::milliseconds;
using std::chrono::seconds;

class Connections : public Conformance {
 protected:
  static std::ptrdiff_t open_descriptors() {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  }

  // Connects a host that says `hello` to one that says `server`, and returns how that failed.
  std::optional<Error> refusal(const Hello& hello, const Hello& server) {
    TransportOptions a_options = small_options();
    a_options.hello = hello;
    TransportOptions b_options = small_options();
    b_options.hello = server;
    TestHost& a = add_host(a_options);
    TestHost& b = add_host(b_options);
    const SocketAddress address = listen(b);
    const Instant start = testbed().now();
    const Error* error = connect_failure(a, address, seconds(5));
    EXPECT_LT(testbed().now() - start, seconds(1));
    EXPECT_EQ(b.count(Kind::kEstablished), 0U);
    if (error == nullptr) return std::nullopt;
    return *error;
  }
};

INSTANTIATE_TEST_SUITE_P(, Connections, testing::ValuesIn(all_backends()),
                         [](const auto& test) { return test.param.name; });

// What needs descriptors to sleep on, or addresses that are more than names.
class RealConnections : public Connections {};
INSTANTIATE_TEST_SUITE_P(, RealConnections, testing::ValuesIn(real_backends()),
                         [](const auto& test) { return test.param.name; });

TEST_P(Connections, BothSidesLearnTheOthersHello) {
  TransportOptions a_options = small_options();
  a_options.hello.node = {.number = 3, .incarnation = 17};
  a_options.hello.capabilities = 0x80000001U;
  TransportOptions b_options = small_options();
  b_options.hello.node = {.number = 4, .incarnation = 18};
  b_options.hello.cluster = 99;
  TestHost& a = add_host(a_options);
  TestHost& b = add_host(b_options);
  const Pair pair = connect(a, b);
  const ConnectionEvent* at_a = a.find(Kind::kEstablished, pair.from_a);
  const ConnectionEvent* at_b = b.find(Kind::kEstablished, pair.from_b);
  EXPECT_FALSE(at_a->incoming);
  EXPECT_TRUE(at_b->incoming);
  EXPECT_EQ(at_a->peer.node, b_options.hello.node);
  EXPECT_EQ(at_a->peer.cluster, 99U);
  EXPECT_EQ(at_a->peer.max_message_bytes, b_options.receive_buffer_bytes);
  EXPECT_EQ(at_b->peer.node, a_options.hello.node);
  EXPECT_EQ(at_b->peer.capabilities, 0x80000001U);
  EXPECT_NE(pair.from_a->describe(), "");
  EXPECT_NE(a.transport().describe(), "");
  EXPECT_EQ(pair.from_a->user, nullptr);
}

TEST_P(Connections, ChangedHelloIsSentFromThenOn) {
  TestHost& a = add_host();
  TestHost& b = add_host();
  connect(a, b);
  Hello hello;
  hello.node = {.number = 7, .incarnation = 1};
  b.transport().set_hello(hello);
  const Pair pair = connect(a, b);
  EXPECT_EQ(a.find(Kind::kEstablished, pair.from_a)->peer.node.number, 7U);
}

TEST_P(Connections, OtherVersionIsRefusedAndBothAreNamed) {
  for (const bool newer_server : {false, true}) {
    Hello other;
    other.version = kProtocolVersion + 41;
    other.oldest_version = kProtocolVersion + 41;
    const auto error = newer_server ? refusal({}, other) : refusal(other, {});
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), Errc::kVersionMismatch) << error->to_string();
    EXPECT_NE(error->to_string().find(std::to_string(kProtocolVersion)), std::string::npos);
    EXPECT_NE(error->to_string().find(std::to_string(kProtocolVersion + 41)), std::string::npos)
        << error->to_string();
  }
}

TEST_P(Connections, OtherPurposeOrClusterIsRefused) {
  Hello perf;
  perf.purpose = HelloPurpose::kPerf;
  Hello cluster_one;
  cluster_one.cluster = 1;
  Hello cluster_two;
  cluster_two.cluster = 2;
  for (const auto& [client, server] : {std::pair{perf, Hello{}}, {cluster_one, cluster_two}}) {
    const auto error = refusal(client, server);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), Errc::kProtocol) << error->to_string();
  }
}

TEST_P(Connections, RefusedListenerGoesOnListening) {
  Hello other;
  other.purpose = HelloPurpose::kPerf;
  TransportOptions options = small_options();
  options.hello = other;
  TestHost& a = add_host(options);
  TestHost& b = add_host();
  const SocketAddress address = listen(b);
  ASSERT_NE(connect_failure(a, address, seconds(5)), nullptr);
  a.transport().set_hello({});
  EXPECT_NE(connect(a, b).from_b, nullptr);
}

TEST_P(Connections, NobodyListens) {
  TestHost& a = add_host();
  SocketAddress closed = testbed().address(1).with_port(0);
  {
    // A port that was free a moment ago.
    TestHost& b = add_host();
    closed = listen(b);
    b.destroy();
  }
  const Instant start = testbed().now();
  const Error* error = connect_failure(a, closed, seconds(8));
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->code(), Errc::kUnreachable) << error->to_string();
  EXPECT_NE(error->to_string().find(closed.to_string()), std::string::npos) << error->to_string();
  EXPECT_LT(testbed().now() - start, seconds(5));
}

TEST_P(Connections, NoAnswerEndsAtTheDeadline) {
  TestHost& a = add_host();
  auto blackhole = testbed().blackhole();
  ASSERT_TRUE(blackhole) << blackhole.error().to_string();
  const Instant start = testbed().now();
  const Error* error = connect_failure(a, *blackhole, milliseconds(300));
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->code(), Errc::kTimedOut) << error->to_string();
  EXPECT_NE(error->to_string().find(blackhole->to_string()), std::string::npos)
      << error->to_string();
  EXPECT_GE(testbed().now() - start, milliseconds(300));
  EXPECT_LT(testbed().now() - start, milliseconds(900));
}

TEST_P(Connections, ClosedWhileConnecting) {
  TestHost& a = add_host();
  TestHost& b = add_host();
  const SocketAddress address = listen(b);
  Endpoint* endpoint = a.transport().connect(address, testbed().now() + seconds(5));
  ASSERT_NE(endpoint, nullptr);
  const WorkRequest request{.length = 0};
  EXPECT_EQ(endpoint->post({&request, 1}), 0U);
  endpoint->close();
  ASSERT_TRUE(run_until([&] { return a.find(Kind::kFailed, endpoint) != nullptr; }));
  EXPECT_EQ(a.find(Kind::kFailed, endpoint)->error.code(), Errc::kClosed);
  // The other side may have seen it for a moment.
  run_for(milliseconds(50));
  EXPECT_EQ(b.count(Kind::kEstablished), b.count(Kind::kClosed));
}

TEST_P(Connections, PortInUseIsNamed) {
  TestHost& a = add_host();
  const SocketAddress address = listen(a);
  EXPECT_NE(address.port(), 0);
  auto second = testbed().open(0, small_options());
  ASSERT_TRUE(second);
  const auto result = (*second)->listen(address);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), Errc::kAddressInUse) << result.error().to_string();
  EXPECT_NE(result.error().to_string().find(std::to_string(address.port())), std::string::npos);
}

TEST_P(Connections, ComeAndGoWithoutLeaving) {
  TestHost& a = add_host();
  TestHost& b = add_host();
  connect(a, b).from_a->close();
  ASSERT_TRUE(run_until([&] { return b.count(Kind::kClosed) == 1; }));
  run_for(milliseconds(20));
  const auto descriptors = open_descriptors();
  for (int cycle = 0; cycle < GetParam().cycles; ++cycle) {
    a.events.clear();
    b.events.clear();
    Pair pair = connect(a, b);
    ASSERT_NE(pair.from_b, nullptr);
    (cycle % 2 == 0 ? pair.from_a : pair.from_b)->close();
    ASSERT_TRUE(run_until([&] {
      return a.count(Kind::kClosed) == 1 && b.count(Kind::kClosed) == 1;
    })) << cycle;
  }
  run_for(milliseconds(20));
  EXPECT_LE(open_descriptors(), descriptors);
}

TEST_P(Connections, BothConnectToEachOtherAtOnce) {
  TestHost& a = add_host();
  TestHost& b = add_host();
  const SocketAddress a_address = listen(a);
  const SocketAddress b_address = listen(b);
  for (int cycle = 0; cycle < GetParam().cycles; ++cycle) {
    a.events.clear();
    b.events.clear();
    const Instant deadline = testbed().now() + seconds(5);
    Endpoint* from_a = a.transport().connect(b_address, deadline);
    Endpoint* from_b = b.transport().connect(a_address, deadline);
    ASSERT_TRUE(run_until([&] {
      return a.count(Kind::kEstablished) == 2 && b.count(Kind::kEstablished) == 2;
    })) << cycle;
    from_a->close();
    from_b->close();
    ASSERT_TRUE(run_until([&] {
      return a.count(Kind::kClosed) == 2 && b.count(Kind::kClosed) == 2;
    })) << cycle;
  }
}

TEST_P(Connections, ManyAtOnce) {
  constexpr std::size_t kConnections = 64;
  TestHost& a = add_host();
  TestHost& b = add_host();
  const SocketAddress address = listen(b);
  for (std::size_t index = 0; index < kConnections; ++index) {
    a.transport().connect(address, testbed().now() + seconds(20));
  }
  EXPECT_TRUE(run_until(
      [&] {
        return a.count(Kind::kEstablished) == kConnections &&
               b.count(Kind::kEstablished) == kConnections;
      },
      seconds(20)));
}

TEST_P(RealConnections, SleepersSleepAndAreWoken) {
  Pair pair = connect();
  Memory from = memory(*pair.a, 1 << 16);
  Memory to = memory(*pair.b, 1 << 16);
  for (int round = 0; round < 3; ++round) {
    const WorkRequest request = immediate_request(from, to, 1 << 16, 1, 1);
    pair.a->requests.clear();
    pair.b->arrivals.clear();
    ASSERT_EQ(pair.from_a->post({&request, 1}), 1U);
    ASSERT_TRUE(run_until([&] { return !pair.a->requests.empty() && !pair.b->arrivals.empty(); }));
    run_for(milliseconds(20));
    // Quiet now: armed, nothing wakes either of them.
    std::vector<pollfd> descriptors;
    for (TestHost* host : {pair.a, pair.b}) {
      ASSERT_TRUE(run_until([&] { return host->transport().arm(); }));
      descriptors.push_back({host->transport().event_fd(), POLLIN, 0});
    }
    EXPECT_EQ(::poll(descriptors.data(), descriptors.size(), 100), 0);
    // And what arrives wakes the one it is for.
    ASSERT_EQ(pair.from_a->post({&request, 1}), 1U);
    pollfd at_b{pair.b->transport().event_fd(), POLLIN, 0};
    EXPECT_EQ(::poll(&at_b, 1, 5000), 1);
    ASSERT_TRUE(run_until([&] { return pair.b->arrivals.size() == 2; }));
    ASSERT_TRUE(run_until([&] { return pair.from_a->outstanding() == 0; }));
  }
  pair.b->transport().arm();
  pair.from_a->close();
  pollfd at_b{pair.b->transport().event_fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&at_b, 1, 5000), 1) << "the end of a connection wakes too";
}

TEST_P(RealConnections, OverIPv6) {
  auto address = testbed().address_v6();
  if (!address && address.error().code() == Errc::kUnsupported)
    GTEST_SKIP() << "there is no address to listen on: " << address.error().to_string();
  ASSERT_TRUE(address) << address.error().to_string();
  TestHost& a = add_host();
  TestHost& b = add_host();
  auto listening = b.transport().listen(*address);
  ASSERT_TRUE(listening) << listening.error().to_string();
  EXPECT_EQ(listening->family(), AF_INET6);
  const Endpoint* endpoint = a.transport().connect(*listening, testbed().now() + seconds(5));
  EXPECT_TRUE(run_until([&] {
    return a.find(Kind::kEstablished, endpoint) != nullptr && b.count(Kind::kEstablished) == 1;
  }));
}

}  // namespace
}  // namespace lochos
