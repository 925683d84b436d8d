#include "tools/perf_control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <future>

#include "base/event_fd.h"
#include "transport/hello.h"

namespace lochos {
namespace {

Instant in(Duration delay) {
  return SteadyClock().now() + delay;
}
Instant soon() {
  return in(std::chrono::seconds(5));
}

class PerfControlTest : public testing::Test {
 protected:
  void SetUp() override {
    auto stop = EventFd::open();
    ASSERT_TRUE(stop);
    stop_ = std::make_unique<EventFd>(std::move(*stop));
    auto address = SocketAddress::parse("127.0.0.1:0");
    ASSERT_TRUE(address);
    auto listener = PerfListener::open(*address);
    ASSERT_TRUE(listener) << listener.error().to_string();
    listener_ = std::move(*listener);
    server_ = std::async(std::launch::async, [this] { return listener_->accept(stop_->fd()); });
  }
  void TearDown() override { stop_->signal(); }

  UniqueFd raw_connection() const {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM, 0));
    EXPECT_EQ(::connect(fd.get(), listener_->address().get(), listener_->address().length()), 0);
    return fd;
  }
  // All that the server says until it hangs up.
  static std::vector<std::byte> everything_from(const UniqueFd& fd) {
    std::vector<std::byte> all(4096);
    std::size_t length = 0;
    for (;;) {
      const ssize_t got = ::recv(fd.get(), all.data() + length, all.size() - length, 0);
      if (got <= 0) break;
      length += static_cast<std::size_t>(got);
    }
    all.resize(length);
    return all;
  }
  Result<std::unique_ptr<PerfControl>> client() {
    return PerfControl::connect({listener_->address()}, soon(), stop_->fd());
  }

  std::unique_ptr<EventFd> stop_;
  std::unique_ptr<PerfListener> listener_;
  std::future<Result<std::unique_ptr<PerfControl>>> server_;
};

TEST_F(PerfControlTest, CarriesMessagesBothWays) {
  auto client_side = client();
  ASSERT_TRUE(client_side) << client_side.error().to_string();
  auto server_side = server_.get();
  ASSERT_TRUE(server_side);
  ASSERT_TRUE((*client_side)->send(PerfBegin{17}));
  ASSERT_TRUE((*client_side)->send(PerfBegin{18}));
  auto first = (*server_side)->receive_a<PerfBegin>(soon());
  auto second = (*server_side)->receive_a<PerfBegin>(soon());
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->size, 17U);
  EXPECT_EQ(second->size, 18U);
  ASSERT_TRUE((*server_side)->send(PerfBye{}));
  EXPECT_TRUE((*client_side)->receive_a<PerfBye>(soon()));
}

TEST_F(PerfControlTest, TheOtherSidesEndIsAnError) {
  auto client_side = client();
  ASSERT_TRUE(client_side);
  auto server_side = server_.get();
  ASSERT_TRUE(server_side);
  client_side->reset();
  auto received = (*server_side)->receive(soon());
  ASSERT_FALSE(received);
  EXPECT_EQ(received.error().code(), Errc::kConnectionLost);
}

TEST_F(PerfControlTest, AnAbortSaysWhy) {
  auto client_side = client();
  ASSERT_TRUE(client_side);
  auto server_side = server_.get();
  ASSERT_TRUE(server_side);
  ASSERT_TRUE((*server_side)->send(PerfAbort{"out of cheese"}));
  auto received = (*client_side)->receive(soon());
  ASSERT_FALSE(received);
  EXPECT_THAT(received.error().message(), testing::HasSubstr("out of cheese"));
}

TEST_F(PerfControlTest, ASilentSideTimesOut) {
  auto client_side = client();
  ASSERT_TRUE(client_side);
  auto received = (*client_side)->receive(in(std::chrono::milliseconds(20)));
  ASSERT_FALSE(received);
  EXPECT_EQ(received.error().code(), Errc::kTimedOut);
}

TEST_F(PerfControlTest, StrangersAreRefusedAndTheWaitingGoesOn) {
  const UniqueFd browser = raw_connection();
  const std::string request(kHelloBytes, 'G');
  ASSERT_EQ(::send(browser.get(), request.data(), request.size(), 0),
            static_cast<ssize_t>(request.size()));
  EXPECT_EQ(decode_refusal(everything_from(browser), {}).code(), Errc::kProtocol);
  auto client_side = client();
  EXPECT_TRUE(client_side) << client_side.error().to_string();
}

TEST_F(PerfControlTest, AnotherVersionHearsBothVersions) {
  Hello old;
  old.version = old.oldest_version = 999;
  old.purpose = HelloPurpose::kPerf;
  const UniqueFd fd = raw_connection();
  const auto bytes = encode(old);
  ASSERT_EQ(::send(fd.get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  const Error refusal = decode_refusal(everything_from(fd), old);
  EXPECT_EQ(refusal.code(), Errc::kVersionMismatch);
  EXPECT_THAT(refusal.message(), testing::HasSubstr("999"));
}

TEST_F(PerfControlTest, AnOverlongFrameIsRefusedUnread) {
  auto client_side = client();
  ASSERT_TRUE(client_side);
  auto server_side = server_.get();
  ASSERT_TRUE(server_side);
  const std::uint32_t length = 0xffffffff;
  ASSERT_EQ(::send((*client_side)->fd(), &length, sizeof length, 0), 4);
  auto received = (*server_side)->receive(soon());
  ASSERT_FALSE(received);
  EXPECT_EQ(received.error().code(), Errc::kProtocol);
}

TEST_F(PerfControlTest, APortInUseIsNamed) {
  auto second = PerfListener::open(listener_->address());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), Errc::kAddressInUse);
  EXPECT_THAT(second.error().message(),
              testing::HasSubstr(std::to_string(listener_->address().port())));
}

TEST_F(PerfControlTest, NobodyThereIsUnreachableByTheDeadline) {
  stop_->signal();
  (void)server_.get();
  const SocketAddress address = listener_->address();
  listener_.reset();
  auto stop = EventFd::open();
  ASSERT_TRUE(stop);
  const Instant before = SteadyClock().now();
  auto client_side =
      PerfControl::connect({address}, in(std::chrono::milliseconds(200)), stop->fd());
  ASSERT_FALSE(client_side);
  EXPECT_EQ(client_side.error().code(), Errc::kUnreachable);
  EXPECT_LT(SteadyClock().now() - before, std::chrono::seconds(2));
}

}  // namespace
}  // namespace lochos
