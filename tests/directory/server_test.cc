// The directory process and its clients over real sockets on the loopback.
#include "directory/server.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "base/unique_fd.h"
#include "directory/client.h"
#include "directory/codec.h"
#include "tests/directory/cluster.h"
#include "tests/ipv6_loopback.h"
#include "transport/hello.h"

namespace lochos::test {
namespace {

using namespace std::chrono_literals;

// A server on a thread of its own, for the life of this object.
class Running {
 public:
  explicit Running(const std::string& address = "127.0.0.1:0", Duration dead_after = 5s) {
    auto opened = DirectoryServer::open({.listen = *SocketAddress::parse(address),
                                         .heartbeat_interval = 20ms,
                                         .dead_after = dead_after});
    EXPECT_TRUE(opened.has_value()) << opened.error().to_string();
    server_ = std::move(*opened);
    thread_ = std::thread([this] { EXPECT_TRUE(server_->run().has_value()); });
  }
  ~Running() {
    server_->stop();
    thread_.join();
  }
  std::string address() const { return server_->address().to_string(); }

 private:
  std::unique_ptr<DirectoryServer> server_;
  std::thread thread_;
};

// A node that sleeps until the channel has something.
class Caller {
 public:
  explicit Caller(const std::string& address, std::string name = "") {
    DirectoryClientOptions options;
    options.address = address;
    options.join.name = std::move(name);
    options.join.rails = {{TransportKind::kTcp, "127.0.0.1:1"}};
    auto opened = open_directory_client(options);
    EXPECT_TRUE(opened.has_value()) << opened.error().to_string();
    channel = std::move(*opened);
  }

  // Polls until `enough` or the time is up; returns whether it was enough.
  bool wait(const std::function<bool()>& enough, Duration limit = 5s) {
    const Instant end = clock_.now() + limit;
    while (true) {
      channel->poll(clock_.now(), events);
      if (enough()) return true;
      const Instant now = clock_.now();
      if (now >= end) return false;
      const Instant next = std::min(channel->next_deadline(), end);
      pollfd fd{.fd = channel->event_fd(), .events = POLLIN, .revents = 0};
      const auto ms = std::chrono::ceil<std::chrono::milliseconds>(next - now).count();
      ::poll(&fd, 1, static_cast<int>(std::max<std::int64_t>(0, ms)));
    }
  }
  template <class T>
  std::optional<T> receive(Duration limit = 5s) {
    std::optional<T> found;
    wait(
        [&] {
          for (auto at = events.begin(); at != events.end(); ++at) {
            if (at->kind != ChannelEvent::Kind::kMessage) continue;
            if (const T* message = std::get_if<T>(&at->message)) {
              found = *message;
              events.erase(at);
              return true;
            }
          }
          return false;
        },
        limit);
    return found;
  }
  std::optional<Error> lost(Duration limit = 5s) {
    std::optional<Error> why;
    wait(
        [&] {
          for (auto at = events.begin(); at != events.end(); ++at) {
            if (at->kind != ChannelEvent::Kind::kLost) continue;
            why = at->error;
            events.erase(at);
            return true;
          }
          return false;
        },
        limit);
    return why;
  }

  std::unique_ptr<DirectoryChannel> channel;
  std::vector<ChannelEvent> events;

