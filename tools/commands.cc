#include "tools/commands.h"

#include "tools/perf_command.h"

namespace lochos {

void add_all_commands(CLI::App& app, Context& context) {
  add_perf_command(app, context);
}

}  // namespace lochos
