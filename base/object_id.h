// The name of an object: 32 bytes. A name string maps to an id by SHA-256. Values; use anywhere.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "base/error.h"

namespace lochos {

// A name is 1 to kMaxNameBytes bytes of valid UTF-8 without NUL.
inline constexpr std::size_t kMaxNameBytes = 1024;

struct ObjectId {
  std::array<std::uint8_t, 32> bytes{};

  auto operator<=>(const ObjectId&) const = default;

  // Errors: kInvalidArgument for a name outside the limits above; the message states them.
  static Result<ObjectId> from_name(std::string_view name);
  // 64 hex digits.
  std::string to_hex() const;
  static Result<ObjectId> from_hex(std::string_view hex);
};

// Ids are hashes (or caller's random bytes): their first word is already well mixed.
struct ObjectIdHash {
  std::size_t operator()(const ObjectId& id) const {
    std::size_t word;
    std::memcpy(&word, id.bytes.data(), sizeof word);
    return word;
  }
};

}  // namespace lochos
