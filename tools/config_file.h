// Reads the TOML file of options into plain entries; knows nothing of which keys are valid. Values;
// use anywhere.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"

namespace lochos {

struct ConfigFileEntry {
  std::string key;    // "socket", "node.pool"
  std::string text;   // as a user would write it behind the flag: numbers and booleans too
  std::string where;  // "/etc/lochos/lochos.toml:7"
};

bool file_exists(const std::string& path);

// Entries in the order of the file's lines. Errors: kNotFound, kPermission, kSystem for a file that
// cannot be read; kInvalidArgument with file:line for text that is no TOML, or a value that is
// neither text, number nor boolean.
Result<std::vector<ConfigFileEntry>> read_config_file(const std::string& path);

}  // namespace lochos
