// Free ranges of pages: best fit, lowest address among equals, neighbours joined again on free.
// Best fit keeps the large ranges large, which is what a big object needs. Every operation takes
// O(log n) of the number of free ranges. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace lochos {

class PageRanges {
 public:
  // All of [0, pages) is free.
  explicit PageRanges(std::uint64_t pages);

  // The first page of `pages` adjacent ones; nothing if there is no such range. REQUIRES: pages >
  // 0.
  std::optional<std::uint64_t> allocate(std::uint64_t pages);
  // REQUIRES: all of [first, first + pages) is allocated (else the process ends: a double free).
  void free(std::uint64_t first, std::uint64_t pages);

  std::uint64_t largest() const { return by_size_.empty() ? 0 : by_size_.rbegin()->first; }
  std::uint64_t free_pages() const { return free_pages_; }
  std::size_t range_count() const { return by_start_.size(); }

 private:
  void insert(std::uint64_t first, std::uint64_t pages);
  void erase(std::map<std::uint64_t, std::uint64_t>::iterator range);

  const std::uint64_t capacity_;
  std::uint64_t free_pages_ = 0;
  std::map<std::uint64_t, std::uint64_t> by_start_;            // first page -> pages
  std::set<std::pair<std::uint64_t, std::uint64_t>> by_size_;  // pages, first page
};

}  // namespace lochos
