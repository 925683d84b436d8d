#include "node/pool_limits.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "base/temporary_folder.h"

namespace lochos {
namespace {

class PoolLimitsTest : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

  const TemporaryFolder folder_ = TemporaryFolder::create("lochos-test").value();
  const std::string& root_ = folder_.path();
};

TEST_F(PoolLimitsTest, NothingReadableLimitsNothing) {
  EXPECT_EQ(memory_left(root_).bytes, std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(free_huge_page_bytes(root_), 0U);
}

TEST_F(PoolLimitsTest, MachineMemory) {
  write("/proc/meminfo", "MemTotal:  1000 kB\nMemFree: 10 kB\nMemAvailable:    500 kB\n");
  EXPECT_EQ(memory_left(root_).bytes, 500U * 1024);
}

TEST_F(PoolLimitsTest, VersionTwoGroupsLimitAtEveryLevel) {
  write("/proc/meminfo", "MemAvailable: 1000000 kB\n");
  write("/proc/self/cgroup", "0::/jobs/one\n");
  write("/sys/fs/cgroup/jobs/one/memory.max", "max\n");
  write("/sys/fs/cgroup/jobs/one/memory.current", "5000\n");
  write("/sys/fs/cgroup/jobs/memory.max", "100000\n");
  write("/sys/fs/cgroup/jobs/memory.current", "60000\n");
  write("/sys/fs/cgroup/jobs/memory.stat", "anon 1\ninactive_file 20000\n");
  const MemoryLeft left = memory_left(root_);
  EXPECT_EQ(left.bytes, 60000U);  // page cache can be dropped
  EXPECT_NE(left.limited_by.find("/jobs/memory.max"), std::string::npos) << left.limited_by;
}

TEST_F(PoolLimitsTest, VersionOneGroupOfAContainerIsSeenAtItsMount) {
  write("/proc/meminfo", "MemAvailable: 1000000 kB\n");
  write("/proc/self/cgroup", "9:name=systemd:/\n4:memory:/docker/abc\n0::/\n");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "4096000\n");
  write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "96000\n");
  EXPECT_EQ(memory_left(root_).bytes, 4'000'000U);
}

TEST_F(PoolLimitsTest, UseAboveTheLimitLeavesNothing) {
  write("/proc/self/cgroup", "0::/\n");
  write("/sys/fs/cgroup/memory.max", "100\n");
  write("/sys/fs/cgroup/memory.current", "200\n");
  EXPECT_EQ(memory_left(root_).bytes, 0U);
}

TEST_F(PoolLimitsTest, HugePagesPromisedToOthersAreNotFree) {
  const std::string folder = "/sys/kernel/mm/hugepages/hugepages-2048kB/";
  write(folder + "free_hugepages", "10\n");
  write(folder + "resv_hugepages", "4\n");
  EXPECT_EQ(free_huge_page_bytes(root_), 6U * 2 * 1024 * 1024);
}

}  // namespace
}  // namespace lochos
