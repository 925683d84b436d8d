// The measuring loop of `lochos perf lat`, for one size. One thread.
#pragma once

#include "base/error.h"
#include "tools/perf_bandwidth.h"

namespace lochos {

// Sends a message there and back `parameters.iterations` times, after a short warm-up, and reports
// half the round trip, as perftest does; a read is the whole of it, there is no other half. A write
// announces itself with an immediate, so that neither side needs to watch its memory.
// Both sides must call it with the same arguments. Errors: as measure_bandwidth().
Result<PerfOutcome> measure_latency(PerfLink& link, const PerfParameters& parameters,
                                    std::uint64_t size, PerfSide side);

}  // namespace lochos
