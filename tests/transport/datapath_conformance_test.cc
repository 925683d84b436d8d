// The promises of transport.h about data, once each, over every backend.
#include <algorithm>
#include <cstring>
#include <map>
#include <random>

#include "tests/transport/conformance.h"

namespace lochos {
namespace {

using Kind = ConnectionEvent::Kind;
using Status = Completion::Status;

class Datapath : public Conformance {
 protected:
  // Posts `requests` as the endpoint takes them, in order, letting time pass in between.
  bool post_all(Endpoint& endpoint, std::span<const WorkRequest> requests) {
    std::size_t posted = 0;
    return run_until([&] {
      posted += endpoint.post(requests.subspan(posted));
      return posted == requests.size();
    });
  }

  // How often each context came back.
  static std::map<std::uint64_t, int> contexts(const TestHost& host) {
    std::map<std::uint64_t, int> counts;
    for (const Arrival& arrival : host.requests)
      ++counts[arrival.completion.context];
    return counts;
  }

  static void expect_each_once(const TestHost& host, std::size_t count) {
    const auto counts = contexts(host);
    EXPECT_EQ(counts.size(), count);
    for (const auto& [context, times] : counts) {
      EXPECT_EQ(times, 1) << context;
      EXPECT_LT(context, count);
    }
  }

