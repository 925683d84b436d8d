// The promises of transport.h about data, once each, over every backend.
#include <algorithm>
#include <cstring>
#include <set>

#include "tests/transport/conformance.h"

namespace lochos {
namespace {

using Kind = ConnectionEvent::Kind;
using Status = Completion::Status;

class Datapath : public Conformance {};
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

TEST_P(Datapath, WriteLandsAndItsImmediateTellsLengthAndEndpoint) {
  Pair pair = connect();
  Memory from = memory(*pair.a, 1 << 16);
  Memory to = memory(*pair.b, 1 << 16);
  for (const std::size_t length : {std::size_t{1}, std::size_t{127}, std::size_t{128},
                                   std::size_t{129}, std::size_t{4097}, std::size_t{1} << 16}) {
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

}  // namespace
}  // namespace lochos
