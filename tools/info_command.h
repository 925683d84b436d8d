// `lochos info` and `lochos doctor`: what this host offers, and what stops it.
#pragma once

#include "tools/context.h"

namespace lochos {
void add_info_command(CLI::App& app, Context& context);
void add_doctor_command(CLI::App& app, Context& context);
}  // namespace lochos