  // As many requests in flight as fit.
  std::size_t fill_queue(Endpoint& endpoint, Memory& from, Memory& to) {
    std::size_t posted = 0;
    for (;;) {
      const WorkRequest request = write_request(from, to, from.bytes.size(), posted);
      if (endpoint.post({&request, 1}) == 0) return posted;
      ++posted;
    }
  }
};

INSTANTIATE_TEST_SUITE_P(, Datapath, testing::ValuesIn(all_backends()),
                         [](const auto& test) { return test.param.name; });

TEST_P(Datapath, MessageArrivesWholeAndItsSenderHearsOfItOnce) {
  Pair pair = connect();
  Memory memory = this->memory(*pair.a, 1000);
  fill(memory.bytes, 1);
  const WorkRequest request{
      .local = memory.data(), .length = 1000, .region = memory.region.get(), .context = 77};
  ASSERT_EQ(pair.from_a->post({&request, 1}), 1U);
  EXPECT_EQ(pair.from_a->outstanding(), 1U);
  ASSERT_TRUE(run_until([&] { return !pair.b->arrivals.empty() && !pair.a->requests.empty(); }));
  const Arrival& arrival = pair.b->arrivals[0];
  EXPECT_EQ(arrival.completion.kind, Completion::Kind::kMessage);
  EXPECT_EQ(arrival.completion.endpoint, pair.from_b);
  EXPECT_EQ(arrival.completion.bytes, 1000U);
  EXPECT_EQ(arrival.message, memory.bytes);
  EXPECT_EQ(pair.a->requests.size(), 1U);
  EXPECT_EQ(pair.a->requests[0].completion.context, 77U);
  EXPECT_EQ(pair.a->requests[0].completion.status, Status::kDone);
  EXPECT_EQ(pair.a->requests[0].completion.endpoint, pair.from_a);
  EXPECT_EQ(pair.from_a->outstanding(), 0U);
}

TEST_P(Datapath, MessageWithoutARegionIsCopiedByPost) {
  Pair pair = connect();
  for (const std::uint64_t length : {std::uint64_t{1}, pair.a->transport().limits().inline_bytes}) {
    std::vector<std::byte> bytes(length);
    fill(bytes, 2);
    const std::vector<std::byte> expected = bytes;
    const WorkRequest request{.local = bytes.data(), .length = length};
    pair.b->arrivals.clear();
    ASSERT_EQ(pair.from_a->post({&request, 1}), 1U);
    std::fill(bytes.begin(), bytes.end(), std::byte{0});
    ASSERT_TRUE(run_until([&] { return !pair.b->arrivals.empty(); }));
    EXPECT_EQ(pair.b->arrivals[0].message, expected);
  }
}

TEST_P(Datapath, MessagesOfEverySizeUpToTheLimit) {
  Pair pair = connect();
  const std::uint64_t limit = pair.a->transport().limits().max_message_bytes;
  ASSERT_GE(limit, 1024U);
  Memory memory = this->memory(*pair.a, limit);
  fill(memory.bytes, 3);
  for (const std::uint64_t length : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{129},
                                     std::uint64_t{1023}, limit - 1, limit}) {
    pair.b->arrivals.clear();
    const WorkRequest request{
        .local = memory.data(), .length = length, .region = memory.region.get()};
    ASSERT_EQ(pair.from_a->post({&request, 1}), 1U);
    ASSERT_TRUE(run_until([&] { return !pair.b->arrivals.empty(); })) << length;
    EXPECT_EQ(pair.b->arrivals[0].completion.kind, Completion::Kind::kMessage);
    EXPECT_TRUE(
        std::ranges::equal(pair.b->arrivals[0].message, std::span(memory.bytes).first(length)))
        << length;
  }
}

TEST_P(Datapath, WriteLandsAndItsImmediateTellsLengthAndEndpoint) {
  Pair pair = connect();
  const std::size_t largest = (1 << 20) + 1;
  Memory from = memory(*pair.a, largest);
  Memory to = memory(*pair.b, largest);
  for (const std::size_t length :
       {std::size_t{1}, std::size_t{127}, std::size_t{128}, std::size_t{129}, std::size_t{4097},
        std::size_t{1} << 16, largest}) {
    fill(from.bytes, static_cast<std::uint32_t>(length));
    pair.b->arrivals.clear();
    const WorkRequest request = immediate_request(from, to, length, 0xfedcba98U, length);
    ASSERT_EQ(pair.from_a->post({&request, 1}), 1U);
    ASSERT_TRUE(run_until([&] { return !pair.b->arrivals.empty(); })) << length;
    const Completion& completion = pair.b->arrivals[0].completion;
    EXPECT_EQ(completion.kind, Completion::Kind::kImmediate);
    EXPECT_EQ(completion.immediate, 0xfedcba98U);
    EXPECT_EQ(completion.bytes, length);
    EXPECT_EQ(completion.endpoint, pair.from_b);
    EXPECT_EQ(std::memcmp(from.data(), to.data(), length), 0) << length;
    ASSERT_TRUE(run_until([&] { return pair.from_a->outstanding() == 0; }));
  }
}

TEST_P(Datapath, ImmediateWithoutBytesNeedsNoMemory) {
  Pair pair = connect();
  std::vector<WorkRequest> requests(200);
  for (std::uint32_t index = 0; index < requests.size(); ++index) {
    requests[index] = {.opcode = Opcode::kWriteImmediate, .immediate = index, .context = index};
  }
  ASSERT_TRUE(post_all(*pair.from_a, requests));
  ASSERT_TRUE(run_until([&] {
    return pair.b->arrivals.size() == requests.size() && pair.from_a->outstanding() == 0;
  }));
  for (std::uint32_t index = 0; index < requests.size(); ++index) {
    EXPECT_EQ(pair.b->arrivals[index].completion.immediate, index);
    EXPECT_EQ(pair.b->arrivals[index].completion.bytes, 0U);
  }
  expect_each_once(*pair.a, requests.size());
}

TEST_P(Datapath, ReadFetchesWhatIsThere) {
  Pair pair = connect();
  Memory local = memory(*pair.a, 100'001);
  Memory remote = memory(*pair.b, 100'001);
  fill(remote.bytes, 4);
  for (const std::size_t length : {std::size_t{1}, std::size_t{100}, std::size_t{100'001}}) {
    std::fill(local.bytes.begin(), local.bytes.end(), std::byte{0});
    pair.a->requests.clear();
    WorkRequest request = write_request(local, remote, length, 5);
    request.opcode = Opcode::kRead;
    ASSERT_EQ(pair.from_a->post({&request, 1}), 1U);
    ASSERT_TRUE(run_until([&] { return !pair.a->requests.empty(); }));
    EXPECT_EQ(pair.a->requests[0].completion.status, Status::kDone);
    EXPECT_EQ(std::memcmp(local.data(), remote.data(), length), 0) << length;
  }
  EXPECT_TRUE(pair.b->arrivals.empty());
}

TEST_P(Datapath, WhatArrivesSaysThatAllEarlierWritesHaveLanded) {
  Pair pair = connect();
  constexpr std::size_t kRounds = 300;
  constexpr std::size_t kBytes = 777;
  Memory from = memory(*pair.a, kRounds * kBytes);
  Memory to = memory(*pair.b, kRounds * kBytes);
  fill(from.bytes, 6);
  std::vector<WorkRequest> requests;
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    WorkRequest write = write_request(from, to, kBytes, 0);
    write.local += round * kBytes;
    write.remote_address = to.address(round * kBytes);
    requests.push_back(write);
    if (round % 3 == 0) {
      requests.push_back({.local = from.data(), .length = 8, .region = from.region.get()});
    } else {
      requests.push_back({.opcode = Opcode::kWriteImmediate, .immediate = round});
    }
  }
  std::size_t posted = 0;
  std::size_t checked = 0;
  pair.b->batch = 1;
  ASSERT_TRUE(run_until([&] {
    posted += pair.from_a->post(std::span<const WorkRequest>(requests).subspan(posted));
    for (; checked < pair.b->arrivals.size(); ++checked) {
      const Completion& completion = pair.b->arrivals[checked].completion;
      EXPECT_EQ(completion.kind == Completion::Kind::kMessage, checked % 3 == 0);
      if (completion.kind == Completion::Kind::kImmediate) {
        EXPECT_EQ(completion.immediate, checked);
      }
      EXPECT_EQ(std::memcmp(from.data(), to.data(), (checked + 1) * kBytes), 0) << checked;
    }
    return checked == kRounds;
  }));
}

TEST_P(Datapath, EveryRequestCompletesOnceInBothDirections) {
  Pair pair = connect();
  constexpr std::size_t kRequests = 2000;
  Memory left = memory(*pair.a, 70'000);
  Memory right = memory(*pair.b, 70'000);
  std::minstd_rand random(7);
  const auto mixture = [&](Memory& from, Memory& to) {
    std::vector<WorkRequest> requests;
    for (std::uint64_t context = 0; context < kRequests; ++context) {
      const std::size_t length = random() % 4 == 0 ? random() % 70'000 : random() % 300;
      switch (random() % 4) {
        case 0:
          requests.push_back({.local = from.data(),
                              .length = length % 4000,
                              .region = from.region.get(),
                              .context = context});
          break;
        case 1:
          requests.push_back(write_request(from, to, length, context));
          break;
        case 2:
          requests.push_back(immediate_request(from, to, length, 1, context));
          break;
        default:
          requests.push_back(write_request(from, to, length + 1, context));
          requests.back().opcode = Opcode::kRead;
          break;
      }
    }
    return requests;
  };
  const auto to_right = mixture(left, right);
  const auto to_left = mixture(right, left);
  pair.a->batch = 3;
  std::size_t posted_right = 0;
  std::size_t posted_left = 0;
  ASSERT_TRUE(run_until(
      [&] {
        posted_right += pair.from_a->post(std::span(to_right).subspan(posted_right));
        posted_left += pair.from_b->post(std::span(to_left).subspan(posted_left));
        return pair.a->requests.size() >= kRequests && pair.b->requests.size() >= kRequests;
      },
      std::chrono::seconds(60)));
  run_for(std::chrono::milliseconds(20));
  expect_each_once(*pair.a, kRequests);
  expect_each_once(*pair.b, kRequests);
  const auto arrive = [](const WorkRequest& request) {
    return request.opcode == Opcode::kSend || request.opcode == Opcode::kWriteImmediate;
  };
  EXPECT_EQ(pair.b->arrivals.size(),
            static_cast<std::size_t>(std::ranges::count_if(to_right, arrive)));
  EXPECT_EQ(pair.a->arrivals.size(),
            static_cast<std::size_t>(std::ranges::count_if(to_left, arrive)));
}

TEST_P(Datapath, PostTakesAtMostTheQueueAndGoesOnLater) {
  Pair pair = connect();
  const std::size_t depth = pair.a->transport().limits().queue_depth;
  Memory from = memory(*pair.a, 1 << 16);
  Memory to = memory(*pair.b, 1 << 16);
  std::vector<WorkRequest> requests;
  for (std::uint64_t context = 0; context < 3 * depth; ++context) {
    requests.push_back(write_request(from, to, 1 << 16, context));
  }
  const std::size_t first = pair.from_a->post(requests);
  EXPECT_GT(first, 0U);
  EXPECT_LE(first, depth);
  EXPECT_EQ(pair.from_a->outstanding(), first);
  ASSERT_TRUE(post_all(*pair.from_a, std::span(requests).subspan(first)));
  ASSERT_TRUE(run_until([&] { return pair.from_a->outstanding() == 0; }));
  expect_each_once(*pair.a, requests.size());
}

TEST_P(Datapath, PeerThatDoesNotPollStopsTheSenderAndLosesNothing) {
  Pair pair = connect();
  pair.b->polls = false;
  std::uint64_t posted = 0;
  const auto post = [&] {
    for (;;) {
      std::array<std::byte, 64> bytes{};
      std::memcpy(bytes.data(), &posted, sizeof posted);
      const WorkRequest request{.local = bytes.data(), .length = bytes.size()};
      if (pair.from_a->post({&request, 1}) == 0) return;
      ++posted;
    }
  };
  // It is stopped once nothing more is taken for a while. TCP has buffers of some megabytes.
  std::uint64_t before = 1;
  for (int round = 0; round < 200 && before != posted; ++round) {
    before = posted;
    const Instant end = testbed().now() + std::chrono::milliseconds(50);
    run_until([&] {
      post();
      return testbed().now() >= end;
    });
  }
  EXPECT_EQ(before, posted) << "the sender was never stopped";
  EXPECT_EQ(pair.a->count(Kind::kClosed), 0U);
  pair.b->polls = true;
  ASSERT_TRUE(
      run_until([&] { return pair.b->arrivals.size() == posted; }, std::chrono::seconds(30)));
  for (std::uint64_t index = 0; index < posted; ++index) {
    std::uint64_t number = 0;
    std::memcpy(&number, pair.b->arrivals[index].message.data(), sizeof number);
    ASSERT_EQ(number, index);
  }
}

TEST_P(Datapath, CloseFlushesWhatIsInFlightAndThenEnds) {
  Pair pair = connect();
  Memory from = memory(*pair.a, 1 << 18);
  Memory to = memory(*pair.b, 1 << 18);
  pair.b->polls = false;
  const std::size_t posted = fill_queue(*pair.from_a, from, to);
  ASSERT_GT(posted, 0U);
  pair.from_a->close();
  pair.from_a->close();
  const WorkRequest late = write_request(from, to, 1, 1000);
  EXPECT_EQ(pair.from_a->post({&late, 1}), 0U);
  ASSERT_TRUE(run_until([&] { return pair.a->find(Kind::kClosed, pair.from_a) != nullptr; }));
  expect_each_once(*pair.a, posted);
  EXPECT_EQ(pair.a->find(Kind::kClosed, pair.from_a)->error.code(), Errc::kClosed);
  pair.b->polls = true;
  ASSERT_TRUE(run_until([&] { return pair.b->find(Kind::kClosed, pair.from_b) != nullptr; }));
  EXPECT_EQ(pair.b->find(Kind::kClosed, pair.from_b)->error.code(), Errc::kConnectionLost);
}

TEST_P(Datapath, KilledPeerFlushesWhatIsInFlightAndThenEnds) {
  Pair pair = connect();
  Memory from = memory(*pair.a, 1 << 18);
  {
    Memory to = memory(*pair.b, 1 << 18);
    pair.b->polls = false;
    const std::size_t posted = fill_queue(*pair.from_a, from, to);
    ASSERT_GT(posted, 0U);
    to.region.reset();
    testbed().kill(*pair.b, index_of(*pair.b));
    ASSERT_TRUE(run_until([&] { return pair.a->find(Kind::kClosed, pair.from_a) != nullptr; }));
    expect_each_once(*pair.a, posted);
  }
  const Error& error = pair.a->find(Kind::kClosed, pair.from_a)->error;
  EXPECT_EQ(error.code(), Errc::kConnectionLost) << error.to_string();
}

TEST_P(Datapath, WrongRemoteMemoryEndsTheEndpointAndHarmsNobodyElse) {
  TestHost& a = add_host();
  TestHost& b = add_host();
  Memory from = memory(a, 4096);
  Memory to = memory(b, 4096);
  fill(from.bytes, 8);
  const std::vector<std::byte> before = to.bytes;
  Pair good = connect(a, b);
  for (const bool wrong_key : {true, false}) {
    Pair bad = connect(a, b);
    WorkRequest request = immediate_request(from, to, 4096, 1, 0);
    if (wrong_key) {
      request.remote_key ^= 0x5a5a5a;
    } else {
      request.remote_address += 1;  // one byte too far
    }
    ASSERT_EQ(bad.from_a->post({&request, 1}), 1U);
    ASSERT_TRUE(run_until([&] { return a.find(Kind::kClosed, bad.from_a) != nullptr; }));
    EXPECT_EQ(a.find(Kind::kClosed, bad.from_a)->error.code(), Errc::kConnectionLost);
    EXPECT_TRUE(b.arrivals.empty());
    EXPECT_EQ(to.bytes, before);
  }
  const WorkRequest request = immediate_request(from, to, 4096, 1, 0);
  ASSERT_EQ(good.from_a->post({&request, 1}), 1U);
  ASSERT_TRUE(run_until([&] { return !b.arrivals.empty(); }));
  EXPECT_EQ(to.bytes, from.bytes);
}

TEST_P(Datapath, RegionsComeAndGo) {
  Pair pair = connect();
  for (std::uint32_t round = 0; round < 20; ++round) {
    Memory from = memory(*pair.a, 1 + round * 1000);
    Memory to = memory(*pair.b, 1 + round * 1000);
    EXPECT_EQ(from.region->memory().data(), from.data());
    fill(from.bytes, round);
    pair.b->arrivals.clear();
    const WorkRequest request = immediate_request(from, to, from.bytes.size(), round, round);
    ASSERT_EQ(pair.from_a->post({&request, 1}), 1U);
    ASSERT_TRUE(
        run_until([&] { return !pair.b->arrivals.empty() && pair.from_a->outstanding() == 0; }));
    EXPECT_EQ(from.bytes, to.bytes);
  }
}

TEST_P(Datapath, ManyEndpointsAreToldApart) {
  constexpr std::size_t kEndpoints = 24;
  TestHost& a = add_host();
  TestHost& b = add_host();
  std::vector<Pair> pairs;
  for (std::size_t index = 0; index < kEndpoints; ++index)
    pairs.push_back(connect(a, b));
  Memory from = memory(a, 1024);
  Memory to = memory(b, 1024);
  for (std::uint32_t round = 0; round < 20; ++round) {
    b.arrivals.clear();
    for (std::uint32_t index = 0; index < kEndpoints; ++index) {
      const std::array<WorkRequest, 2> requests{
          immediate_request(from, to, 1 + index * 20, index, index),
          WorkRequest{.local = from.data(), .length = 1 + index, .context = index}};
      ASSERT_EQ(pairs[index].from_a->post(requests), 2U);
    }
    ASSERT_TRUE(run_until([&] { return b.arrivals.size() == 2 * kEndpoints; })) << round;
    for (const Arrival& arrival : b.arrivals) {
      const Completion& completion = arrival.completion;
      const std::size_t index = completion.kind == Completion::Kind::kImmediate
                                    ? completion.immediate
                                    : arrival.message.size() - 1;
      EXPECT_EQ(completion.endpoint, pairs[index].from_b);
    }
    ASSERT_TRUE(run_until([&] {
      return std::ranges::all_of(pairs, [](Pair& p) { return p.from_a->outstanding() == 0; });
    }));
  }
}

}  // namespace
}  // namespace lochos
