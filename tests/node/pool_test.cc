#include "node/pool.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "node/pool_memory.h"
#include "node/pool_size_classes.h"

namespace lochos {
namespace {

constexpr std::uint64_t kMiB = 1ULL << 20;

std::unique_ptr<Pool> open_pool(std::uint64_t bytes) {
  PoolOptions options;
  options.bytes = bytes;
  options.huge_pages = false;  // sizes below are those of ordinary pages
  auto pool = Pool::open(options);
  EXPECT_TRUE(pool) << pool.error().to_string();
  return std::move(*pool);
}

// What stays mapped of the memfd in physical memory, by the file system's own count.
std::uint64_t resident_bytes(const Pool& pool) {
  struct stat now {};
  EXPECT_EQ(fstat(pool.memfd(), &now), 0);
  return static_cast<std::uint64_t>(now.st_blocks) * 512;
}

TEST(PoolTest, BlocksKeepTheirAlignmentAndBytes) {
  auto pool = open_pool(8 * kMiB);
  std::vector<Block> blocks;
  for (const std::uint64_t size : {1ULL, 63ULL, 64ULL, 65ULL, 100ULL, 3584ULL, 3585ULL, 4095ULL,
                                   4096ULL, 4097ULL, 65536ULL, 1'000'003ULL}) {
    auto block = pool->allocate(size);
    ASSERT_TRUE(block) << block.error().to_string();
    EXPECT_EQ(block->bytes, size);
    EXPECT_EQ(block->offset % (size >= kPageBytes ? kPageBytes : 64), 0U) << size;
    std::memset(pool->bytes(*block).data(), static_cast<int>(blocks.size()), size);
    blocks.push_back(*block);
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    for (const std::byte byte : pool->bytes(blocks[i]))
      ASSERT_EQ(byte, static_cast<std::byte>(i));
    pool->free(blocks[i]);
  }
  EXPECT_EQ(pool->stats().used, 0U);
  EXPECT_EQ(pool->stats().largest_free, 8 * kMiB);
}

TEST(PoolTest, ZeroBytesOccupyNothing) {
  auto pool = open_pool(kPageBytes);
  const Block full = pool->allocate(kPageBytes).value();
  const auto empty = pool->allocate(0);
  ASSERT_TRUE(empty);
  EXPECT_EQ(pool->stats().used, kPageBytes);
  EXPECT_TRUE(pool->bytes(*empty).empty());
  pool->free(*empty);
  pool->free(full);
  EXPECT_EQ(pool->stats().blocks, 0U);
}

TEST(PoolTest, ExhaustionNamesSizeCapacityAndUse) {
  auto pool = open_pool(kMiB);
  const Block half = pool->allocate(kMiB / 2).value();
  const auto too_much = pool->allocate(kMiB / 2 + 1);
  ASSERT_FALSE(too_much);
  EXPECT_EQ(too_much.error().code(), Errc::kNoSpace);
  EXPECT_NE(too_much.error().message().find("1 MiB"), std::string::npos)
      << too_much.error().message();
  EXPECT_NE(too_much.error().message().find("512 KiB"), std::string::npos);
  EXPECT_FALSE(too_much.error().fix().empty());
  // The other half is still there, and the failure took nothing.
  const auto rest = pool->allocate(kMiB / 2);
  ASSERT_TRUE(rest);
  EXPECT_FALSE(pool->allocate(1));
  pool->free(half);
  EXPECT_TRUE(pool->allocate(1));
}

TEST(PoolTest, TheLastPageServesSmallBlocks) {
  auto pool = open_pool(3 * kPageBytes);
  const Block two = pool->allocate(2 * kPageBytes).value();
  std::vector<Block> small;
  for (auto block = pool->allocate(100); block; block = pool->allocate(100))
    small.push_back(*block);
  EXPECT_EQ(small.size(), kPageBytes / 128);
  for (const Block& block : small)
    pool->free(block);
  pool->free(two);
  EXPECT_EQ(pool->stats().largest_free, 3 * kPageBytes);
}

TEST(PoolTest, ManySmallObjectsReturnUseToItsStart) {
  auto pool = open_pool(64 * kMiB);
  const PoolStats before = pool->stats();
  std::vector<Block> blocks;
  for (int i = 0; i < 100'000; ++i)
    blocks.push_back(pool->allocate(100).value());
  EXPECT_EQ(pool->stats().used, 100'000U * 128);
  std::shuffle(blocks.begin(), blocks.end(), std::mt19937(7));
  for (const Block& block : blocks)
    pool->free(block);
  EXPECT_EQ(pool->stats().used, before.used);
  EXPECT_EQ(pool->stats().blocks, 0U);
  EXPECT_EQ(pool->stats().largest_free, before.largest_free);
}

TEST(PoolTest, FragmentsAreFilledBeforeTheLargeRange) {
  auto pool = open_pool(64 * kMiB);
  std::vector<Block> blocks;
  for (int i = 0; i < 32; ++i)
    blocks.push_back(pool->allocate(kMiB).value());
  for (std::size_t i = 0; i < blocks.size(); i += 2)
    pool->free(blocks[i]);
  EXPECT_EQ(pool->stats().largest_free, 32 * kMiB);
  for (int i = 0; i < 16; ++i)
    EXPECT_LT(pool->allocate(kMiB)->offset, 32 * kMiB);
  EXPECT_TRUE(pool->allocate(32 * kMiB));
}

TEST(PoolTest, AnIdlePoolIsSmallAndReserveTakesAll) {
  auto pool = open_pool(256 * kMiB);
  EXPECT_EQ(resident_bytes(*pool), 0U);
  ASSERT_TRUE(pool->allocate(1));
  EXPECT_LE(resident_bytes(*pool), 32 * kMiB);
  EXPECT_GE(resident_bytes(*pool), pool->stats().reserved);
  ASSERT_TRUE(pool->reserve());
  EXPECT_EQ(pool->stats().reserved, 256 * kMiB);
  EXPECT_GE(resident_bytes(*pool), 256 * kMiB);
}

TEST(PoolTest, BlocksLieOnReservedPages) {
  auto pool = open_pool(128 * kMiB);
  for (const std::uint64_t size :
       std::initializer_list<std::uint64_t>{100, 40 * kMiB, 5000, 60 * kMiB}) {
    const Block block = pool->allocate(size).value();
    EXPECT_LE(block.offset + block.bytes, pool->stats().reserved);
  }
}

TEST(PoolTest, MoreThanTheMachineHasIsATypedError) {
  PoolOptions options;
  options.bytes = 1ULL << 45;
  const auto pool = Pool::open(options);
  ASSERT_FALSE(pool);
  EXPECT_EQ(pool.error().code(), Errc::kNoSpace);
  EXPECT_NE(pool.error().message().find("32 TiB"), std::string::npos) << pool.error().to_string();
  EXPECT_NE(pool.error().fix().find("--pool"), std::string::npos);
}

TEST(PoolTest, SizesOutOfRangeAreRefused) {
  PoolOptions options;
  options.bytes = 0;
  EXPECT_EQ(Pool::open(options).error().code(), Errc::kInvalidArgument);
  options.bytes = ~std::uint64_t{0};
  EXPECT_EQ(Pool::open(options).error().code(), Errc::kInvalidArgument);
}

TEST(PoolTest, AnAbsentNumaNodeOnlyWarns) {
  PoolOptions options;
  options.bytes = kMiB;
  options.numa_node = 0;
  EXPECT_TRUE(Pool::open(options).value()->allocate(kMiB));
  options.numa_node = 1000;
  EXPECT_TRUE(Pool::open(options).value()->allocate(kMiB));
}

TEST(PoolTest, TheMappingOutlivesThePool) {
  auto pool = open_pool(kMiB);
  const Block block = pool->allocate(10).value();
  std::memcpy(pool->bytes(block).data(), "0123456789", 10);
  const auto mapping = pool->mapping();
  pool.reset();
  EXPECT_EQ(std::memcmp(mapping->memory().data() + block.offset, "0123456789", 10), 0);
}

TEST(PoolTest, NobodyCanShrinkTheFile) {
  auto pool = open_pool(kMiB);
  EXPECT_NE(::ftruncate(pool->memfd(), 0), 0);
  EXPECT_EQ(errno, EPERM);
}

TEST(PoolTest, AReadOnlyMappingSharesBytesAndRefusesWrites) {
  auto pool = open_pool(kMiB);
  const Block block = pool->allocate(4).value();
  std::memcpy(pool->bytes(block).data(), "abcd", 4);
  const auto view = map_pool(pool->memfd(), pool->memory().size(), Access::kReadOnly).value();
  EXPECT_EQ(std::memcmp(view->memory().data() + block.offset, "abcd", 4), 0);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(view->memory().data()) % (2 * kMiB), 0U);
  EXPECT_DEATH(view->memory()[block.offset] = std::byte{'x'}, "");
}

TEST(PoolDeathTest, ADoubleFreeEndsTheProcess) {
  auto pool = open_pool(kMiB);
  const Block small = pool->allocate(100).value();
  const Block keep = pool->allocate(100).value();
  const Block large = pool->allocate(10'000).value();
  pool->free(small);
  EXPECT_DEATH(pool->free(small), "");
  pool->free(large);
  EXPECT_DEATH(pool->free(large), "");
  pool->free(keep);
}

}  // namespace
}  // namespace lochos
