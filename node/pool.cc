#include "node/pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "base/units.h"
#include "node/pool_memory.h"
#include "node/pool_ranges.h"
#include "node/pool_size_classes.h"
#include "node/pool_slabs.h"

namespace lochos {
namespace {

class MemfdPool final : public Pool {
 public:
  explicit MemfdPool(PoolMemory memory)
      : memory_(std::move(memory)), ranges_(memory_.bytes() / kPageBytes), slabs_(ranges_) {}

  Result<Block> allocate(std::uint64_t bytes) override;
  void free(const Block& block) override;
  Status reserve() override { return memory_.reserve(memory_.bytes()); }

  std::span<std::byte> memory() const override { return memory_.mapping()->memory(); }
  std::shared_ptr<const PoolMapping> mapping() const override { return memory_.mapping(); }
  int memfd() const override { return memory_.memfd(); }
  PoolStats stats() const override;

 private:
  // Where a block of `bytes` goes, its pages not yet reserved; `end` is how far they must be.
  std::optional<std::uint64_t> place(std::uint64_t bytes, std::uint64_t& end);
  void give_back(const Block& block);
  Error full(std::uint64_t bytes) const;

  PoolMemory memory_;
  PageRanges ranges_;
  Slabs slabs_;
  std::uint64_t used_ = 0;
  std::uint64_t blocks_ = 0;
};

std::optional<std::uint64_t> MemfdPool::place(std::uint64_t bytes, std::uint64_t& end) {
  if (const auto size_class = size_class_of(bytes)) return slabs_.allocate(*size_class, end);
  const auto first = ranges_.allocate(pages_for(bytes));
  if (!first) return std::nullopt;
  end = (*first + pages_for(bytes)) * kPageBytes;
  return *first * kPageBytes;
}

Result<Block> MemfdPool::allocate(std::uint64_t bytes) {
  Block block{0, bytes};
  if (bytes > 0) {
    std::uint64_t end = 0;
    const auto offset = place(bytes, end);
    if (!offset) return fail(full(bytes));
    block.offset = *offset;
    if (auto reserved = memory_.reserve(end); !reserved) {
      give_back(block);
      return fail(std::move(reserved.error()).with_operation("allocate"));
    }
  }
  used_ += occupied_bytes(bytes);
  ++blocks_;
  return block;
}

void MemfdPool::give_back(const Block& block) {
  if (block.bytes == 0) return;
  if (const auto size_class = size_class_of(block.bytes)) {
    slabs_.free(block.offset, *size_class);
  } else {
    LOCHOS_CHECK(block.offset % kPageBytes == 0);
    ranges_.free(block.offset / kPageBytes, pages_for(block.bytes));
  }
}

void MemfdPool::free(const Block& block) {
  LOCHOS_CHECK(blocks_ > 0);
  give_back(block);
  used_ -= occupied_bytes(block.bytes);
  --blocks_;
}

Error MemfdPool::full(std::uint64_t bytes) const {
  const PoolStats now = stats();
  return Error(Errc::kNoSpace,
               fmt::format("no room for {}: the pool has {}, of which {} in {} objects are in use; "
                           "the largest free piece has {}",
                           format_size(bytes), format_size(now.capacity), format_size(now.used),
                           now.blocks, format_size(now.largest_free)))
      .with_operation("allocate")
      .with_cause(bytes > now.capacity ? "the object is larger than the whole pool"
                                       : "objects put here stay until they are erased, fetched "
                                         "ones while they are read")
      .with_fix("erase objects, release views, or start the node with a larger --pool");
}

PoolStats MemfdPool::stats() const {
  PoolStats now;
  now.capacity = memory_.bytes();
  now.used = used_;
  now.blocks = blocks_;
  now.reserved = memory_.reserved();
  now.huge_page_bytes = memory_.huge() ? memory_.bytes() : 0;
  now.largest_free = std::max(ranges_.largest() * kPageBytes, slabs_.largest_free());
  return now;
}

}  // namespace

Result<std::unique_ptr<Pool>> Pool::open(const PoolOptions& options) {
  auto memory = PoolMemory::open(options);
  if (!memory) return fail(std::move(memory.error()));
  return std::make_unique<MemfdPool>(std::move(*memory));
}

}  // namespace lochos
