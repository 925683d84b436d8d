// The node's arena of object memory: one memfd, mapped here and by local clients, cut into size
// classes.
//
// Thread word: engine thread only (`memory()`, `memfd()` and `mapping()` may be used by anyone).
//
// Pages are reserved before a block on them is given out: memory that is too small is a typed error
// of open() (the pool exceeds what system and control group have left) or of allocate() (somebody
// else took it meanwhile), never SIGBUS. They are reserved in steps as use first grows, so that an
// idle node is small; reserve() takes them all. A page once reserved stays so until the pool goes.
// Huge pages are used if the system has enough free, else transparent ones are asked for. The
// memory is preferred on `numa_node` if that is >= 0.
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

// The pool's memory as it is mapped into this process. Whoever shares it keeps it mapped, also when
// the pool is gone. Resource.
class PoolMapping {
 public:
  explicit PoolMapping(std::span<std::byte> memory) : memory_(memory) {}
  ~PoolMapping();
  PoolMapping(const PoolMapping&) = delete;
  PoolMapping& operator=(const PoolMapping&) = delete;

  std::span<std::byte> memory() const { return memory_; }

 private:
  const std::span<std::byte> memory_;
};

struct PoolStats {
  std::uint64_t capacity = 0;
  std::uint64_t used = 0;  // allocated, rounded up as the size classes do
  std::uint64_t blocks = 0;
  std::uint64_t reserved = 0;         // pages that the system has set aside for the pool
  std::uint64_t huge_page_bytes = 0;  // of the capacity, in pages of hugetlbfs
  std::uint64_t largest_free = 0;     // an allocation of any size up to this would work now
};

class Pool {
 public:
  // Errors: kNoSpace (system memory or shared memory limits: names limit, need, and the fix),
  // kInvalidArgument.
  static Result<std::unique_ptr<Pool>> open(const PoolOptions& options);
  virtual ~Pool() = default;

  // Blocks start at multiples of 64 bytes; those of a page or more at multiples of a page.
  // Errors: kNoSpace, naming size, capacity and use (or the system's limit, need and the fix).
  virtual Result<Block> allocate(std::uint64_t bytes) = 0;
  // REQUIRES: `block` came from allocate() and was not freed since.
  virtual void free(const Block& block) = 0;

  // Reserves all pages now. Call it before the memory is registered with a transport that pins it
  // (verbs): the registration would take the pages too, but fail without a useful reason.
  // Errors: kNoSpace.
  virtual Status reserve() = 0;

  virtual std::span<std::byte> memory() const = 0;
  virtual std::shared_ptr<const PoolMapping> mapping() const = 0;
  virtual int memfd() const = 0;
  virtual PoolStats stats() const = 0;

  std::span<std::byte> bytes(const Block& block) const {
    return memory().subspan(block.offset, block.bytes);
  }
};

}  // namespace lochos
