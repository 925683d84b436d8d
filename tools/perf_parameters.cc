#include "tools/perf_parameters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>

#include "base/units.h"

namespace lochos {
namespace {

std::string describe(const std::vector<std::uint64_t>& sizes) {
  if (sizes.size() == 1) return format_size(sizes.front());
  return fmt::format("{} sizes from {} to {}", sizes.size(), format_size(sizes.front()),
                     format_size(sizes.back()));
}

}  // namespace

std::string_view to_string(PerfTest test) {
  return test == PerfTest::kBandwidth ? "bw" : "lat";
}

std::string_view to_string(PerfOp op) {
  switch (op) {
    case PerfOp::kWrite:
      return "write";
    case PerfOp::kSend:
      return "send";
    case PerfOp::kRead:
      return "read";
  }
  return "unknown";
}

std::vector<std::uint64_t> all_perf_sizes() {
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t size = 2; size <= (8U << 20); size *= 2)
    sizes.push_back(size);
  return sizes;
}

PerfParameters with_defaults(PerfTest test, const PerfGiven& given) {
  const bool bandwidth = test == PerfTest::kBandwidth;
  PerfParameters parameters;
  parameters.test = test;
  parameters.op = given.op.value_or(bandwidth ? PerfOp::kWrite : PerfOp::kSend);
  parameters.sizes = given.sizes.value_or(std::vector<std::uint64_t>{bandwidth ? 65536U : 2U});
  parameters.iterations = given.iterations.value_or(bandwidth ? 5000 : 1000);
  parameters.depth = bandwidth ? given.depth.value_or(128) : 1;
  parameters.events = given.events;
  parameters.bidirectional = given.bidirectional;
  parameters.verify = given.verify;
  return parameters;
}

Status check(const PerfParameters& parameters) {
  if (parameters.sizes.empty() || parameters.sizes.size() > 64)
    return fail(Errc::kInvalidArgument, "between 1 and 64 sizes can be measured in one run");
  for (const std::uint64_t size : parameters.sizes) {
    if (size < 1 || size > kMaxPerfMessageBytes) {
      return fail(Errc::kInvalidArgument,
                  fmt::format("a message of {} cannot be measured; the limits are 1 B and {}",
                              format_size(size), format_size(kMaxPerfMessageBytes)));
    }
  }
  if (parameters.iterations < 1 || parameters.iterations > kMaxPerfIterations) {
    return fail(Errc::kInvalidArgument, fmt::format("{} iterations; the limits are 1 and {}",
                                                    parameters.iterations, kMaxPerfIterations));
  }
  if (parameters.depth < 1 || parameters.depth > kMaxPerfDepth) {
    return fail(Errc::kInvalidArgument, fmt::format("a depth of {}; the limits are 1 and {}",
                                                    parameters.depth, kMaxPerfDepth));
  }
  if (parameters.bidirectional && parameters.test == PerfTest::kLatency)
    return fail(Errc::kInvalidArgument, "a latency is always measured in both directions");
  return {};
}

Result<PerfParameters> agree(PerfTest test, const PerfGiven& server, const PerfParameters& client) {
  std::vector<std::string> differences;
  const auto differ = [&](std::string_view option, const auto& ours, const auto& theirs) {
    differences.push_back(
        fmt::format("{} {} on the server, {} on the client", option, ours, theirs));
  };
  if (test != client.test) differ("perf", to_string(test), to_string(client.test));
  if (server.op && *server.op != client.op)
    differ("--op", to_string(*server.op), to_string(client.op));
  if (server.sizes && *server.sizes != client.sizes)
    differ("--size", describe(*server.sizes), describe(client.sizes));
  if (server.iterations && *server.iterations != client.iterations)
    differ("--iterations", *server.iterations, client.iterations);
  if (server.depth && *server.depth != client.depth) differ("--depth", *server.depth, client.depth);
  if (server.bidirectional && !client.bidirectional) differ("--bidirectional", "yes", "no");
  if (server.verify && !client.verify) differ("--verify", "yes", "no");
  if (!differences.empty()) {
    return fail(
        Error(Errc::kUnsupported, fmt::format("the two sides were given different options: {}",
                                              fmt::join(differences, "; ")))
            .with_fix("give options to the client alone, the server adopts them"));
  }
  PerfParameters agreed = client;
  agreed.events = client.events || server.events;
  return agreed;
}

}  // namespace lochos