 private:
  SteadyClock clock_;
};

UniqueFd dial(const std::string& address) {
  const auto target = *SocketAddress::parse(address);
  UniqueFd fd(::socket(target.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(fd.get(), target.get(), target.length()), 0);
  return fd;
}

// Everything the peer says until it hangs up; fails the test if it does not within `limit`.
Bytes read_to_end(int fd, Duration limit) {
  const SteadyClock clock;
  const Instant end = clock.now() + limit;
  Bytes all;
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - clock.now()).count();
    pollfd ready{.fd = fd, .events = POLLIN, .revents = 0};
    if (left <= 0 || ::poll(&ready, 1, static_cast<int>(left)) == 0) {
      ADD_FAILURE() << "the peer did not hang up in time";
      return all;
    }
    std::byte buffer[4096];
    const ssize_t count = ::recv(fd, buffer, sizeof buffer, 0);
    if (count <= 0) return all;
    all.insert(all.end(), buffer, buffer + count);
  }
}

void write_all(int fd, std::span<const std::byte> bytes) {
  ASSERT_EQ(::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
}

Hello directory_hello() {
  Hello hello;
  hello.purpose = HelloPurpose::kDirectory;
  return hello;
}

// ---- nodes ----

TEST(DirectoryServer, TwoNodesPutAndGet) {
  const Running server;
  Caller a(server.address(), "a"), b(server.address(), "b");
  const auto joined_a = a.receive<Joined>();
  const auto joined_b = b.receive<Joined>();
  ASSERT_TRUE(joined_a && joined_b);
  EXPECT_NE(joined_a->node.number, joined_b->node.number);
  EXPECT_EQ(joined_a->cluster, joined_b->cluster);
  a.channel->send(Put{.request = 1,
                      .id = id_of(1),
                      .name = "x",
                      .size = 5,
                      .complete = true,
                      .inline_bytes = bytes_of("hello")});
  ASSERT_TRUE(a.receive<PutReply>());
  b.channel->send(Get{.request = 2, .id = id_of(1)});
  const auto reply = b.receive<Inline>();
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->request, 2U);
  EXPECT_EQ(reply->name, "x");
  EXPECT_EQ(reply->bytes, SharedBytes(bytes_of("hello")));
  a.channel->send(
      Put{.request = 3, .id = id_of(2), .name = "y", .size = 1 << 20, .complete = true});
  ASSERT_TRUE(a.receive<PutReply>());
  b.channel->send(Get{.request = 4, .id = id_of(2)});
  const auto edge = b.receive<Assign>();
  ASSERT_TRUE(edge);
  EXPECT_EQ(edge->parent, joined_a->node);
  EXPECT_EQ(edge->rails, (std::vector<RailAddress>{{TransportKind::kTcp, "127.0.0.1:1"}}));
}

TEST(DirectoryServer, LargestInlineObjectsManyAtOnce) {
  const Running server;
  Caller a(server.address());
  ASSERT_TRUE(a.receive<Joined>());
  constexpr std::uint32_t kCount = 300;  // 20 MB: more than any socket buffer, both ways
  for (std::uint32_t n = 1; n <= kCount; ++n) {
    a.channel->send(Put{.request = n,
                        .id = id_of(n),
                        .name = {},
                        .size = kInlineObjectBytes,
                        .complete = true,
                        .inline_bytes = Bytes(kInlineObjectBytes, static_cast<std::byte>(n))});
  }
  for (std::uint32_t n = 1; n <= kCount; ++n)
    ASSERT_TRUE(a.receive<PutReply>()) << n;
  for (std::uint32_t n = 1; n <= kCount; ++n)
    a.channel->send(Get{.request = n, .id = id_of(n)});
  for (std::uint32_t n = 1; n <= kCount; ++n) {
    const auto reply = a.receive<Inline>();
    ASSERT_TRUE(reply) << n;
    EXPECT_EQ(reply->request, n);
    ASSERT_EQ(reply->bytes.size(), kInlineObjectBytes);
    EXPECT_EQ(*reply->bytes.data(), static_cast<std::byte>(n));
  }
}

TEST(DirectoryServer, NodeReconnectsToARestartedDirectory) {
  auto server = std::make_unique<Running>();
  const std::string address = server->address();
  Caller a(address);
  const auto first = a.receive<Joined>();
  ASSERT_TRUE(first);
  server.reset();
  EXPECT_TRUE(a.lost());
  EXPECT_FALSE(a.channel->joined());
  EXPECT_NE(a.channel->describe().find(address), std::string::npos);
  server = std::make_unique<Running>(address);
  const auto second = a.receive<Joined>();
  ASSERT_TRUE(second);
  EXPECT_EQ(second->node.number, first->node.number);
  EXPECT_GT(second->node.incarnation, first->node.incarnation);
  EXPECT_GT(second->epoch, first->epoch);
  EXPECT_EQ(second->cluster, first->cluster) << "data connections stay valid";
}

TEST(DirectoryServer, NodeStartedBeforeTheDirectory) {
  std::string address;
  {
    const Running probe;
    address = probe.address();
  }
  Caller a(address);
  EXPECT_FALSE(a.receive<Joined>(300ms));
  EXPECT_NE(a.channel->describe().find("refused"), std::string::npos) << a.channel->describe();
  const Running server(address);
  EXPECT_TRUE(a.receive<Joined>());
}

TEST(DirectoryServer, HostNameIsResolved) {
  const Running server;
  const std::string address = server.address();
  Caller a("localhost:" + address.substr(address.rfind(':') + 1));
  EXPECT_TRUE(a.receive<Joined>()) << a.channel->describe();
}

TEST(DirectoryServer, Ipv6Loopback) {
  if (!has_ipv6_loopback()) GTEST_SKIP() << "the system has no address ::1 to listen on";
  const Running server("[::1]:0");
  Caller a(server.address());
  EXPECT_TRUE(a.receive<Joined>()) << a.channel->describe();
}

TEST(DirectoryServer, HeartbeatsDoNotNeedTheEngineThread) {
  const Running server("127.0.0.1:0", 300ms);
  Caller busy(server.address()), other(server.address());
  ASSERT_TRUE(busy.receive<Joined>());
  ASSERT_TRUE(other.receive<Joined>());
  // `busy` is not polled for four times the limit.
  EXPECT_FALSE(other.receive<Fenced>(1200ms));
  other.channel->send(Members{.request = 1});
  EXPECT_EQ(other.receive<MembersReply>()->members.size(), 2U);
}

TEST(DirectoryServer, BrokenConnectionIsDeathAtOnce) {
  const Running server;
  Caller a(server.address());
  ASSERT_TRUE(a.receive<Joined>());
  {
    Caller b(server.address());
    ASSERT_TRUE(b.receive<Joined>());
    b.channel->send(Barrier{.request = 1, .name = "x", .members = 2});
    b.channel->send(Members{.request = 2});
    ASSERT_TRUE(b.receive<MembersReply>());
    a.channel->send(Members{.request = 2});
    ASSERT_EQ(a.receive<MembersReply>()->members.size(), 2U);
  }
  EXPECT_TRUE(a.wait([&] {
    a.channel->send(Members{.request = 3});
    const auto reply = a.receive<MembersReply>();
    return reply && reply->members.size() == 1;
  }));
}

TEST(DirectoryServer, FencedNodeJoinsAnew) {
  const Running server("127.0.0.1:0", 300ms);
  // Joins by hand and then says nothing.
  const UniqueFd mute = dial(server.address());
  Bytes bytes;
  const auto hello = encode(directory_hello());
  bytes.assign(hello.begin(), hello.end());
  FrameEncoder().append(NodeMessage(Join{}), bytes);
  write_all(mute.get(), bytes);
  const Bytes answer = read_to_end(mute.get(), 2s);
  ASSERT_GT(answer.size(), kHelloBytes);
  std::span<const std::byte> rest(answer);
  rest = rest.subspan(kHelloBytes);
  std::vector<DirectoryMessage> messages;
  while (rest.size() >= kFrameHeaderBytes) {
    const auto length = *frame_length(rest);
    messages.push_back(*decode_directory_message(rest.subspan(kFrameHeaderBytes, *length)));
    rest = rest.subspan(kFrameHeaderBytes + *length);
  }
  ASSERT_EQ(messages.size(), 2U);
  EXPECT_TRUE(std::holds_alternative<Joined>(messages[0]));
  EXPECT_TRUE(std::holds_alternative<Fenced>(messages[1]));
}

// ---- strangers ----

TEST(DirectoryServer, StrangersAreRefusedWithinASecond) {
  const Running server;
  const std::vector<Bytes> greetings = {
      bytes_of("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
      bytes_of("\xff\xff\xff\xff"),     // a 4 GiB length prefix
      Bytes(100'000, std::byte{0x5a}),  // random bytes, and many
      bytes_of("LC"),                   // begins well, then silence
      {},                               // silence
  };
  for (const Bytes& greeting : greetings) {
    const UniqueFd fd = dial(server.address());
    write_all(fd.get(), greeting);
    const Bytes answer = read_to_end(fd.get(), 1s);
    EXPECT_EQ(answer.size(), kRefusalBytes);
    EXPECT_EQ(decode_refusal(answer, directory_hello()).code(), Errc::kProtocol);
  }
}

TEST(DirectoryServer, OtherVersionIsToldBothVersions) {
  const Running server;
  const UniqueFd fd = dial(server.address());
  Hello hello = directory_hello();
  hello.version = hello.oldest_version = 999;
  write_all(fd.get(), encode(hello));
  const Error error = decode_refusal(read_to_end(fd.get(), 1s), hello);
  EXPECT_EQ(error.code(), Errc::kVersionMismatch);
  EXPECT_NE(error.message().find("999"), std::string::npos) << error.to_string();
  EXPECT_NE(error.message().find(std::to_string(kProtocolVersion)), std::string::npos);
}

TEST(DirectoryServer, OtherServiceIsRefused) {
  const Running server;
  const UniqueFd fd = dial(server.address());
  write_all(fd.get(), encode(Hello{}));
  EXPECT_EQ(read_to_end(fd.get(), 1s).size(), kRefusalBytes);
}

TEST(DirectoryServer, GarbageAfterTheGreetingEndsTheConnection) {
  const Running server;
  for (const Bytes& garbage : {bytes_of("\xff\xff\xff\xff"),
                               Bytes{std::byte{8}, std::byte{0}, std::byte{0}, std::byte{0},
                                     std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4},
                                     std::byte{5}, std::byte{6}, std::byte{7}, std::byte{8}}}) {
    const UniqueFd fd = dial(server.address());
    const auto hello = encode(directory_hello());
    Bytes bytes(hello.begin(), hello.end());
    bytes.insert(bytes.end(), garbage.begin(), garbage.end());
    write_all(fd.get(), bytes);
    EXPECT_LE(read_to_end(fd.get(), 1s).size(), kHelloBytes);
  }
  Caller a(server.address());
  EXPECT_TRUE(a.receive<Joined>()) << "and harms nobody";
}

TEST(DirectoryServer, PortInUseNamesThePortAndTheFix) {
  const Running server;
  const auto second = DirectoryServer::open({.listen = *SocketAddress::parse(server.address())});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), Errc::kAddressInUse);
  const std::string port = server.address().substr(server.address().rfind(':') + 1);
  EXPECT_NE(second.error().to_string().find(port), std::string::npos);
  EXPECT_FALSE(second.error().fix().empty());
}

