#include "node/pool_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/memfd.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "base/log.h"
#include "base/units.h"
#include "node/pool_limits.h"
#include "node/pool_size_classes.h"
#include "transport/topology.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14; older kernels answer EINVAL
#endif

namespace lochos {
namespace {

constexpr std::uint64_t kHugePageBytes = 2ULL << 20;
// Pages are set aside in steps that grow with use: large against the cost of asking for the limits
// (some 100 us), small against an idle node's memory and against the pause that clearing them makes
// (about 1 ms a step of 4 MiB; ten times that on a virtual machine that has not seen them before).
constexpr std::uint64_t kLeastReserveStep = 2ULL << 20;
constexpr std::uint64_t kMostReserveStep = 16ULL << 20;
// Left to the rest of the system: below this the kernel would start to kill processes.
constexpr std::uint64_t kMarginBytes = 32ULL << 20;

std::uint64_t round_up(std::uint64_t value, std::uint64_t step) {
  return (value + step - 1) / step * step;
}

Error no_memory(std::uint64_t need, const MemoryLeft& left) {
  return Error(Errc::kNoSpace,
               fmt::format("the pool needs {} more, {} leaves {}", format_size(need),
                           left.limited_by, format_size(left.bytes)))
      .with_cause("the machine or the container has less memory than the pool may use")
      .with_fix("start the node with a smaller --pool, or raise the limit");
}

// Only a preference: a full NUMA node makes memory slower, not missing.
void prefer_numa_node(std::span<std::byte> memory, int numa_node) {
  const Binding binding = bind_memory(memory, numa_node);
  if (!binding.bound) {
    log_warning("the pool is not bound to NUMA node {}: {}", numa_node, binding.reason);
  }
}

struct Backing {
  UniqueFd memfd;
  std::shared_ptr<const PoolMapping> mapping;
};

Result<Backing> make_backing(std::uint64_t bytes, bool huge) {
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING | (huge ? MFD_HUGETLB | MFD_HUGE_2MB : 0U);
  UniqueFd memfd(::memfd_create("lochos-pool", flags));
  if (!memfd) return fail(system_error(errno, "memfd_create").with_operation("open the pool"));
  if (::ftruncate(memfd.get(), static_cast<off_t>(bytes)) != 0) {
    return fail(system_error(errno, "ftruncate of the pool").with_operation("open the pool"));
  }
  // A client that shrank the file would take the pages from under us.
  if (::fcntl(memfd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return fail(system_error(errno, "sealing the pool's size").with_operation("open the pool"));
  }
  auto mapping = map_pool(memfd.get(), bytes, Access::kReadWrite);
  if (!mapping) return fail(std::move(mapping.error()));
  return Backing{std::move(memfd), std::move(*mapping)};
}

}  // namespace

Result<std::shared_ptr<const PoolMapping>> map_pool(int memfd, std::uint64_t bytes, Access access) {
  const auto fail_map = [bytes] {
    return fail(system_error(errno == ENOMEM ? ENOSPC : errno,
                             fmt::format("mapping {} of the pool", format_size(bytes)))
                    .with_fix("raise the limit of address space (ulimit -v)"));
  };
  // Take more address space than needed, then map at the first multiple of a huge page in it.
  const std::uint64_t span = bytes + kHugePageBytes;
  void* area = ::mmap(nullptr, span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (area == MAP_FAILED) return fail_map();
  auto* const begin = static_cast<std::byte*>(area);
  const auto address = reinterpret_cast<std::uintptr_t>(area);
  auto* const aligned = begin + (round_up(address, kHugePageBytes) - address);
  const int protection = access == Access::kReadOnly ? PROT_READ : PROT_READ | PROT_WRITE;
  if (::mmap(aligned, bytes, protection, MAP_SHARED | MAP_FIXED, memfd, 0) == MAP_FAILED) {
    auto error = fail_map();
    ::munmap(area, span);
    return error;
  }
  std::byte* const end = aligned + round_up(bytes, kPageBytes);
  if (aligned > begin) ::munmap(begin, static_cast<std::size_t>(aligned - begin));
  if (end < begin + span) ::munmap(end, static_cast<std::size_t>(begin + span - end));
  // Both only help; a kernel without them is fine.
  ::madvise(aligned, bytes, MADV_HUGEPAGE);
  ::madvise(aligned, bytes, MADV_DONTDUMP);
  return std::make_shared<const PoolMapping>(std::span<std::byte>(aligned, bytes));
}

PoolMapping::~PoolMapping() {
  ::munmap(memory_.data(), memory_.size());
}

Result<PoolMemory> PoolMemory::open(const PoolOptions& options) {
  constexpr std::uint64_t kMostBytes = 1ULL << 46;  // what a process can map, and a sane number
  if (options.bytes == 0 || options.bytes > kMostBytes) {
    return fail(Error(Errc::kInvalidArgument, fmt::format("a pool of {} bytes; it may have 1 to {}",
                                                          options.bytes, kMostBytes))
                    .with_operation("open the pool"));
  }
  const std::uint64_t huge_bytes = round_up(options.bytes, kHugePageBytes);
  if (options.huge_pages && free_huge_page_bytes() >= huge_bytes) {
    // The mapping reserves the huge pages; if somebody was faster it fails and small ones do.
    if (auto backing = make_backing(huge_bytes, true)) {
      if (options.numa_node >= 0) {
        prefer_numa_node(backing->mapping->memory(), options.numa_node);
      }
      return PoolMemory(std::move(backing->memfd), std::move(backing->mapping), true);
    }
  }
  const std::uint64_t bytes = round_up(options.bytes, kPageBytes);
  if (const MemoryLeft left = memory_left(); left.bytes < bytes + kMarginBytes) {
    return fail(no_memory(bytes, left).with_operation("open the pool"));
  }
  auto backing = make_backing(bytes, false);
  if (!backing) return fail(std::move(backing.error()));
  if (options.numa_node >= 0) prefer_numa_node(backing->mapping->memory(), options.numa_node);
  return PoolMemory(std::move(backing->memfd), std::move(backing->mapping), false);
}

Status PoolMemory::check_left(std::uint64_t need) const {
  if (huge_) return {};  // reserved when they were mapped
  const MemoryLeft left = memory_left();
  if (left.bytes < need + kMarginBytes) return fail(no_memory(need, left));
  return {};
}

Status PoolMemory::reserve(std::uint64_t end) {
  if (end <= reserved_) return {};
  const std::uint64_t exact = round_up(end, huge_ ? kHugePageBytes : kPageBytes);
  const std::uint64_t step = reserved_ < kMostReserveStep ? kLeastReserveStep : kMostReserveStep;
  const std::uint64_t generous = std::min(bytes(), round_up(end, step));
  if (check_left(generous - reserved_)) return populate(generous);
  if (auto enough = check_left(exact - reserved_); !enough) return enough;
  return populate(exact);
}

Status PoolMemory::populate(std::uint64_t end) {
  std::byte* const from = mapping_->memory().data() + reserved_;
  const std::uint64_t need = end - reserved_;
  int error = 0;
  do {
    // Unlike fallocate this takes huge pages where the mapping may have them.
    error = ::madvise(from, need, MADV_POPULATE_WRITE) == 0 ? 0 : errno;
  } while (error == EINTR || error == EAGAIN);
  if (error == EINVAL) {
    error =
        ::fallocate(memfd_.get(), 0, static_cast<off_t>(reserved_), static_cast<off_t>(need)) == 0
            ? 0
            : errno;
  }
  if (error != 0) {
    return fail(no_memory(need, memory_left())
                    .with_cause(system_error(error, "taking the pages").message()));
  }
  reserved_ = end;
  return {};
}

}  // namespace lochos
