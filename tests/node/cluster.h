// A directory and some embedded nodes on loopback, inside the test's process.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "directory/server.h"
#include "node/node.h"

namespace lochos {

class DirectoryThread {
 public:
  explicit DirectoryThread(std::uint16_t port = 0, Duration dead_after = std::chrono::seconds(5)) {
    DirectoryOptions options;
    options.listen = SocketAddress::parse("127.0.0.1:" + std::to_string(port)).value();
    options.dead_after = dead_after;
    auto opened = DirectoryServer::open(options);
    EXPECT_TRUE(opened) << opened.error().to_string();
    server_ = std::move(*opened);
    thread_ = std::thread([this] { EXPECT_TRUE(server_->run()); });
  }
  ~DirectoryThread() {
    server_->stop();
    thread_.join();
  }
  std::string address() const { return server_->address().to_string(); }
  std::uint16_t port() const { return server_->address().port(); }

 private:
  std::unique_ptr<DirectoryServer> server_;
  std::thread thread_;
};

class Cluster {
 public:
  explicit Cluster(std::size_t nodes, std::uint64_t pool_bytes = 64ULL << 20)
      : directory_(std::make_unique<DirectoryThread>()),
        address_(directory_->address()),
        pool_bytes_(pool_bytes) {
    for (std::size_t i = 0; i < nodes; ++i)
      add_node();
  }
  // Nodes leave while the directory still listens.
  ~Cluster() { nodes_.clear(); }

  Store& add_node() {
    NodeOptions options;
    options.directory = address_;
    options.name = "node" + std::to_string(nodes_.size());
    options.pool_bytes = pool_bytes_;
    options.listen = "127.0.0.1:0";
    options.transport = TransportPolicy::kTcp;
    auto started = Node::start(options);
    EXPECT_TRUE(started) << started.error().to_string();
    nodes_.push_back(std::move(*started));
    const Status joined = nodes_.back()->wait_until_joined(std::chrono::seconds(10));
    EXPECT_TRUE(joined) << joined.error().to_string();
    stores_.push_back(std::make_unique<Store>(nodes_.back()->store()));
    return *stores_.back();
  }

  Store& store(std::size_t index) { return *stores_.at(index); }
  Node& node(std::size_t index) { return *nodes_.at(index); }
  // The node leaves: its copies are gone.
  void stop_node(std::size_t index) { nodes_.at(index).reset(); }
  void stop_directory() { directory_.reset(); }
  void restart_directory(std::uint16_t port) {
    directory_ = std::make_unique<DirectoryThread>(port);
  }
  std::uint16_t directory_port() const { return directory_->port(); }
  const std::string& directory_address() const { return address_; }

 private:
  std::unique_ptr<DirectoryThread> directory_;
  std::string address_;
  std::uint64_t pool_bytes_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<std::unique_ptr<Store>> stores_;
};

// Bytes that differ at every position and by seed, so that a shifted or mixed object is noticed.
inline std::vector<std::byte> pattern(std::uint64_t size, std::uint64_t seed) {
  std::vector<std::byte> bytes(size);
  std::uint64_t state = seed * 0x9E3779B97F4A7C15ULL + 1;
  for (std::byte& byte : bytes) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    byte = static_cast<std::byte>(state);
  }
  return bytes;
}

inline bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin());
}

#define ASSERT_OK(expression)                                        \
  do {                                                               \
    const auto& result_ = (expression);                              \
    ASSERT_TRUE(result_.has_value()) << result_.error().to_string(); \
  } while (false)
#define EXPECT_ERROR(expression, errc)                                         \
  do {                                                                         \
    const auto& result_ = (expression);                                        \
    if (result_.has_value()) {                                                 \
      ADD_FAILURE() << "no error, but " << to_string(errc) << " was expected"; \
    } else {                                                                   \
      EXPECT_EQ(result_.error().code(), errc) << result_.error().to_string();  \
    }                                                                          \
  } while (false)

}  // namespace lochos
