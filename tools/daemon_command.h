// The two processes that stay: `lochos directory` and `lochos node`.
#pragma once

#include "tools/context.h"

namespace lochos {
void add_directory_command(CLI::App& app, Context& context);
void add_node_command(CLI::App& app, Context& context);
}  // namespace lochos
