// Every subcommand of `lochos`, registered in the order that --help shows.
#pragma once

#include "tools/context.h"

namespace lochos {
void add_all_commands(CLI::App& app, Context& context);
}
