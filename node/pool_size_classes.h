// The sizes in which small blocks of the pool are handed out. Pure; use anywhere.
//
// Below a page, sizes go in steps of an eighth to a quarter of a power of two, so at most a fifth
// of a block (or 63 bytes) is lost to rounding; from a page on, blocks are whole pages.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace lochos {

inline constexpr std::uint64_t kPageBytes = 4096;

inline constexpr std::array<std::uint64_t, 19> kSizeClasses = {
    64,  128,  192,  256,  320,  384,  448,  512,  640, 768,
    896, 1024, 1280, 1536, 1792, 2048, 2560, 3072, 3584};

// The index in kSizeClasses of the smallest class that holds `bytes`; nothing if it takes pages.
constexpr std::optional<std::size_t> size_class_of(std::uint64_t bytes) {
  if (bytes > kSizeClasses.back()) return std::nullopt;
  std::size_t index = 0;
  while (kSizeClasses[index] < bytes)
    ++index;
  return index;
}

constexpr std::uint64_t pages_for(std::uint64_t bytes) {
  return bytes / kPageBytes + (bytes % kPageBytes != 0 ? 1 : 0);
}

// What a block of `bytes` takes of the pool.
constexpr std::uint64_t occupied_bytes(std::uint64_t bytes) {
  if (bytes == 0) return 0;
  const auto index = size_class_of(bytes);
  return index ? kSizeClasses[*index] : pages_for(bytes) * kPageBytes;
}

}  // namespace lochos
