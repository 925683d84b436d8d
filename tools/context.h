// What every subcommand of `lochos` gets: the configuration, and the place to say what to do once
// the whole command line has been read. Main thread only.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "tools/config.h"

namespace CLI {
class App;
}

namespace lochos {

// Exit statuses of the command.
inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;

struct Context {
  // Flags of configurable options, by key, as they were written on the command line.
  std::map<std::string, std::string, std::less<>> flags;
  std::string config_file;                     // --config; empty: not given
  std::vector<std::string> environment_names;  // of all variables, for `lochos doctor`
  // Complete before `run` is called: flags, environment, file and defaults, in this order.
  Config config;
  // What the subcommand found on the command line does; gives the exit status. An Error becomes
  // one line on standard error and status 1 (2 for kInvalidArgument: the user's input was wrong).
  std::function<Result<int>()> run;
};

}  // namespace lochos
