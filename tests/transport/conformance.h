// The fixture of the conformance suite: hosts, pairs, patterns.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "tests/transport/testbed.h"

namespace lochos {

// Two endpoints of one connection: `a` made it, `b` accepted it.
struct Pair {
  TestHost* a = nullptr;
  TestHost* b = nullptr;
  Endpoint* from_a = nullptr;
  Endpoint* from_b = nullptr;
};

// Registered memory of one host.
struct Memory {
  std::vector<std::byte> bytes;
  std::unique_ptr<Region> region;

  std::byte* data() { return bytes.data(); }
  std::uint64_t address(std::size_t offset = 0) const {
    return region->remote_address(bytes.data() + offset);
  }
  std::uint64_t key() const { return region->remote_key(); }
};

class Conformance : public testing::TestWithParam<Backend> {
 protected:
  void SetUp() override;
  void TearDown() override;

  static TransportOptions small_options();
  TestHost& add_host(const TransportOptions& options = small_options());
  // Lets all hosts take turns until `done()`; false if that takes longer than `limit`.
  bool run_until(const std::function<bool()>& done, Duration limit = std::chrono::seconds(10));
  // Everybody takes turns for this long.
  void run_for(Duration time);

  SocketAddress listen(TestHost& host);
  Pair connect(TestHost& a, TestHost& b);
  // Two new hosts, connected.
  Pair connect();
  Memory memory(TestHost& host, std::size_t bytes);
  Testbed& testbed() { return *testbed_; }
  std::size_t index_of(const TestHost& host) const;

  // The text of why a connection to `address` failed, or "" if it did not within `limit`.
  const Error* connect_failure(TestHost& host, const SocketAddress& address, Duration deadline);

 private:
  std::unique_ptr<Testbed> testbed_;
  std::vector<std::unique_ptr<TestHost>> hosts_;
  std::vector<SocketAddress> listening_;
};

void fill(std::span<std::byte> bytes, std::uint32_t seed);
WorkRequest write_request(Memory& from, Memory& to, std::size_t length, std::uint64_t context);
WorkRequest immediate_request(Memory& from, Memory& to, std::size_t length, std::uint32_t immediate,
                              std::uint64_t context);

}  // namespace lochos
