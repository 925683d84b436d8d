// What one run of `lochos perf bw|lat` measures, and how the two sides agree on it. Values; use
// anywhere.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace lochos {

enum class PerfTest : std::uint8_t { kBandwidth = 1, kLatency = 2 };
enum class PerfOp : std::uint8_t { kWrite = 1, kSend = 2, kRead = 3 };

std::string_view to_string(PerfTest test);  // "bw"
std::string_view to_string(PerfOp op);      // "write"

struct PerfParameters {
  PerfTest test = PerfTest::kBandwidth;
  PerfOp op = PerfOp::kWrite;
  std::vector<std::uint64_t> sizes;  // bytes of one message, in the order of measuring
  std::uint64_t iterations = 0;      // messages of each size
  std::uint64_t depth = 0;           // messages under way at once; bandwidth only
  bool events = false;               // sleep while there is nothing to do, instead of polling
  bool bidirectional = false;        // bandwidth only: both sides send
  bool verify = false;               // check the contents of every message
};

// Bounds what a stranger can make a server allocate.
inline constexpr std::uint64_t kMaxPerfMessageBytes = 1ULL << 30;
inline constexpr std::uint64_t kMaxPerfIterations = 100'000'000;
inline constexpr std::uint64_t kMaxPerfDepth = 8192;

// 2 bytes to 8 MiB, the powers of two.
std::vector<std::uint64_t> all_perf_sizes();

// What a user wrote on one side; the rest is open.
struct PerfGiven {
  std::optional<PerfOp> op;
  std::optional<std::vector<std::uint64_t>> sizes;
  std::optional<std::uint64_t> iterations;
  std::optional<std::uint64_t> depth;
  bool events = false;
  bool bidirectional = false;
  bool verify = false;
};

// The client's parameters: what was given, and the defaults of perftest for the rest.
PerfParameters with_defaults(PerfTest test, const PerfGiven& given);

// Errors: kInvalidArgument for what no run can be (sizes out of range, a bidirectional latency).
Status check(const PerfParameters& parameters);

// What the server does with a client's wish: it adopts everything that was left open on its own
// command line. Completion mode is each side's own affair: it sleeps if either says so.
// Errors: kUnsupported, naming every option that was given differently on the two sides.
Result<PerfParameters> agree(PerfTest test, const PerfGiven& server, const PerfParameters& client);

}  // namespace lochos
