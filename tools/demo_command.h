// `lochos demo`: a small cluster on this machine, a broadcast, a killed receiver, a table.
#pragma once

#include "tools/context.h"

namespace lochos {
void add_demo_command(CLI::App& app, Context& context);
}
