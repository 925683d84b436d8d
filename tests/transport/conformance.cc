#include "tests/transport/conformance.h"

#include <algorithm>
#include <random>

namespace lochos {

void Conformance::SetUp() {
  auto testbed = GetParam().open();
  // Only a device can be missing; anything else that keeps a backend from opening is a failure. The
  // Soft-RoCE lab, where the device is, takes a skipped case for a failed one.
  if (!testbed && GetParam().needs_device && testbed.error().code() == Errc::kUnsupported)
    GTEST_SKIP() << testbed.error().to_string();
  ASSERT_TRUE(testbed) << testbed.error().to_string();
  testbed_ = std::move(*testbed);
}

void Conformance::TearDown() {
  for (const auto& host : hosts_)
    EXPECT_EQ(host->disorder, "");
  hosts_.clear();
}

TransportOptions Conformance::small_options() {
  TransportOptions options;
  options.queue_depth = 32;
  options.receive_buffer_bytes = 4096;
  options.receive_buffers = 16;
  return options;
}

TestHost& Conformance::add_host(const TransportOptions& options) {
  auto transport = testbed_->open(hosts_.size(), options);
  if (!transport) throw std::runtime_error(transport.error().to_string());
  listening_.emplace_back();
  return *hosts_.emplace_back(std::make_unique<TestHost>(std::move(*transport)));
}

bool Conformance::run_until(const std::function<bool()>& done, Duration limit) {
  const Instant deadline = saturating_add(testbed_->now(), limit);
  std::vector<TestHost*> hosts;
  for (const auto& host : hosts_)
    hosts.push_back(host.get());
  while (!done()) {
    bool any = false;
    for (TestHost* host : hosts)
      any |= host->turn(testbed_->now());
    if (any) continue;
    if (testbed_->now() >= deadline) return false;
    testbed_->idle(hosts, deadline);
  }
  return true;
}

void Conformance::run_for(Duration time) {
  run_until([] { return false; }, time);
}

std::size_t Conformance::index_of(const TestHost& host) const {
  return static_cast<std::size_t>(
      std::find_if(hosts_.begin(), hosts_.end(),
                   [&](const auto& item) { return item.get() == &host; }) -
      hosts_.begin());
}

SocketAddress Conformance::listen(TestHost& host) {
  SocketAddress& address = listening_[index_of(host)];
  if (address.port() != 0) return address;
  auto result = host.transport().listen(testbed_->address(index_of(host)));
  if (!result) throw std::runtime_error(result.error().to_string());
  return address = *result;
}

Pair Conformance::connect(TestHost& a, TestHost& b) {
  const SocketAddress address = listen(b);
  Pair pair{.a = &a, .b = &b};
  const std::size_t seen = b.events.size();
  pair.from_a = a.transport().connect(address, testbed_->now() + std::chrono::seconds(5));
  EXPECT_TRUE(run_until([&] {
    for (std::size_t index = seen; index < b.events.size(); ++index) {
      if (b.events[index].kind == ConnectionEvent::Kind::kEstablished && b.events[index].incoming) {
        pair.from_b = b.events[index].endpoint;
      }
    }
    return pair.from_b != nullptr &&
           a.find(ConnectionEvent::Kind::kEstablished, pair.from_a) != nullptr;
  }));
  return pair;
}

Pair Conformance::connect() {
  TestHost& a = add_host();
  return connect(a, add_host());
}

Memory Conformance::memory(TestHost& host, std::size_t bytes) {
  Memory memory;
  memory.bytes.resize(bytes);
  auto region = host.transport().register_memory(memory.bytes);
  if (!region) throw std::runtime_error(region.error().to_string());
  memory.region = std::move(*region);
  return memory;
}

const Error* Conformance::connect_failure(TestHost& host, const SocketAddress& address,
                                          Duration deadline) {
  const Endpoint* endpoint = host.transport().connect(address, testbed_->now() + deadline);
  const ConnectionEvent* event = nullptr;
  run_until([&] {
    event = host.find(ConnectionEvent::Kind::kFailed, endpoint);
    return event != nullptr || host.find(ConnectionEvent::Kind::kEstablished, endpoint) != nullptr;
  });
  return event == nullptr ? nullptr : &event->error;
}

void fill(std::span<std::byte> bytes, std::uint32_t seed) {
  std::minstd_rand random(seed + 1);
  for (std::byte& byte : bytes)
    byte = static_cast<std::byte>(random());
}

WorkRequest write_request(Memory& from, Memory& to, std::size_t length, std::uint64_t context) {
  return {.opcode = Opcode::kWrite,
          .local = from.data(),
          .length = length,
          .region = from.region.get(),
          .remote_address = to.address(),
          .remote_key = to.key(),
          .context = context};
}

WorkRequest immediate_request(Memory& from, Memory& to, std::size_t length, std::uint32_t immediate,
                              std::uint64_t context) {
  WorkRequest request = write_request(from, to, length, context);
  request.opcode = Opcode::kWriteImmediate;
  request.immediate = immediate;
  return request;
}

}  // namespace lochos
