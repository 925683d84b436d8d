// The measuring loop of `lochos perf bw`, for one size. One thread.
#pragma once

#include "base/error.h"
#include "tools/perf_link.h"
#include "tools/perf_messages.h"
#include "tools/perf_parameters.h"

namespace lochos {

enum class PerfSide : std::uint8_t { kServer, kClient };

// Moves `parameters.iterations` messages of `size` bytes and reports them: on the client its own
// figures (both directions together with --bidirectional), on the server the client's. Both sides
// must call it with the same arguments. `wrong` counts messages with wrong contents on either side.
// Errors: those of PerfLink::idle and of the control connection.
struct PerfOutcome {
  PerfRow row;
  std::uint64_t wrong = 0;
  std::string first_wrong;
};
Result<PerfOutcome> measure_bandwidth(PerfLink& link, const PerfParameters& parameters,
                                      std::uint64_t size, PerfSide side);

// How long the other side may take to get ready for a size.
inline constexpr Duration kBeginTimeout = std::chrono::seconds(8);

// Posts the message that says "no more of this size". False: the queue is full, poll first.
bool post_end_marker(Endpoint& endpoint);

// The server's half of reporting, common to all tests: waits for the client's line.
Result<PerfOutcome> receive_row(PerfLink& link, PerfOutcome own);

}  // namespace lochos
