// What is particular to the libfabric backend: strangers at its port, and providers. The promises
// common to all backends are in the conformance suite.
#include "transport/fabric/fabric_transport.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <random>

#include "base/unique_fd.h"
#include "tests/transport/testbed.h"
#include "transport/fabric/greeting.h"

namespace lochos {
namespace {

using Kind = ConnectionEvent::Kind;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::array<char, 32> kZeros{};
constexpr Duration kHandshakeTimeout = milliseconds(300);

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::ptrdiff_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

// The bytes by which the provider asks for a connection.
std::vector<std::byte> connection_request(const Hello& hello) {
  std::vector<std::byte> bytes(fabric::kRequestHeaderBytes);
  bytes[0] = std::byte{3};
  bytes[3] = std::byte{fabric::kGreetingBytes};
  bytes[24] = std::byte{1};
  const auto greeting = encode(fabric::Greeting{.hello = hello});
  bytes.insert(bytes.end(), greeting.begin(), greeting.end());
  return bytes;
}

class FabricTransport : public testing::Test {
 protected:
  FabricTransport() : host_(open()) {
    address_ = *host_.transport().listen(*SocketAddress::parse("127.0.0.1:0"));
  }

  static std::unique_ptr<Transport> open() {
    FabricOptions options;
    options.handshake_timeout = kHandshakeTimeout;
    return open_fabric_transport(options).value();
  }

  UniqueFd connect_stranger() {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(fd.get(), address_.get(), address_.length()), 0);
    return fd;
  }

