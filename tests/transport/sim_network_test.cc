// What is particular to the simulated network: time, bandwidth and faults.
#include "transport/sim/sim_network.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/transport/testbed.h"

namespace lochos {
namespace {

using Kind = ConnectionEvent::Kind;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr double kBandwidth = 1e8;  // 100 MB/s: 1 MB takes 10 ms
constexpr std::size_t kMegabyte = 1'000'000;

SocketAddress address(int host) {
  return *SocketAddress::parse("10.0.0." + std::to_string(host) + ":0");
}

// A few hosts on which one thing is measured: when what was written has arrived.
class Simulated {
 public:
  explicit Simulated(int host_count, Duration jitter = {}, std::uint64_t seed = 1)
      : network(seed,
                {.latency = milliseconds(1), .jitter = jitter, .bytes_per_second = kBandwidth}) {
    for (int host = 1; host <= host_count; ++host) {
      hosts.push_back(std::make_unique<TestHost>(network.open_transport(address(host), {})));
      listening.push_back(*transport(host).listen(address(host)));
      memory.emplace_back(4 * kMegabyte);
      regions.push_back(transport(host).register_memory(memory.back()).value());
    }
  }

  Transport& transport(int host) { return this->host(host).transport(); }
  TestHost& host(int number) { return *hosts[static_cast<std::size_t>(number - 1)]; }
  Region& region(int number) { return *regions[static_cast<std::size_t>(number - 1)]; }

  bool run_until(const std::function<bool()>& done, Instant limit) {
    while (!done()) {
      bool any = false;
      for (const auto& host : hosts)
        any |= host->turn(network.now());
      if (any) continue;
      if (!network.step(limit) && network.now() >= limit) return done();
    }
    return true;
  }
  void run_for(Duration time) {
    run_until([] { return false; }, network.now() + time);
  }

  Endpoint* connect(int from, int to) {
    Endpoint* endpoint = transport(from).connect(listening[static_cast<std::size_t>(to - 1)],
                                                 network.now() + seconds(5));
    EXPECT_TRUE(run_until([&] { return host(from).find(Kind::kEstablished, endpoint) != nullptr; },
                          network.now() + seconds(6)));
    run_for(milliseconds(5));
    return endpoint;
  }

  void write(Endpoint* endpoint, int from, int to, std::size_t bytes, std::uint32_t immediate) {
    const WorkRequest request{
        .opcode = Opcode::kWriteImmediate,
        .immediate = immediate,
        .local = region(from).memory().data(),
        .length = bytes,
        .region = &region(from),
        .remote_address = region(to).remote_address(region(to).memory().data()),
        .remote_key = region(to).remote_key()};
    ASSERT_EQ(endpoint->post({&request, 1}), 1U);
  }

  // Seconds until `host` has seen `count` arrivals.
  double time_until_arrivals(int host, std::size_t count) {
    const Instant start = network.now();
    EXPECT_TRUE(
        run_until([&] { return this->host(host).arrivals.size() >= count; }, start + seconds(60)));
    return seconds_of(network.now() - start);
  }

  static double seconds_of(Duration duration) { return lochos::seconds(duration); }

