// A programmer's error ends the process, in every build. Never for what a peer, a device or a user
// can cause: those are `Error`s. Thread-safe.
#pragma once

namespace lochos {
[[noreturn]] void check_failed(const char* condition, const char* file, int line);
}

#define LOCHOS_CHECK(condition)                               \
  do {                                                        \
    if (!(condition)) [[unlikely]]                            \
      ::lochos::check_failed(#condition, __FILE__, __LINE__); \
  } while (false)
