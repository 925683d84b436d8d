#include "tools/perf_command.h"

#include "tools/options.h"

namespace lochos {

void add_perf_command(CLI::App& app, Context&) {
  add_command(app, "perf", "Measure bandwidth, latency and broadcast time", "");
}

}  // namespace lochos
