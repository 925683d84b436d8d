// The node's socket as strangers, careless and dying clients use it.
#include "node/local_server.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "base/log.h"
#include "node/local_codec.h"
#include "node/local_greeting.h"
#include "tests/node/test_node.h"

namespace lochos {
namespace {

using namespace std::chrono_literals;

class LocalServerTest : public testing::Test {
 protected:
  SocketPath path_;
  TestNode node_{path_.str()};
};

// A client that speaks bytes.
class RawClient {
 public:
  explicit RawClient(const std::string& path) : fd_(::socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un address{};
    EXPECT_TRUE(make_socket_address(path, address));
    EXPECT_EQ(::connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  void send(std::span<const std::byte> bytes) {
    EXPECT_EQ(::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  void send(std::string_view text) { send(std::as_bytes(std::span(text))); }
  // Everything until the end of the connection, at most `within`; ok() says whether it ended.
  std::vector<std::byte> read_to_end(Duration within) {
    std::vector<std::byte> all;
    const Instant deadline = std::chrono::steady_clock::now() + within;
    for (;;) {
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      pollfd entry{fd_.get(), POLLIN, 0};
      if (left.count() <= 0 || ::poll(&entry, 1, static_cast<int>(left.count())) != 1) return all;
      std::array<std::byte, 4096> buffer;
      const ssize_t count = ::recv(fd_.get(), buffer.data(), buffer.size(), 0);
      if (count <= 0) {
        ended_ = true;
        return all;
      }
      all.insert(all.end(), buffer.begin(), buffer.begin() + count);
    }
  }
  bool ended() const { return ended_; }
  int fd() const { return fd_.get(); }

 private:
  UniqueFd fd_;
  bool ended_ = false;
};

TEST_F(LocalServerTest, StrangersAreRefusedWithinASecond) {
  std::array<std::byte, 4> huge;
  huge.fill(std::byte{0xFF});
  RawClient http(path_.str()), silent(path_.str()), random(path_.str()), long_prefix(path_.str());
  http.send("GET / HTTP/1.1\r\nHost: node\r\n\r\n");
  random.send(pattern(5000));
  long_prefix.send(huge);
  const Instant start = std::chrono::steady_clock::now();
  for (RawClient* client : {&http, &random, &long_prefix, &silent}) {
    const auto answer = client->read_to_end(2s);
    EXPECT_TRUE(client->ended());
    EXPECT_EQ(answer.size(), kRefusalBytes);
    EXPECT_EQ(decode_refusal(answer, local_hello()).code(), Errc::kProtocol);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, 1500ms);
  EXPECT_TRUE(eventually([&] { return node_.clients() == 0; }));
  EXPECT_TRUE(node_.connect().put("still", pattern(4)));
}

TEST_F(LocalServerTest, OtherVersionsAndServicesAreNamed) {
  Hello hello = local_hello();
  hello.version = hello.oldest_version = 99;
  RawClient newer(path_.str());
  newer.send(encode(hello));
  const auto refusal = newer.read_to_end(2s);
  EXPECT_TRUE(newer.ended());
  Hello mine = local_hello();
  mine.version = mine.oldest_version = 99;
  EXPECT_EQ(decode_refusal(refusal, mine).code(), Errc::kVersionMismatch);
  hello = local_hello();
  hello.purpose = HelloPurpose::kData;
  RawClient peer(path_.str());
  peer.send(encode(hello));
  EXPECT_EQ(peer.read_to_end(2s).size(), kRefusalBytes);
}

TEST_F(LocalServerTest, AGreetingInPiecesIsUnderstood) {
  RawClient client(path_.str());
  const auto hello = encode(local_hello());
  client.send(std::span(hello).first(3));
  client.send(std::span(hello).subspan(3, 20));
  client.send(std::span(hello).subspan(23));
  EXPECT_EQ(client.read_to_end(300ms).size(), kLocalAnswerBytes);
  EXPECT_FALSE(client.ended());
}

TEST_F(LocalServerTest, GarbageAfterTheGreetingEndsTheConnection) {
  for (const std::vector<std::byte>& garbage :
       {pattern(1000), std::vector<std::byte>(8, std::byte{0xFF}),
        std::vector<std::byte>(8, std::byte{0})}) {
    RawClient client(path_.str());
    client.send(encode(local_hello()));
    client.send(garbage);
    EXPECT_EQ(client.read_to_end(2s).size(), kLocalAnswerBytes);
    EXPECT_TRUE(client.ended());
  }
  EXPECT_TRUE(eventually([&] { return node_.clients() == 0; }));
}

TEST_F(LocalServerTest, ANumberThatIsUnderWayCannotBeUsedAgain) {
  RawClient client(path_.str());
  std::vector<std::byte> requests;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(append_frame(LocalMessage(LocalGet{7, {}, "absent", 60s, false}), requests));
  }
  client.send(encode(local_hello()));
  client.send(requests);
  EXPECT_EQ(client.read_to_end(2s).size(), kLocalAnswerBytes);
  EXPECT_TRUE(client.ended());
  EXPECT_TRUE(eventually([&] { return node_.clients() == 0; }));
  node_.run([](FakeEngine& engine) { EXPECT_EQ(engine.waiting(), 0U); });
}

TEST_F(LocalServerTest, AClientThatDoesNotReadIsNotListenedTo) {
  Store other = node_.connect();
  for (int i = 0; i < 500; ++i)
    ASSERT_TRUE(other.put("object" + std::to_string(i), {}));
  RawClient client(path_.str());
  client.send(encode(local_hello()));
  // Each answer has some 50 KB: what the client asks for is soon more than it may leave unread.
  std::vector<std::byte> requests;
  for (std::uint64_t i = 1; i <= 20; ++i)
    ASSERT_TRUE(append_frame(LocalMessage(LocalList{i, {}, 500, 60s}), requests));
  int asked = 0;
  for (; asked < 1000; ++asked) {
    pollfd entry{client.fd(), POLLOUT, 0};
    if (::poll(&entry, 1, 300) != 1) break;
    const ssize_t count =
        ::send(client.fd(), requests.data(), requests.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count < static_cast<ssize_t>(requests.size())) break;
  }
  EXPECT_LT(asked, 1000);  // it was not listened to any more, or was disconnected
  EXPECT_TRUE(other.put("others", pattern(10)));
  EXPECT_TRUE(other.get("others", 1s));
}

TEST_F(LocalServerTest, ManyClientsComeAndGo) {
  for (int round = 0; round < 5; ++round) {
    std::vector<Store> stores;
    for (int i = 0; i < 20; ++i)
      stores.push_back(node_.connect());
    EXPECT_TRUE(stores[7].put("round" + std::to_string(round), {}));
    EXPECT_EQ(node_.clients(), 20U);
    stores.clear();
    EXPECT_TRUE(eventually([&] { return node_.clients() == 0; }));
  }
}

TEST_F(LocalServerTest, OnlyTheOwnerMayConnect) {
  struct stat file {};
  ASSERT_EQ(::stat(path_.str().c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777U, 0600U);
}

class SocketFileTest : public testing::Test {
 protected:
  SocketFileTest() {
    PoolOptions options;
    options.bytes = 1 << 20;
    engine_ = std::make_unique<FakeEngine>(Pool::open(options).value());
  }
  SocketPath path_;
  std::unique_ptr<FakeEngine> engine_;
};

TEST_F(SocketFileTest, OneThatIsServedIsNamed) {
  auto first = LocalServer::open(path_.str(), *engine_);
  ASSERT_TRUE(first) << first.error().to_string();
  const auto second = LocalServer::open(path_.str(), *engine_);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), Errc::kAddressInUse);
  EXPECT_NE(second.error().message().find(path_.str()), std::string::npos);
  first->reset();
  EXPECT_NE(::access(path_.str().c_str(), F_OK), 0);
  EXPECT_TRUE(LocalServer::open(path_.str(), *engine_));
}

TEST_F(SocketFileTest, AStaleOneIsReplaced) {
  {
    UniqueFd dead(::socket(AF_UNIX, SOCK_STREAM, 0));
    sockaddr_un address{};
    ASSERT_TRUE(make_socket_address(path_.str(), address));
    ASSERT_EQ(::bind(dead.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  ASSERT_EQ(::access(path_.str().c_str(), F_OK), 0);
  const auto server = LocalServer::open(path_.str(), *engine_);
  EXPECT_TRUE(server) << server.error().to_string();
  EXPECT_NE(::access((path_.str() + ".lock").c_str(), F_OK), 0);
}

TEST_F(SocketFileTest, OtherFilesAreLeftAlone) {
  std::ofstream(path_.str()) << "precious";
  const auto server = LocalServer::open(path_.str(), *engine_);
  ASSERT_FALSE(server);
  EXPECT_EQ(server.error().code(), Errc::kAddressInUse);
  EXPECT_EQ(::access(path_.str().c_str(), F_OK), 0);
}

TEST_F(SocketFileTest, BadPathsAreExplained) {
  const auto too_long = LocalServer::open("/tmp/" + std::string(200, 'x'), *engine_);
  ASSERT_FALSE(too_long);
  EXPECT_EQ(too_long.error().code(), Errc::kInvalidArgument);
  EXPECT_NE(too_long.error().message().find("107"), std::string::npos);
  EXPECT_FALSE(LocalServer::open("", *engine_));
  EXPECT_EQ(LocalServer::open(path_.str() + "/no/such", *engine_).error().code(), Errc::kNotFound);
  EXPECT_EQ(Store::connect(std::string(200, 'x')).error().code(), Errc::kInvalidArgument);
}

}  // namespace
}  // namespace lochos