TEST(DirectoryServer, NodeThatStopsReadingDoesNotStopOthers) {
  const Running server;
  Caller a(server.address());
  ASSERT_TRUE(a.receive<Joined>());
  a.channel->send(Put{.request = 1,
                      .id = id_of(1),
                      .name = {},
                      .size = kInlineObjectBytes,
                      .complete = true,
                      .inline_bytes = Bytes(kInlineObjectBytes)});
  ASSERT_TRUE(a.receive<PutReply>());
  // Asks for 200 MB and reads none of it.
  const UniqueFd deaf = dial(server.address());
  const auto hello = encode(directory_hello());
  Bytes bytes(hello.begin(), hello.end());
  FrameEncoder encoder;
  encoder.append(NodeMessage(Join{}), bytes);
  for (int n = 0; n < 3000; ++n) {
    encoder.append(NodeMessage(Get{.request = 1, .id = id_of(1)}), bytes);
  }
  ASSERT_GT(::send(deaf.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT), 0);
  for (RequestNumber request = 2; request < 200; ++request) {
    a.channel->send(Get{.request = request, .id = id_of(1)});
    ASSERT_TRUE(a.receive<Inline>());
  }
}

// ---- addresses ----

TEST(DirectoryClient, BadAddressesAreRefused) {
  for (const std::string address :
       {"", "host", ":7777", "::1:7777", "[::1]", "host:x", "host:70000"}) {
    DirectoryClientOptions options;
    options.address = address;
    const auto opened = open_directory_client(options);
    ASSERT_FALSE(opened) << address;
    EXPECT_EQ(opened.error().code(), Errc::kInvalidArgument) << address;
  }
}

TEST(DirectoryClient, WhatIsNoDirectoryIsNamed) {
  // A listener that answers like a web server.
  const auto local = *SocketAddress::parse("127.0.0.1:0");
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(listener.get(), local.get(), local.length()), 0);
  ASSERT_EQ(::listen(listener.get(), 8), 0);
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&storage), &length);
  Caller a(SocketAddress(reinterpret_cast<sockaddr*>(&storage), length).to_string());
  a.wait([&] { return false; }, 50ms);
  const UniqueFd fd(::accept(listener.get(), nullptr, nullptr));
  write_all(fd.get(),
            bytes_of("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close"));
  EXPECT_TRUE(a.wait([&] {
    return a.channel->describe().find("no lochos greeting") != std::string::npos;
  })) << a.channel->describe();
}

}  // namespace
}  // namespace lochos::test
