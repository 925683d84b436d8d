// `lochos perf bcast` and the collective operations after it.
#pragma once

#include "tools/context.h"

namespace lochos {
void add_collective_commands(CLI::App& perf, Context& context);
}
