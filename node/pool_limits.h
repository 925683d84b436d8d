// How much memory this process may still take: what the system has left, and what its control
// groups (version 1 and 2, every level) leave of their limits. Thread-safe; reads files of /proc
// and /sys.
#pragma once

#include <cstdint>
#include <string>

namespace lochos {

struct MemoryLeft {
  std::uint64_t bytes = 0;
  std::string limited_by;  // "memory of this machine", or the control group's limit file
};

// The smallest of all limits. `root` stands before every path (tests). A file that cannot be read
// limits nothing.
MemoryLeft memory_left(const std::string& root = "");

// Free, unreserved huge pages of 2 MiB, in bytes.
std::uint64_t free_huge_page_bytes(const std::string& root = "");

}  // namespace lochos
