// Received bytes at an address where their 64-bit fields may be read in place: as they lie if that
// is such an address, else a copy. What they came from must outlive the object. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

namespace lochos {

class AlignedBytes {
 public:
  explicit AlignedBytes(std::span<const std::byte> bytes)
      : data_(reinterpret_cast<const std::uint8_t*>(bytes.data())), size_(bytes.size()) {
    constexpr std::size_t kWord = sizeof(std::uint64_t);
    if (reinterpret_cast<std::uintptr_t>(data_) % kWord == 0) return;
    copy_ = std::make_unique_for_overwrite<std::uint64_t[]>(size_ / kWord + 1);
    std::memcpy(copy_.get(), bytes.data(), size_);
    data_ = reinterpret_cast<const std::uint8_t*>(copy_.get());
  }
  AlignedBytes(const AlignedBytes&) = delete;
  AlignedBytes& operator=(const AlignedBytes&) = delete;

  const std::uint8_t* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
  std::unique_ptr<std::uint64_t[]> copy_;  // null: not needed
};

}  // namespace lochos
