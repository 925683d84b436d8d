// Random sequences of allocate and free, checked against a plain model.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <map>
#include <vector>

#include "node/pool.h"
#include "node/pool_ranges.h"
#include "node/pool_size_classes.h"

namespace lochos {
namespace {

constexpr std::uint64_t kPoolBytes = 1ULL << 20;

struct Step {
  bool allocate = true;
  std::uint64_t number = 0;  // a size, or which block to free
};

rc::Gen<std::vector<Step>> steps() {
  const auto small = rc::gen::inRange<std::uint64_t>(0, 5000);
  const auto large = rc::gen::inRange<std::uint64_t>(5000, kPoolBytes / 3);
  const auto size = rc::gen::weightedOneOf<std::uint64_t>({{3, small}, {1, large}});
  const auto allocate = rc::gen::map(size, [](std::uint64_t bytes) { return Step{true, bytes}; });
  const auto release = rc::gen::map(rc::gen::inRange<std::uint64_t>(0, 1000), [](std::uint64_t n) {
    return Step{false, n};
  });
  return rc::gen::container<std::vector<Step>>(
      rc::gen::weightedOneOf<Step>({{3, allocate}, {2, release}}));
}

// Whether [begin, begin + bytes) overlaps nothing of `taken` (offset -> bytes).
bool is_free(const std::map<std::uint64_t, std::uint64_t>& taken, std::uint64_t begin,
             std::uint64_t bytes) {
  const auto next = taken.lower_bound(begin);
  if (next != taken.end() && begin + bytes > next->first) return false;
  if (next == taken.begin()) return true;
  const auto previous = std::prev(next);
  return previous->first + previous->second <= begin;
}

TEST(PoolPropertyTest, BlocksNeverOverlapAndAllComesBack) {
  EXPECT_TRUE(rc::check("allocate and free", [] {
    PoolOptions options;
    options.bytes = kPoolBytes;
    auto pool = Pool::open(options).value();
    std::map<std::uint64_t, std::uint64_t> taken;
    std::vector<Block> blocks;
    std::uint64_t used = 0;
    for (const Step& step : *steps()) {
      if (step.allocate) {
        const auto block = pool->allocate(step.number);
        if (!block) {
          RC_ASSERT(block.error().code() == Errc::kNoSpace);
          RC_ASSERT(occupied_bytes(step.number) > pool->stats().largest_free);
          continue;
        }
        const std::uint64_t occupied = occupied_bytes(step.number);
        RC_ASSERT(block->offset + occupied <= kPoolBytes);
        if (occupied > 0) {
          RC_ASSERT(is_free(taken, block->offset, occupied));
          taken.emplace(block->offset, occupied);
        }
        blocks.push_back(*block);
        used += occupied;
      } else if (!blocks.empty()) {
        const std::size_t index = step.number % blocks.size();
        pool->free(blocks[index]);
        used -= occupied_bytes(blocks[index].bytes);
        if (blocks[index].bytes > 0) taken.erase(blocks[index].offset);
        blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(index));
      }
      RC_ASSERT(pool->stats().used == used);
      RC_ASSERT(pool->stats().blocks == blocks.size());
    }
    for (const Block& block : blocks)
      pool->free(block);
    RC_ASSERT(pool->stats().used == 0U);
    RC_ASSERT(pool->stats().largest_free == kPoolBytes);
  }));
}

TEST(PoolPropertyTest, FreeRangesAreMaximal) {
  EXPECT_TRUE(rc::check("page ranges", [] {
    constexpr std::uint64_t kPages = 256;
    PageRanges ranges(kPages);
    std::vector<bool> taken(kPages, false);
    std::vector<std::pair<std::uint64_t, std::uint64_t>> blocks;
    for (const auto number : *rc::gen::arbitrary<std::vector<std::uint16_t>>()) {
      if (number % 2 == 0 || blocks.empty()) {
        const std::uint64_t pages = number / 2U % 40U + 1;
        if (const auto first = ranges.allocate(pages)) {
          for (std::uint64_t page = *first; page < *first + pages; ++page) {
            RC_ASSERT(!taken[page]);
            taken[page] = true;
          }
          blocks.emplace_back(*first, pages);
        }
      } else {
        const std::size_t index = number % blocks.size();
        const auto [first, pages] = blocks[index];
        ranges.free(first, pages);
        for (std::uint64_t page = first; page < first + pages; ++page)
          taken[page] = false;
        blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(index));
      }
      // Count the maximal runs of the model: there must be as many ranges, the largest as large.
      std::uint64_t runs = 0, largest = 0, run = 0;
      for (std::uint64_t page = 0; page < kPages; ++page) {
        run = taken[page] ? 0 : run + 1;
        if (run == 1) ++runs;
        largest = std::max(largest, run);
      }
      RC_ASSERT(ranges.range_count() == runs);
      RC_ASSERT(ranges.largest() == largest);
    }
  }));
}

}  // namespace
}  // namespace lochos
