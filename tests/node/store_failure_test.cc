// What becomes of clients and nodes when the other one stops, dies or comes back.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "node/local_greeting.h"
#include "tests/node/test_node.h"

namespace lochos {
namespace {

using namespace std::chrono_literals;

Instant now() {
  return std::chrono::steady_clock::now();
}

// A process that runs `body` with the write end of a pipe, and is killed at the end.
class Child {
 public:
  explicit Child(const std::function<void(int ready)>& body) {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe(ends.data()), 0);
    ready_ = UniqueFd(ends[0]);
    UniqueFd write_end(ends[1]);
    pid_ = ::fork();
    if (pid_ == 0) {
      body(write_end.get());
      ::pause();
      ::_exit(0);
    }
  }
  ~Child() { kill(); }
  // Waits for the byte that says that the child is where the test wants it.
  bool wait_ready() {
    char byte = 0;
    pollfd entry{ready_.get(), POLLIN, 0};
    return ::poll(&entry, 1, 20'000) == 1 && ::read(ready_.get(), &byte, 1) == 1;
  }
  void signal(int number) { ::kill(pid_, number); }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  UniqueFd ready_;
  pid_t pid_ = -1;
};

void say_ready(int fd) {
  EXPECT_EQ(::write(fd, "r", 1), 1);
}

// A node in a process of its own.
std::function<void(int)> node_process(const std::string& path) {
  return [path](int ready) {
    auto* node = new TestNode(path);  // lives until the process is killed
    if (!node->path().empty()) say_ready(ready);
  };
}

TEST(ClientDeathTest, AClientKilledBetweenCreateAndSealFreesTheId) {
  SocketPath path;
  // Forked before this process has threads.
  std::array<int, 2> go{};
  ASSERT_EQ(::pipe(go.data()), 0);
  Child child([&](int ready) {
    char byte = 0;
    if (::read(go[0], &byte, 1) != 1) ::_exit(1);
    auto store = Store::connect(path.str());
    auto* writer = new ObjectWriter(store->create("half", 500'000).value());
    writer->publish(100'000);
    if (!store->stats()) ::_exit(1);
    say_ready(ready);
  });
  TestNode node(path.str());
  ASSERT_EQ(::write(go[1], "g", 1), 1);
  ASSERT_TRUE(child.wait_ready());
  Store store = node.connect();
  auto reader = store.get_async("half", 20s);
  EXPECT_EQ(store.put("half", pattern(10)).error().code(), Errc::kAlreadyExists);
  child.kill();
  const auto got = reader.take();
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code(), Errc::kAborted);
  EXPECT_TRUE(store.put("half", pattern(10)));
  node.run([](FakeEngine& engine) { EXPECT_EQ(engine.writers(), 0U); });
}

TEST(ClientDeathTest, AStoppedReaderKeepsItsViewAndADeadOneDoesNot) {
  SocketPath path;
  std::array<int, 2> go{};
  ASSERT_EQ(::pipe(go.data()), 0);
  Child child([&](int ready) {
    char byte = 0;
    if (::read(go[0], &byte, 1) != 1) ::_exit(1);
    auto store = Store::connect(path.str());
    static ObjectView view;
    view = store->get("held").value();
    say_ready(ready);
    if (::read(go[0], &byte, 1) != 1) ::_exit(1);  // after it was stopped and continued
    const auto expected = pattern(300'000);
    if (!std::equal(view.bytes().begin(), view.bytes().end(), expected.begin())) ::_exit(1);
    say_ready(ready);
  });
  TestNode node(path.str());
  Store store = node.connect();
  ASSERT_TRUE(store.put("held", pattern(300'000)));
  ASSERT_EQ(::write(go[1], "g", 1), 1);
  ASSERT_TRUE(child.wait_ready());
  child.signal(SIGSTOP);
  ASSERT_TRUE(store.erase("held"));
  // The pool is filled with other things; the stopped reader's bytes stay.
  while (store.put("filler" + std::to_string(now().time_since_epoch().count()),
                   std::vector<std::byte>(1 << 20))) {
  }
  EXPECT_EQ(store.stats()->pinned, 1U);
  child.signal(SIGCONT);
  ASSERT_EQ(::write(go[1], "g", 1), 1);
  EXPECT_TRUE(child.wait_ready());
  child.kill();
  EXPECT_TRUE(eventually([&] { return store.stats()->pinned == 0; }));
}

TEST(NodeDeathTest, OutstandingCallsEndAndTheStoreWorksWithTheNextNode) {
  SocketPath path;
  auto child = std::make_unique<Child>(node_process(path.str()));
  ASSERT_TRUE(child->wait_ready());
  Store store = Store::connect(path.str()).value();
  ASSERT_TRUE(store.put("old", pattern(100'000)));
  const ObjectView view = store.get("old").value();
  auto writer = store.create("unfinished", 100'000).value();
  auto pending = store.get_async("never", kNoTimeout);
  auto watched = store.get_async("never", kNoTimeout);
  const int fd = watched.event_fd().value();

  child->kill();
  const Instant start = now();
  for (auto* call : {&pending, &watched}) {
    const auto got = call->take();
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().code(), Errc::kConnectionLost);
    EXPECT_NE(got.error().peer().find(path.str()), std::string::npos);
  }
  pollfd entry{fd, POLLIN, 0};
  EXPECT_EQ(::poll(&entry, 1, 1000), 1);
  EXPECT_LT(now() - start, 1s);
  EXPECT_FALSE(writer.seal());
  const auto expected = pattern(100'000);
  EXPECT_TRUE(std::equal(view.bytes().begin(), view.bytes().end(), expected.begin()));
  const auto gone = store.stats(1s);
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code(), Errc::kUnreachable);

  child = std::make_unique<Child>(node_process(path.str()));
  ASSERT_TRUE(child->wait_ready());
  EXPECT_TRUE(store.put("new", pattern(10)));
  EXPECT_TRUE(store.get("new"));
  EXPECT_TRUE(std::equal(view.bytes().begin(), view.bytes().end(), expected.begin()));
}

TEST(NodeDeathTest, AnIdleStoreNoticesTheRestartByItself) {
  SocketPath path;
  auto child = std::make_unique<Child>(node_process(path.str()));
  ASSERT_TRUE(child->wait_ready());
  Store store = Store::connect(path.str()).value();
  ASSERT_TRUE(store.stats());
  child->kill();
  child = std::make_unique<Child>(node_process(path.str()));
  ASSERT_TRUE(child->wait_ready());
  EXPECT_TRUE(store.put("first call", pattern(100)));  // not even one call fails
}

TEST(NodeStoppedTest, DeadlinesHoldWithoutTheNode) {
  SocketPath path;
  Child child(node_process(path.str()));
  ASSERT_TRUE(child.wait_ready());
  Store store = Store::connect(path.str()).value();
  auto watched = store.get_async("watched", 300ms);
  const int fd = watched.event_fd().value();
  child.signal(SIGSTOP);
  const Instant start = now();
  std::vector<std::byte> buffer(100);
  for (const Error& error :
       {store.get("x", 100ms).error(), store.put("y", pattern(10), 100ms).error(),
        store.get_into("z", buffer, 100ms).error(), store.stats(100ms).error(),
        Store::connect(path.str(), 100ms).error()}) {
    EXPECT_EQ(error.code(), Errc::kTimedOut) << error.to_string();
    EXPECT_NE(error.peer().find(path.str()), std::string::npos) << error.to_string();
  }
  EXPECT_LT(now() - start, 5 * 1100ms);
  pollfd entry{fd, POLLIN, 0};
  EXPECT_EQ(::poll(&entry, 1, 2000), 1);
  EXPECT_EQ(watched.take().error().code(), Errc::kTimedOut);
  child.signal(SIGCONT);
  // What was given up is undone, what comes now works.
  EXPECT_TRUE(store.put("after", pattern(10)));
  EXPECT_TRUE(eventually([&] { return store.stats()->pinned == 0; }));
}

TEST(NodeStoppedTest, RequestsThatCannotBeSentDoNotBlockForEver) {
  SocketPath path;
  Child child(node_process(path.str()));
  ASSERT_TRUE(child.wait_ready());
  Store store = Store::connect(path.str()).value();
  child.signal(SIGSTOP);
  std::vector<Pending<ObjectView>> pending;
  Duration longest{0};
  // The first call that must wait for room is refused; those before it do not wait at all.
  while (longest < 300ms && pending.size() < 100'000) {
    const Instant start = now();
    pending.push_back(store.get_async("x", 200ms));
    longest = std::max<Duration>(longest, now() - start);
  }
  EXPECT_LT(longest, 1200ms);
  EXPECT_EQ(pending.back().take().error().code(), Errc::kTimedOut);
  child.signal(SIGCONT);
  pending.clear();
  EXPECT_TRUE(store.put("after", pattern(10)));
}

TEST(NodeEndTest, AnEmbeddedStoreIsClosed) {
  auto node = std::make_unique<TestNode>("");
  Store store = node->embedded();
  ASSERT_TRUE(store.put("object", pattern(100'000)));
  const ObjectView view = store.get("object").value();
  auto pending = store.get_async("never", kNoTimeout);
  auto writer = store.create("unfinished", 100'000).value();
  node.reset();
  EXPECT_EQ(pending.take().error().code(), Errc::kClosed);
  EXPECT_EQ(store.put("more", pattern(1)).error().code(), Errc::kClosed);
  EXPECT_EQ(store.get("object").error().code(), Errc::kClosed);
  EXPECT_EQ(writer.seal().error().code(), Errc::kClosed);
  const auto expected = pattern(100'000);
  EXPECT_TRUE(std::equal(view.bytes().begin(), view.bytes().end(), expected.begin()));
  std::fill(writer.bytes().begin(), writer.bytes().end(), std::byte{1});  // harmless
}

TEST(NodeEndTest, AnEngineThatHangsMissesNoDeadline) {
  TestNode node("");
  Store store = node.embedded();
  const auto frozen = node.freeze();
  const Instant start = now();
  EXPECT_EQ(store.get("x", 100ms).error().code(), Errc::kTimedOut);
  EXPECT_LT(now() - start, 1100ms);
}

TEST(ConnectTest, NoNodeIsExplained) {
  SocketPath path;
  const auto absent = Store::connect(path.str(), 1s);
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code(), Errc::kUnreachable);
  EXPECT_FALSE(absent.error().fix().empty());
}

TEST(ConnectTest, AnotherServiceAtTheSocketIsRefused) {
  SocketPath path;
  UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un address{};
  ASSERT_TRUE(make_socket_address(path.str(), address));
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(listener.get(), 5), 0);
  std::thread stranger([&] {
    UniqueFd client(::accept(listener.get(), nullptr, nullptr));
    const std::string text(200, 'x');
    EXPECT_EQ(::write(client.get(), text.data(), text.size()), 200);
    char byte;
    while (::read(client.get(), &byte, 1) == 1) {
    }
  });
  const auto refused = Store::connect(path.str(), 2s);
  stranger.join();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Errc::kProtocol);
}

}  // namespace
}  // namespace lochos
