// `lochos perf`: measures bandwidth, latency and broadcast time.
#pragma once

#include "tools/context.h"

namespace lochos {
void add_perf_command(CLI::App& app, Context& context);
}
