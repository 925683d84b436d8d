// `lochos reduce`: one object from many, element by element.
#pragma once

#include "tools/context.h"

namespace lochos {
void add_reduce_command(CLI::App& app, Context& context);
}
