#include "tools/commands.h"

#include "tools/daemon_command.h"
#include "tools/demo_command.h"
#include "tools/info_command.h"
#include "tools/perf_command.h"
#include "tools/reduce_command.h"
#include "tools/store_command.h"

namespace lochos {

void add_all_commands(CLI::App& app, Context& context) {
  add_directory_command(app, context);
  add_node_command(app, context);
  add_put_command(app, context);
  add_get_command(app, context);
  add_ls_command(app, context);
  add_stat_command(app, context);
  add_rm_command(app, context);
  add_wait_command(app, context);
  add_reduce_command(app, context);
  add_info_command(app, context);
  add_doctor_command(app, context);
  add_demo_command(app, context);
  add_perf_command(app, context);
}

}  // namespace lochos
