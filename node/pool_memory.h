// The pool's pages: a memfd, its mapping, and how much of it the system has really set aside.
// One thread; the mapping may be shared with others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/error.h"
#include "base/unique_fd.h"
#include "node/pool.h"

namespace lochos {

enum class Access { kReadOnly, kReadWrite };

// Maps `bytes` of a pool's memfd, so aligned that huge pages can be used. A write through a
// kReadOnly mapping is a SIGSEGV of the writer. Errors: kNoSpace (address space), kSystem.
Result<std::shared_ptr<const PoolMapping>> map_pool(int memfd, std::uint64_t bytes, Access access);

class PoolMemory {
 public:
  static Result<PoolMemory> open(const PoolOptions& options);

  // Sets aside the pages of [0, end), and some more, so that this is not called for every block.
  // Pages that are set aside can be touched by any process that maps them without a SIGBUS.
  // Errors: kNoSpace; what was set aside before stays so.
  Status reserve(std::uint64_t end);

  std::uint64_t bytes() const { return mapping_->memory().size(); }
  std::uint64_t reserved() const { return reserved_; }
  bool huge() const { return huge_; }
  int memfd() const { return memfd_.get(); }
  const std::shared_ptr<const PoolMapping>& mapping() const { return mapping_; }

 private:
  PoolMemory(UniqueFd memfd, std::shared_ptr<const PoolMapping> mapping, bool huge)
      : memfd_(std::move(memfd)), mapping_(std::move(mapping)), huge_(huge) {}

  Status check_left(std::uint64_t need) const;
  Status populate(std::uint64_t end);

  UniqueFd memfd_;
  std::shared_ptr<const PoolMapping> mapping_;
  bool huge_ = false;
  std::uint64_t reserved_ = 0;
};

}  // namespace lochos
