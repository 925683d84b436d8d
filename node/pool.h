// The node's arena of object memory: one memfd, mapped here and by local clients, cut into size
// classes.
//
// Thread word: engine thread only (`memory()`, `memfd()` and the constants may be read by anyone).
// All pages are reserved when the pool is opened (so that shared memory that is too small is a
// typed error then, not SIGBUS later). Huge pages are used if the system has any free, else
// transparent ones are asked for. The memory is bound to `numa_node` if that is >= 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/error.h"

namespace lochos {

struct PoolOptions {
  std::uint64_t bytes = 1ULL << 30;
  int numa_node = -1;
  bool huge_pages = true;
};

// A piece of the pool. Zero bytes is valid and occupies nothing. Value.
struct Block {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;  // as asked for
};

struct PoolStats {
  std::uint64_t capacity = 0;
  std::uint64_t used = 0;  // allocated, rounded up as the size classes do
  std::uint64_t blocks = 0;
  std::uint64_t huge_page_bytes = 0;
  std::uint64_t largest_free = 0;  // the largest allocation that would work now
};

class Pool {
 public:
  // Errors: kNoSpace (system memory or shared memory limits: names limit, need, and the fix),
  // kInvalidArgument.
  static Result<std::unique_ptr<Pool>> open(const PoolOptions& options);
  virtual ~Pool() = default;

  // Blocks start at multiples of 64 bytes; those of a page or more at multiples of a page.
  // Errors: kNoSpace, naming size, capacity and use.
  virtual Result<Block> allocate(std::uint64_t bytes) = 0;
  virtual void free(const Block& block) = 0;

  virtual std::span<std::byte> memory() const = 0;
  virtual int memfd() const = 0;
  virtual PoolStats stats() const = 0;

  std::span<std::byte> bytes(const Block& block) const {
    return memory().subspan(block.offset, block.bytes);
  }
};

}  // namespace lochos
