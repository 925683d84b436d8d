#include "base/object_id.h"

#include <fmt/format.h>
#include <openssl/sha.h>

namespace lochos {
namespace {

bool is_continuation(char c) {
  return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U;
}

// Length of the UTF-8 sequence at the front of `text`, 0 if it is not valid (overlong forms,
// surrogates and code points above U+10FFFF included; Unicode 15, table 3-7).
std::size_t utf8_sequence(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return 1;
  std::size_t length = lead >= 0xC2 && lead <= 0xDF   ? 2
                       : (lead & 0xF0U) == 0xE0       ? 3
                       : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                      : 0;
  if (length == 0 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if (!is_continuation(text[i])) return 0;
  }
  const auto second = static_cast<unsigned char>(text[1]);
  if (lead == 0xE0 && second < 0xA0) return 0;
  if (lead == 0xED && second > 0x9F) return 0;
  if (lead == 0xF0 && second < 0x90) return 0;
  if (lead == 0xF4 && second > 0x8F) return 0;
  return length;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = utf8_sequence(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

Result<ObjectId> ObjectId::from_name(std::string_view name) {
  const char* reason = nullptr;
  if (name.empty()) {
    reason = "is empty";
  } else if (name.size() > kMaxNameBytes) {
    reason = "is too long";
  } else if (name.find('\0') != std::string_view::npos) {
    reason = "contains a NUL byte";
  } else if (!is_utf8(name)) {
    reason = "is not valid UTF-8";
  }
  if (reason != nullptr) {
    return fail(Errc::kInvalidArgument,
                fmt::format("the name ({} bytes) {}; a name is 1 to {} bytes of UTF-8 without NUL",
                            name.size(), reason, kMaxNameBytes));
  }
  ObjectId id;
  SHA256(reinterpret_cast<const unsigned char*>(name.data()), name.size(), id.bytes.data());
  return id;
}

std::string ObjectId::to_hex() const {
  std::string text;
  text.reserve(64);
  for (const std::uint8_t byte : bytes)
    fmt::format_to(std::back_inserter(text), "{:02x}", byte);
  return text;
}

Result<ObjectId> ObjectId::from_hex(std::string_view hex) {
  ObjectId id;
  bool valid = hex.size() == 2 * id.bytes.size();
  for (std::size_t i = 0; valid && i < id.bytes.size(); ++i) {
    const int high = hex_digit(hex[2 * i]);
    const int low = hex_digit(hex[2 * i + 1]);
    valid = high >= 0 && low >= 0;
    id.bytes[i] = static_cast<std::uint8_t>(high * 16 + low);
  }
  if (!valid) return fail(Errc::kInvalidArgument, "an object id is 64 hex digits");
  return id;
}

}  // namespace lochos
