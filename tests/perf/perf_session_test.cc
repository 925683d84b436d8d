// Whole runs of `lochos perf bw|lat` between two threads, over libfabric's tcp provider.
#include "tools/perf_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <map>

#include "base/event_fd.h"

namespace lochos {
namespace {

// A transport whose endpoint spoils one byte of one request it is given. Everything else is the
// real one's.
class SpoilingTransport final : public Transport {
 public:
  SpoilingTransport(std::unique_ptr<Transport> real, std::uint64_t spoil)
      : real_(std::move(real)), endpoint_(spoil) {}

  TransportKind kind() const override { return real_->kind(); }
  std::string describe() const override { return real_->describe(); }
  const Limits& limits() const override { return real_->limits(); }
  Result<std::unique_ptr<Region>> register_memory(std::span<std::byte> memory) override {
    return real_->register_memory(memory);
  }
  Result<SocketAddress> listen(const SocketAddress& address) override {
    return real_->listen(address);
  }
  Endpoint* connect(const SocketAddress& address, Instant deadline) override {
    endpoint_.real = real_->connect(address, deadline);
    return &endpoint_;
  }
  void set_hello(const Hello& hello) override { real_->set_hello(hello); }
  std::size_t poll(std::span<Completion> completions) override { return real_->poll(completions); }
  std::size_t poll_connections(Instant now, std::span<ConnectionEvent> events) override {
    const std::size_t count = real_->poll_connections(now, events);
    for (ConnectionEvent& event : events.first(count))
      event.endpoint = &endpoint_;
    return count;
  }
  int event_fd() const override { return real_->event_fd(); }
  bool arm() override { return real_->arm(); }
  Instant next_deadline() const override { return real_->next_deadline(); }

 private:
  class SpoilingEndpoint final : public Endpoint {
   public:
    explicit SpoilingEndpoint(std::uint64_t spoil) : spoil_(spoil) {}
    std::size_t post(std::span<const WorkRequest> requests) override {
      if (seen_ <= spoil_ && spoil_ < seen_ + requests.size())
        requests[spoil_ - seen_].local[requests[spoil_ - seen_].length - 1] ^= std::byte{1};
      const std::size_t count = real->post(requests);
      seen_ += count;
      return count;
    }
    void close() override { real->close(); }
    std::size_t outstanding() const override { return real->outstanding(); }
    std::string describe() const override { return real->describe(); }
    Endpoint* real = nullptr;

   private:
    const std::uint64_t spoil_;
    std::uint64_t seen_ = 0;
  };

  std::unique_ptr<Transport> real_;
  SpoilingEndpoint endpoint_;
};

struct Outcome {
  Status status;
  std::size_t rows = 0;
};

class PerfSessionTest : public testing::Test {
 protected:
  void SetUp() override {
    auto stop = EventFd::open();
    ASSERT_TRUE(stop);
    stop_ = std::make_unique<EventFd>(std::move(*stop));
    client_.policy = server_.policy = TransportPolicy::kTcp;
    client_.given.iterations = 300;
    client_.given.depth = 16;
  }

  void run(PerfTest test) {
    client_.test = server_.test = test;
    if (test == PerfTest::kLatency) client_.given.depth.reset();
    auto address = SocketAddress::parse("127.0.0.1:0");
    ASSERT_TRUE(address);
    auto listener = PerfListener::open(*address);
    ASSERT_TRUE(listener) << listener.error().to_string();
    auto serving = std::async(std::launch::async, [&] {
      auto control = (*listener)->accept(stop_->fd());
      EXPECT_TRUE(control);
      return play(**control, server_, run_perf_server);
    });
    auto control = PerfControl::connect({(*listener)->address()},
                                        SteadyClock().now() + std::chrono::seconds(5), stop_->fd());
    ASSERT_TRUE(control);
    client_outcome_ = play(**control, client_, run_perf_client);
    control->reset();
    server_outcome_ = serving.get();
  }

  static Outcome play(PerfControl& control, const PerfSetup& setup,
                      Status (*side)(PerfControl&, const PerfSetup&, PerfReport&)) {
    auto file = PerfJsonFile::open("", "");
    EXPECT_TRUE(file);
    PerfReport report(setup.test, std::move(*file));
    Status status = side(control, setup, report);
    return {std::move(status), report.rows()};
  }

  void spoil_request(std::uint64_t number) {
    client_.open_transport = [number](TransportKind kind, const PerfParameters& parameters,
                                      const SocketAddress& local,
                                      const PerfRail& rail) -> Result<std::unique_ptr<Transport>> {
      auto real = open_perf_transport(kind, parameters, local, rail);
      if (!real) return fail(real.error());
      return std::make_unique<SpoilingTransport>(std::move(*real), number);
    };
  }

  void expect_success(std::size_t rows) {
    EXPECT_TRUE(client_outcome_.status) << client_outcome_.status.error().to_string();
    EXPECT_TRUE(server_outcome_.status) << server_outcome_.status.error().to_string();
    EXPECT_EQ(client_outcome_.rows, rows);
    EXPECT_EQ(server_outcome_.rows, rows);
  }