  SimNetwork network;
  std::vector<std::vector<std::byte>> memory;
  std::vector<std::unique_ptr<TestHost>> hosts;
  std::vector<std::unique_ptr<Region>> regions;
  std::vector<SocketAddress> listening;
};

TEST(SimNetworkTest, TransferTakesLatencyAndBytesOverBandwidth) {
  Simulated sim(2);
  Endpoint* endpoint = sim.connect(1, 2);
  sim.write(endpoint, 1, 2, kMegabyte, 0);
  EXPECT_NEAR(sim.time_until_arrivals(2, 1), 0.011, 0.0005);
}

TEST(SimNetworkTest, FlowsShareTheSendersInterface) {
  Simulated sim(3);
  Endpoint* to_two = sim.connect(1, 2);
  Endpoint* to_three = sim.connect(1, 3);
  sim.write(to_two, 1, 2, 2 * kMegabyte, 0);
  sim.write(to_three, 1, 3, kMegabyte, 0);
  // The short one is not behind the long one: both have half until it is done.
  EXPECT_NEAR(sim.time_until_arrivals(3, 1), 0.021, 0.002);
  EXPECT_NEAR(sim.time_until_arrivals(2, 1), 0.010, 0.002);
}

TEST(SimNetworkTest, FlowsShareTheReceiversInterface) {
  Simulated sim(3);
  Endpoint* from_one = sim.connect(1, 3);
  Endpoint* from_two = sim.connect(2, 3);
  sim.write(from_one, 1, 3, kMegabyte, 0);
  sim.write(from_two, 2, 3, kMegabyte, 0);
  EXPECT_NEAR(sim.time_until_arrivals(3, 2), 0.021, 0.001);
}

TEST(SimNetworkTest, SlowReceiverDoesNotSlowTheSendersOtherPeers) {
  Simulated sim(3);
  sim.network.set_bandwidth(address(2), kBandwidth / 100);
  Endpoint* slow = sim.connect(1, 2);
  Endpoint* fast = sim.connect(1, 3);
  for (std::uint32_t count = 0; count < 4; ++count)
    sim.write(slow, 1, 2, 4 * kMegabyte, count);
  for (std::uint32_t count = 0; count < 10; ++count)
    sim.write(fast, 1, 3, kMegabyte, count);
  EXPECT_NEAR(sim.time_until_arrivals(3, 10), 0.105, 0.01);
}

TEST(SimNetworkTest, CutPathSwallowsUntilHealed) {
  Simulated sim(2);
  Endpoint* endpoint = sim.connect(1, 2);
  sim.network.cut(address(1), address(2));
  sim.write(endpoint, 1, 2, 1000, 7);
  sim.run_for(seconds(3));
  EXPECT_TRUE(sim.host(2).arrivals.empty());
  sim.network.heal(address(1), address(2));
  EXPECT_LT(sim.time_until_arrivals(2, 1), 0.01);
  EXPECT_EQ(sim.host(2).arrivals[0].completion.immediate, 7U);
}

TEST(SimNetworkTest, CutIsOneWay) {
  Simulated sim(2);
  Endpoint* endpoint = sim.connect(1, 2);
  sim.network.cut(address(2), address(1));
  sim.write(endpoint, 1, 2, 1000, 7);
  sim.run_for(milliseconds(100));
  EXPECT_EQ(sim.host(2).arrivals.size(), 1U);
  EXPECT_EQ(endpoint->outstanding(), 1U);  // nobody could acknowledge it
}

TEST(SimNetworkTest, LongCutLosesTheConnection) {
  Simulated sim(2);
  Endpoint* endpoint = sim.connect(1, 2);
  sim.network.cut(address(1), address(2));
  sim.write(endpoint, 1, 2, 1000, 7);
  EXPECT_TRUE(sim.run_until([&] { return sim.host(1).find(Kind::kClosed, endpoint) != nullptr; },
                            sim.network.now() + seconds(20)));
  EXPECT_EQ(sim.host(1).requests.size(), 1U);
  EXPECT_EQ(sim.host(1).requests[0].completion.status, Completion::Status::kFlushed);
}

TEST(SimNetworkTest, ResetIsHeardByBoth) {
  Simulated sim(3);
  sim.connect(1, 2);
  sim.connect(1, 3);
  sim.network.reset_connections(address(2), address(1));
  sim.run_for(milliseconds(5));
  EXPECT_EQ(sim.host(1).count(Kind::kClosed), 1U);
  EXPECT_EQ(sim.host(2).count(Kind::kClosed), 1U);
  EXPECT_EQ(sim.host(3).count(Kind::kClosed), 0U);
}

TEST(SimNetworkTest, SilentDeathIsFoundByThoseWhoSend) {
  Simulated sim(3);
  Endpoint* endpoint = sim.connect(1, 2);
  sim.connect(3, 2);
  sim.network.kill(address(2), false);
  sim.write(endpoint, 1, 2, 1000, 1);
  sim.run_for(seconds(20));
  EXPECT_EQ(sim.host(1).count(Kind::kClosed), 1U);
  EXPECT_EQ(sim.host(3).count(Kind::kClosed), 0U);
  EXPECT_EQ(sim.host(2).count(Kind::kClosed), 0U);
}

TEST(SimNetworkTest, PausedHostsInterfaceTakesWrites) {
  Simulated sim(2);
  Endpoint* endpoint = sim.connect(1, 2);
  sim.network.pause(address(2));
  sim.region(1).memory()[0] = std::byte{42};
  sim.write(endpoint, 1, 2, 1000, 1);
  sim.run_for(seconds(2));
  EXPECT_EQ(endpoint->outstanding(), 0U);
  EXPECT_EQ(sim.region(2).memory()[0], std::byte{42});
  EXPECT_TRUE(sim.host(2).arrivals.empty());
  // Its program does not answer, though.
  Endpoint* second = sim.transport(1).connect(sim.listening[1], sim.network.now() + seconds(1));
  sim.run_for(seconds(2));
  ASSERT_NE(sim.host(1).find(Kind::kFailed, second), nullptr);
  EXPECT_EQ(sim.host(1).find(Kind::kFailed, second)->error.code(), Errc::kTimedOut);
  sim.network.resume(address(2));
  sim.run_for(milliseconds(5));
  EXPECT_EQ(sim.host(2).arrivals.size(), 1U);
}

TEST(SimNetworkTest, RevivedHostCanBeReached) {
  Simulated sim(2);
  sim.connect(1, 2);
  sim.network.kill(address(2), false);
  sim.run_for(seconds(1));
  TestHost revived(sim.network.open_transport(address(2), {}));
  const SocketAddress listening = *revived.transport().listen(address(2));
  Endpoint* endpoint = sim.transport(1).connect(listening, sim.network.now() + seconds(1));
  EXPECT_TRUE(sim.run_until(
      [&] {
        revived.turn(sim.network.now());
        return sim.host(1).find(Kind::kEstablished, endpoint) != nullptr;
      },
      sim.network.now() + seconds(2)));
}

TEST(SimNetworkTest, SameSeedSameRunAndJitterKeepsOrder) {
  const auto run = [](std::uint64_t seed) {
    Simulated sim(2, milliseconds(3), seed);
    Endpoint* endpoint = sim.connect(1, 2);
    for (std::uint32_t count = 0; count < 50; ++count)
      sim.write(endpoint, 1, 2, 100, count);
    sim.time_until_arrivals(2, 50);
    for (std::uint32_t count = 0; count < 50; ++count) {
      EXPECT_EQ(sim.host(2).arrivals[count].completion.immediate, count);
    }
    return sim.network.now();
  };
  EXPECT_EQ(run(5), run(5));
  EXPECT_NE(run(5), run(6));
}

}  // namespace
}  // namespace lochos
