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
    if (slot / 64 >= words_.size()) words_.resize(slot / 64 + 1);
    std::uint64_t& word = words_[slot / 64];
    const bool added = (word & bit(slot)) == 0;
    word |= bit(slot);
    return added;
  }
  // Returns whether it was there.
  bool erase(std::uint32_t slot) {
    if (!contains(slot)) return false;
    words_[slot / 64] &= ~bit(slot);
    return true;
  }
  bool contains(std::uint32_t slot) const {
    return slot / 64 < words_.size() && (words_[slot / 64] & bit(slot)) != 0;
  }
  std::size_t count() const {
    std::size_t sum = 0;
    for (const std::uint64_t word : words_)
      sum += static_cast<std::size_t>(std::popcount(word));
    return sum;
  }
  void clear() { words_ = {}; }

  template <class F>
  void for_each(F&& visit) const {
    for (std::size_t index = 0; index < words_.size(); ++index) {
      for (std::uint64_t word = words_[index]; word != 0; word &= word - 1) {
        visit(static_cast<std::uint32_t>(index * 64) +
              static_cast<std::uint32_t>(std::countr_zero(word)));
      }
    }
  }

 private:
  static constexpr std::uint64_t bit(std::uint32_t slot) { return std::uint64_t{1} << (slot % 64); }
  std::vector<std::uint64_t> words_;
};

}  // namespace lochos
