#include "node/registered_ranges.h"

#include <algorithm>
#include <utility>

namespace lochos {

Result<std::shared_ptr<const RegisteredMemory>> RegisteredRanges::make(
    std::span<std::byte> memory) const {
  if (memory.empty()) return fail(Errc::kInvalidArgument, "there are no bytes to register");
  std::vector<std::unique_ptr<Region>> regions;
  regions.reserve(rails_.size());
  for (Transport* rail : rails_) {
    auto region = rail->register_memory(memory);
    if (!region) return fail(std::move(region.error()).with_transport(rail->describe()));
    regions.push_back(std::move(*region));
  }
  return std::make_shared<const RegisteredMemory>(memory, std::move(regions));
}

Result<RegistrationNumber> RegisteredRanges::add(std::span<std::byte> memory) {
  auto made = make(memory);
  if (!made) return fail(std::move(made.error()));
  const auto at = by_begin_.emplace(memory.data(), std::move(*made));
  longest_ = std::max(longest_, memory.size());
  by_number_.emplace(++last_number_, at);
  return last_number_;
}

void RegisteredRanges::remove(RegistrationNumber number) {
  const auto found = by_number_.find(number);
  if (found == by_number_.end()) return;
  by_begin_.erase(found->second);
  by_number_.erase(found);
  if (by_begin_.empty()) longest_ = 0;
}

Result<std::shared_ptr<const RegisteredMemory>> RegisteredRanges::use(std::span<std::byte> memory) {
  const std::byte* const end = memory.data() + memory.size();
  // From the nearest range that begins at or before it, back to where none can reach its end.
  for (auto at = by_begin_.upper_bound(memory.data()); at != by_begin_.begin();) {
    --at;
    const std::span<std::byte> range = at->second->bytes();
    if (static_cast<std::size_t>(end - range.data()) > longest_) break;
    if (range.data() + range.size() >= end) return at->second;
  }
  return make(memory);
}

void RegisteredRanges::clear() {
  by_number_.clear();
  by_begin_.clear();
  longest_ = 0;
}

}  // namespace lochos