  std::unique_ptr<EventFd> stop_;
  PerfSetup client_;
  PerfSetup server_;
  Outcome client_outcome_;
  Outcome server_outcome_;
};

struct Mode {
  PerfTest test;
  PerfOp op;
  bool bidirectional;
  bool verify;
};

class PerfModes : public PerfSessionTest, public testing::WithParamInterface<Mode> {};

TEST_P(PerfModes, AllSizesArriveAndAreReportedOnBothSides) {
  client_.given.op = GetParam().op;
  client_.given.bidirectional = GetParam().bidirectional;
  client_.given.verify = GetParam().verify;
  client_.given.events = true;  // two threads that poll would starve each other here
  client_.given.sizes = std::vector<std::uint64_t>{1, 64, 4097, 3 << 20};
  run(GetParam().test);
  expect_success(4);
}

constexpr Mode kModes[] = {
    {PerfTest::kBandwidth, PerfOp::kWrite, false, false},
    {PerfTest::kBandwidth, PerfOp::kWrite, true, true},
    {PerfTest::kBandwidth, PerfOp::kSend, false, true},
    {PerfTest::kBandwidth, PerfOp::kSend, true, true},
    {PerfTest::kBandwidth, PerfOp::kRead, false, true},
    {PerfTest::kBandwidth, PerfOp::kRead, true, true},
    {PerfTest::kLatency, PerfOp::kWrite, false, true},
    {PerfTest::kLatency, PerfOp::kSend, false, true},
    {PerfTest::kLatency, PerfOp::kRead, false, true},
};
INSTANTIATE_TEST_SUITE_P(Modes, PerfModes, testing::ValuesIn(kModes), [](const auto& chosen) {
  const Mode& mode = chosen.param;
  return std::string(to_string(mode.test)) + "_" + std::string(to_string(mode.op)) +
         (mode.bidirectional ? "_both" : "") + (mode.verify ? "_verified" : "");
});

TEST_F(PerfSessionTest, PollingWorksToo) {
  client_.given.sizes = std::vector<std::uint64_t>{64};
  run(PerfTest::kLatency);
  expect_success(1);
}

TEST_F(PerfSessionTest, ASpoiledByteIsFoundByBandwidth) {
  client_.given.sizes = std::vector<std::uint64_t>{4096};
  client_.given.verify = client_.given.events = true;
  for (const PerfOp op : {PerfOp::kWrite, PerfOp::kSend}) {
    client_.given.op = op;
    spoil_request(295);
    run(PerfTest::kBandwidth);
    for (const Outcome* outcome : {&client_outcome_, &server_outcome_}) {
      ASSERT_FALSE(outcome->status);
      EXPECT_THAT(outcome->status.error().message(), testing::HasSubstr("byte 4095"));
      EXPECT_EQ(outcome->rows, 1U);
    }
  }
}

TEST_F(PerfSessionTest, ASpoiledByteIsFoundByLatency) {
  client_.given.sizes = std::vector<std::uint64_t>{64};
  client_.given.verify = client_.given.events = true;
  spoil_request(5);
  run(PerfTest::kLatency);
  ASSERT_FALSE(client_outcome_.status);
  EXPECT_THAT(client_outcome_.status.error().message(), testing::HasSubstr("wrong contents"));
}

TEST_F(PerfSessionTest, DifferentOptionsFailOnBothSides) {
  server_.given.op = PerfOp::kSend;
  client_.given.op = PerfOp::kRead;
  run(PerfTest::kBandwidth);
  for (const Outcome* outcome : {&client_outcome_, &server_outcome_}) {
    ASSERT_FALSE(outcome->status);
    EXPECT_THAT(outcome->status.error().message(),
                testing::HasSubstr("--op send on the server, read on the client"));
  }
}

TEST_F(PerfSessionTest, ATransportThatCannotBeOpenedFailsOnBothSides) {
  server_.rail.provider = "no-such-provider";
  run(PerfTest::kBandwidth);
  ASSERT_FALSE(server_outcome_.status);
  ASSERT_FALSE(client_outcome_.status);
  EXPECT_THAT(client_outcome_.status.error().message(), testing::HasSubstr("no-such-provider"));
}

TEST_F(PerfSessionTest, ASignalEndsARun) {
  client_.given.iterations = kMaxPerfIterations;
  client_.given.sizes = std::vector<std::uint64_t>{64};
  client_.given.events = true;
  client_.open_transport = [this](TransportKind kind, const PerfParameters& parameters,
                                  const SocketAddress& local, const PerfRail& rail) {
    stop_->signal();  // from now on every wait is interrupted
    return open_perf_transport(kind, parameters, local, rail);
  };
  run(PerfTest::kLatency);
  ASSERT_FALSE(client_outcome_.status);
  EXPECT_FALSE(server_outcome_.status);
}

}  // namespace
}  // namespace lochos
