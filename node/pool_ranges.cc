#include "node/pool_ranges.h"

#include <iterator>

#include "base/check.h"

namespace lochos {

PageRanges::PageRanges(std::uint64_t pages) : capacity_(pages) {
  if (pages > 0) insert(0, pages);
}

void PageRanges::insert(std::uint64_t first, std::uint64_t pages) {
  by_start_.emplace(first, pages);
  by_size_.emplace(pages, first);
  free_pages_ += pages;
}

void PageRanges::erase(std::map<std::uint64_t, std::uint64_t>::iterator range) {
  by_size_.erase({range->second, range->first});
  free_pages_ -= range->second;
  by_start_.erase(range);
}

std::optional<std::uint64_t> PageRanges::allocate(std::uint64_t pages) {
  const auto fit = by_size_.lower_bound({pages, 0});
  if (fit == by_size_.end()) return std::nullopt;
  const auto [found, first] = *fit;
  erase(by_start_.find(first));
  if (found > pages) insert(first + pages, found - pages);
  return first;
}

void PageRanges::free(std::uint64_t first, std::uint64_t pages) {
  LOCHOS_CHECK(pages > 0 && pages <= capacity_ && first <= capacity_ - pages);
  auto next = by_start_.upper_bound(first);
  if (next != by_start_.end()) LOCHOS_CHECK(first + pages <= next->first);
  if (next != by_start_.begin()) {
    const auto previous = std::prev(next);
    LOCHOS_CHECK(previous->first + previous->second <= first);
    if (previous->first + previous->second == first) {
      first = previous->first;
      pages += previous->second;
      erase(previous);
    }
  }
  if (next != by_start_.end() && first + pages == next->first) {
    pages += next->second;
    erase(next);
  }
  insert(first, pages);
}

}  // namespace lochos