  static void send(const UniqueFd& fd, std::span<const std::byte> bytes) {
    ASSERT_EQ(::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }

  // Lets the host and a second one, if any, run until `done()`, sleeping like an event loop.
  bool run_until(const std::function<bool()>& done, Duration limit = seconds(5),
                 TestHost* other = nullptr) {
    const Instant deadline = clock_.now() + limit;
    while (!done()) {
      std::vector<pollfd> sleepers;
      Instant wake = std::min(deadline, clock_.now() + milliseconds(5));
      for (TestHost* host : {&host_, other}) {
        if (host == nullptr) continue;
        const Instant before = clock_.now();
        host->turn(before);
        // Nothing a stranger does may hold the thread.
        EXPECT_LT(clock_.now() - before, milliseconds(250));
        if (!host->transport().arm()) continue;
        sleepers.push_back({host->transport().event_fd(), POLLIN, 0});
        wake = std::min(wake, host->transport().next_deadline());
      }
      if (clock_.now() >= deadline) return false;
      if (sleepers.size() < (other == nullptr ? 1U : 2U)) continue;
      const auto left = std::chrono::ceil<milliseconds>(wake - clock_.now()).count();
      ::poll(sleepers.data(), sleepers.size(), static_cast<int>(std::max<long>(0, left)));
    }
    return true;
  }

  // Whether the other side has closed `fd`; appends to `answer` what it said first.
  static bool closed(const UniqueFd& fd, std::vector<std::byte>& answer) {
    std::array<std::byte, 512> bytes;
    const ssize_t count = ::recv(fd.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count > 0) answer.insert(answer.end(), bytes.begin(), bytes.begin() + count);
    return count == 0 || (count < 0 && errno != EAGAIN);
  }

  // A proper peer can connect, and does.
  void expect_good_connection() {
    TestHost peer(open());
    const std::size_t before = host_.count(Kind::kEstablished);
    const Endpoint* endpoint = peer.transport().connect(address_, clock_.now() + seconds(5));
    EXPECT_TRUE(run_until(
        [&] {
          return peer.find(Kind::kEstablished, endpoint) != nullptr &&
                 host_.count(Kind::kEstablished) == before + 1;
        },
        seconds(5), &peer));
  }

  SteadyClock clock_;
  TestHost host_;
  SocketAddress address_;
};

TEST_F(FabricTransport, StrangersAreRefusedInTimeAndHarmNobody) {
  Hello other;
  other.version = other.oldest_version = 42;
  const auto proper = connection_request({});
  auto long_request = proper;
  long_request[2] = std::byte{0xff};  // claims 65 344 bytes
  auto response = proper;
  response[1] = std::byte{1};
  std::vector<std::byte> noise(5000);
  std::minstd_rand random(1);
  for (std::byte& byte : noise)
    byte = static_cast<std::byte>(random());
  const auto raw_hello = encode(other);
  const std::array<std::byte, 4> four_gigabytes{std::byte{0xff}, std::byte{0xff}, std::byte{0xff},
                                                std::byte{0xff}};
  const std::vector<std::pair<std::string, std::span<const std::byte>>> strangers{
      {"silent", {}},
      {"one byte", bytes_of("x")},
      {"one right byte", std::span(proper).first(1)},
      {"HTTP", bytes_of("GET / HTTP/1.1\r\nHost: example\r\n\r\n")},
      {"4 GiB", four_gigabytes},
      {"noise", noise},
      {"header alone", std::span(proper).first(fabric::kRequestHeaderBytes)},
      {"half a hello", std::span(proper).first(60)},
      {"too long", long_request},
      {"a response", response},
      {"bare hello of another version", raw_hello}};
  expect_good_connection();
  run_until([&] { return host_.count(Kind::kClosed) == 1; });
  const auto descriptors = open_descriptors();
  for (const auto& [name, bytes] : strangers) {
    const UniqueFd fd = connect_stranger();
    if (!bytes.empty()) send(fd, bytes);
    const Instant start = clock_.now();
    std::vector<std::byte> answer;
    EXPECT_TRUE(run_until([&] { return closed(fd, answer); }, seconds(2))) << name;
    EXPECT_LT(clock_.now() - start, kHandshakeTimeout + milliseconds(500)) << name;
  }
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_EQ(host_.count(Kind::kEstablished), 1U);
  expect_good_connection();
}

TEST_F(FabricTransport, OtherVersionsBareHelloIsToldBothVersions) {
  Hello other;
  other.version = other.oldest_version = 42;
  const UniqueFd fd = connect_stranger();
  send(fd, encode(other));
  std::vector<std::byte> answer;
  ASSERT_TRUE(run_until([&] { return closed(fd, answer); }));
  const Error error = decode_refusal(answer, other);
  EXPECT_EQ(error.code(), Errc::kVersionMismatch);
  EXPECT_NE(error.to_string().find("42"), std::string::npos);
  const std::string ours = "version " + std::to_string(kProtocolVersion) + " ";
  EXPECT_NE(error.to_string().find(ours), std::string::npos) << error.to_string();
}

TEST_F(FabricTransport, RequestInPiecesIsARequest) {
  const auto request = connection_request({});
  const UniqueFd fd = connect_stranger();
  for (const auto& [from, to] : {std::pair{0, 1}, {1, 31}, {31, 32}, {32, 70}, {70, 96}}) {
    send(fd, std::span(request).subspan(static_cast<std::size_t>(from),
                                        static_cast<std::size_t>(to - from)));
    run_until([] { return false; }, milliseconds(5));
  }
  std::vector<std::byte> answer;
  ASSERT_TRUE(run_until([&] {
    EXPECT_FALSE(closed(fd, answer));
    return host_.count(Kind::kEstablished) == 1 && answer.size() == request.size();
  }));
  EXPECT_EQ(answer[1], std::byte{1});  // accepted
  auto greeting = fabric::decode_greeting(
      std::span<const std::byte>(answer).subspan(fabric::kRequestHeaderBytes), {});
  EXPECT_TRUE(greeting);
}

TEST_F(FabricTransport, NoiseAfterTheGreetingEndsOnlyThatConnection) {
  std::minstd_rand random(2);
  for (std::size_t round = 1; round <= 20; ++round) {
    const UniqueFd fd = connect_stranger();
    send(fd, connection_request({}));
    ASSERT_TRUE(run_until([&] { return host_.count(Kind::kEstablished) == round; }));
    std::array<std::byte, 300> noise;
    for (std::byte& byte : noise)
      byte = static_cast<std::byte>(random());
    noise[6] = std::byte{200};  // a header longer than there can be
    send(fd, noise);
    ASSERT_TRUE(run_until([&] { return host_.count(Kind::kClosed) == round; }));
  }
  EXPECT_EQ(host_.disorder, "");
}

TEST_F(FabricTransport, FloodOfSilentStrangersPasses) {
  std::vector<UniqueFd> strangers;
  for (int count = 0; count < 400; ++count)
    strangers.push_back(connect_stranger());
  expect_good_connection();
  std::vector<std::byte> answer;
  EXPECT_TRUE(run_until([&] {
    std::erase_if(strangers, [&](const UniqueFd& fd) { return closed(fd, answer); });
    return strangers.empty();
  }));
}

TEST_F(FabricTransport, SilentServerEndsAtTheDeadline) {
  UniqueFd silent(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const SocketAddress any = *SocketAddress::parse("127.0.0.1:0");
  ASSERT_EQ(::bind(silent.get(), any.get(), any.length()), 0);
  ASSERT_EQ(::listen(silent.get(), 8), 0);
  sockaddr_storage name{};
  socklen_t length = sizeof name;
  ::getsockname(silent.get(), reinterpret_cast<sockaddr*>(&name), &length);
  const SocketAddress address(reinterpret_cast<sockaddr*>(&name), length);

  const Endpoint* endpoint = host_.transport().connect(address, clock_.now() + milliseconds(200));
  ASSERT_TRUE(run_until([&] { return host_.find(Kind::kFailed, endpoint) != nullptr; }));
  EXPECT_EQ(host_.find(Kind::kFailed, endpoint)->error.code(), Errc::kTimedOut);

  UniqueFd(::accept4(silent.get(), nullptr, nullptr, SOCK_CLOEXEC)).reset();

  // And one that hangs up, or speaks something else.
  for (const std::string_view answer : {std::string_view(), std::string_view("HTTP/1.1 400 \r\n"),
                                        std::string_view(kZeros.data(), kZeros.size())}) {
    host_.events.clear();
    const Endpoint* other = host_.transport().connect(address, clock_.now() + seconds(3));
    const Instant start = clock_.now();
    UniqueFd accepted(::accept4(silent.get(), nullptr, nullptr, SOCK_CLOEXEC));
    ASSERT_TRUE(run_until([&] {
      std::array<char, 200> request;
      if (accepted && ::recv(accepted.get(), request.data(), request.size(), MSG_DONTWAIT) > 0) {
        if (!answer.empty()) ::send(accepted.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
        accepted.reset();
      }
      return host_.find(Kind::kFailed, other) != nullptr;
    }));
    EXPECT_LT(clock_.now() - start, seconds(1)) << answer;
    const Error& error = host_.find(Kind::kFailed, other)->error;
    EXPECT_NE(error.code(), Errc::kTimedOut) << answer << error.to_string();
  }
}

TEST_F(FabricTransport, PeerKilledBySignalIsHeardOf) {
  const pid_t child = ::fork();
  if (child == 0) {
    auto peer = open();
    peer->connect(address_, clock_.now() + seconds(5));
    std::array<Completion, 16> completions;
    ConnectionEvent event{.kind = Kind::kFailed, .endpoint = nullptr, .peer = {}};
    for (;;) {
      peer->poll(completions);
      peer->poll_connections(clock_.now(), {&event, 1});
    }
  }
  EXPECT_TRUE(run_until([&] { return host_.count(Kind::kEstablished) == 1; }));
  ::kill(child, SIGKILL);
  EXPECT_TRUE(run_until([&] { return host_.count(Kind::kClosed) == 1; }));
  int status = 0;
  ::waitpid(child, &status, 0);
}

// Whoever was connecting sees the end of the connection, and (under LeakSanitizer) nothing of it is
// left in the provider.
TEST(FabricListener, MayCloseAtAnyPointOfAnArrival) {
  for (int turns = 0; turns < 8; ++turns) {
    FabricOptions options;
    TestHost host(open_fabric_transport(options).value());
    const auto address = host.transport().listen(*SocketAddress::parse("127.0.0.1:0"));
    ASSERT_TRUE(address) << address.error().to_string();
    const UniqueFd arrival(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::connect(arrival.get(), address->get(), address->length()), 0);
    const std::vector<std::byte> request = connection_request(options.hello);
    ASSERT_EQ(::send(arrival.get(), request.data(), request.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(request.size()));
    for (int turn = 0; turn < turns; ++turn)
      host.turn(SteadyClock().now());
    host.destroy();
    std::array<std::byte, 4096> answer;
    ssize_t count = 0;
    do {
      pollfd readable{arrival.get(), POLLIN, 0};
      ASSERT_EQ(::poll(&readable, 1, 5000), 1) << "after " << turns << " turns";
      count = ::recv(arrival.get(), answer.data(), answer.size(), 0);
    } while (count > 0);
  }
}

TEST(FabricProviders, UnknownProviderNamesThoseThereAre) {
  FabricOptions options;
  options.provider = "nonesuch";
  const auto transport = open_fabric_transport(options);
  ASSERT_FALSE(transport);
  EXPECT_EQ(transport.error().code(), Errc::kUnsupported);
  EXPECT_NE(transport.error().to_string().find("tcp"), std::string::npos)
      << transport.error().to_string();
}

TEST(FabricProviders, ForeignLocalAddressIsAnError) {
  FabricOptions options;
  options.local = *SocketAddress::parse("203.0.113.7:0");
  SteadyClock clock;
  auto transport = open_fabric_transport(options);
  ASSERT_TRUE(transport);
  TestHost host(std::move(*transport));
  const Endpoint* endpoint =
      host.transport().connect(*SocketAddress::parse("127.0.0.1:9"), clock.now() + seconds(1));
  host.turn(clock.now());
  ASSERT_NE(host.find(Kind::kFailed, endpoint), nullptr);
  EXPECT_EQ(host.find(Kind::kFailed, endpoint)->error.code(), Errc::kUnreachable);
}

}  // namespace
}  // namespace lochos
