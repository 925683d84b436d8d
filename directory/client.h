// A TCP connection to the directory that reconnects with back-off and joins again by itself.
// One thread (the engine's), except that heartbeats are sent by a thread of its own so that they
// cannot starve behind a busy engine.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "directory/channel.h"

namespace lochos {

struct DirectoryClientOptions {
  std::string address;  // "host:port"; resolved again at every attempt
  Join join;
  Duration connect_timeout = std::chrono::seconds(2);
  Duration min_backoff = std::chrono::milliseconds(20);
  Duration max_backoff = std::chrono::seconds(1);
};

// Errors: kInvalidArgument for an address that cannot be parsed. An absent directory is no error:
// the channel goes on trying.
Result<std::unique_ptr<DirectoryChannel>> open_directory_client(DirectoryClientOptions options);

}  // namespace lochos
