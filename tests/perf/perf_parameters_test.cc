#include "tools/perf_parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/perf_messages.h"
#include "tools/perf_session.h"

namespace lochos {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(PerfParameters, AServerAdoptsWhatItWasNotTold) {
  PerfGiven client;
  client.sizes = std::vector<std::uint64_t>{4096};
  client.depth = 7;
  client.verify = true;
  const PerfParameters wanted = with_defaults(PerfTest::kBandwidth, client);
  auto agreed = agree(PerfTest::kBandwidth, {}, wanted);
  ASSERT_TRUE(agreed) << agreed.error().to_string();
  EXPECT_EQ(agreed->sizes, *client.sizes);
  EXPECT_EQ(agreed->depth, 7U);
  EXPECT_EQ(agreed->op, PerfOp::kWrite);
  EXPECT_TRUE(agreed->verify);
}

TEST(PerfParameters, EveryDifferenceIsNamed) {
  PerfGiven server;
  server.op = PerfOp::kSend;
  server.iterations = 10;
  server.sizes = std::vector<std::uint64_t>{64};
  server.verify = true;
  PerfGiven client;
  client.sizes = std::vector<std::uint64_t>{64};
  auto agreed = agree(PerfTest::kBandwidth, server, with_defaults(PerfTest::kBandwidth, client));
  ASSERT_FALSE(agreed);
  EXPECT_EQ(agreed.error().code(), Errc::kUnsupported);
  EXPECT_THAT(agreed.error().message(),
              AllOf(HasSubstr("--op send on the server, write on the client"),
                    HasSubstr("--iterations 10"), HasSubstr("--verify"), Not(HasSubstr("--size"))));
}

TEST(PerfParameters, AnotherTestIsRefused) {
  EXPECT_FALSE(agree(PerfTest::kLatency, {}, with_defaults(PerfTest::kBandwidth, {})));
}

TEST(PerfParameters, ImpossibleOnesAreRefused) {
  PerfParameters parameters = with_defaults(PerfTest::kLatency, {});
  EXPECT_TRUE(check(parameters));
  parameters.bidirectional = true;
  EXPECT_FALSE(check(parameters));
  parameters = with_defaults(PerfTest::kBandwidth, {});
  parameters.sizes = {0};
  EXPECT_FALSE(check(parameters));
  parameters.sizes = {kMaxPerfMessageBytes + 1};
  EXPECT_FALSE(check(parameters));
}

TEST(PerfMessages, SurviveTheWire) {
  PerfOffer offer{with_defaults(PerfTest::kBandwidth, {}), true, false, "none"};
  offer.parameters.sizes = all_perf_sizes();
  auto decoded = decode_perf_message(encode(offer));
  ASSERT_TRUE(decoded);
  const auto* same = std::get_if<PerfOffer>(&*decoded);
  ASSERT_NE(same, nullptr);
  EXPECT_EQ(same->parameters.sizes, offer.parameters.sizes);
  EXPECT_TRUE(same->verbs);
  EXPECT_EQ(same->why_no_verbs, "none");
}

// A misaligned read is an error under UBSan only.
TEST(PerfMessages, AreReadWhereverTheyLie) {
  const std::vector<std::byte> bytes = encode(PerfRow{64, 10, {1, 2, 3, 4}});
  std::vector<std::byte> buffer(bytes.size() + 8);
  for (std::size_t offset = 0; offset < 8; ++offset) {
    std::copy(bytes.begin(), bytes.end(), buffer.begin() + static_cast<std::ptrdiff_t>(offset));
    auto decoded = decode_perf_message(std::span(buffer).subspan(offset, bytes.size()));
    ASSERT_TRUE(decoded);
    const auto* row = std::get_if<PerfRow>(&*decoded);
    ASSERT_NE(row, nullptr);
    EXPECT_EQ(row->figures, (std::vector<double>{1, 2, 3, 4}));
  }
}

TEST(PerfMessages, GarbageAndImpossibleOffersAreRefused) {
  std::vector<std::byte> bytes = encode(PerfRow{64, 10, {1, 2, 3, 4}});
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    auto decoded = decode_perf_message(std::span(bytes).first(length));
    if (!decoded) {
      EXPECT_EQ(decoded.error().code(), Errc::kProtocol);
    }
  }
  PerfOffer offer{with_defaults(PerfTest::kBandwidth, {}), true, true, ""};
  offer.parameters.depth = kMaxPerfDepth + 1;
  EXPECT_FALSE(decode_perf_message(encode(offer)));
}

TEST(PerfTransport, VerbsIfBothCan) {
  auto choice = choose_perf_transport(true, "", true, true, "", true);
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->kind, TransportKind::kVerbs);
}

TEST(PerfTransport, ElseTcpWithTheReason) {
  auto choice = choose_perf_transport(true, "", true, false, "no device", true);
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->kind, TransportKind::kTcp);
  EXPECT_THAT(choice->reason, HasSubstr("no device"));
}

TEST(PerfTransport, VerbsAloneDoesNotFallBack) {
  auto choice = choose_perf_transport(false, "asked for TCP", true, true, "", false);
  ASSERT_FALSE(choice);
  EXPECT_THAT(choice.error().message(), HasSubstr("asked for TCP"));
}

}  // namespace
}  // namespace lochos
