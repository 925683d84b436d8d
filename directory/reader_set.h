// A set of small numbers (member slots), as a bitmap that is only as long as its largest member
// needs. An inline object may have thousands of readers, and there may be a million such objects:
// a record per reader would cost a hundred times more. Value; one thread.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lochos {

class ReaderSet {
 public:
  // Returns whether it was new.
  bool insert(std::uint32_t slot) {
    if (slot / 64 > more_.size()) more_.resize(slot / 64);
    std::uint64_t& word = word_of(slot);
    const bool added = (word & bit(slot)) == 0;
    word |= bit(slot);
    return added;
  }
  // Returns whether it was there.
  bool erase(std::uint32_t slot) {
    if (!contains(slot)) return false;
    word_of(slot) &= ~bit(slot);
    return true;
  }
  bool contains(std::uint32_t slot) const {
    if (slot < 64) return (first_ & bit(slot)) != 0;
    return slot / 64 <= more_.size() && (more_[slot / 64 - 1] & bit(slot)) != 0;
  }
  std::size_t count() const {
    auto sum = static_cast<std::size_t>(std::popcount(first_));
    for (const std::uint64_t word : more_)
      sum += static_cast<std::size_t>(std::popcount(word));
    return sum;
  }
  void clear() {
    first_ = 0;
    more_ = {};
  }

  template <class F>
  void for_each(F&& visit) const {
    for (std::size_t index = 0; index <= more_.size(); ++index) {
      for (std::uint64_t word = index == 0 ? first_ : more_[index - 1]; word != 0;
           word &= word - 1) {
        visit(static_cast<std::uint32_t>(index * 64) +
              static_cast<std::uint32_t>(std::countr_zero(word)));
      }
    }
  }

 private:
  static constexpr std::uint64_t bit(std::uint32_t slot) { return std::uint64_t{1} << (slot % 64); }
  std::uint64_t& word_of(std::uint32_t slot) { return slot < 64 ? first_ : more_[slot / 64 - 1]; }

  std::uint64_t first_ = 0;  // of clusters up to 64 nodes: no memory elsewhere
  std::vector<std::uint64_t> more_;
};

}  // namespace lochos
