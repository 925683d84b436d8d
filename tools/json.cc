#include "tools/json.h"

#include <fmt/format.h>

#include <cmath>

namespace lochos {
namespace {

// Length of the valid UTF-8 sequence at the front of `text`, or 0.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  std::size_t length = 0;
  std::uint32_t point = 0, least = 0;
  if ((first & 0xE0) == 0xC0) {
    length = 2, point = first & 0x1Fu, least = 0x80;
  } else if ((first & 0xF0) == 0xE0) {
    length = 3, point = first & 0x0Fu, least = 0x800;
  } else if ((first & 0xF8) == 0xF0) {
    length = 4, point = first & 0x07u, least = 0x10000;
  } else {
    return 0;
  }
  if (text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    point = point << 6 | (byte(i) & 0x3Fu);
  }
  const bool surrogate = point >= 0xD800 && point <= 0xDFFF;
  return point < least || point > 0x10FFFF || surrogate ? 0 : length;
}

}  // namespace

std::string json_escape(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const char c = text[0];
    if (length == 0) {
      out += "\xEF\xBF\xBD";
    } else if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (length == 1 && static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

void JsonWriter::separate() {
  if (needs_comma_) text_ += ',';
  needs_comma_ = false;
}

JsonWriter& JsonWriter::raw(std::string_view token) {
  separate();
  text_ += token;
  needs_comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::begin_object() {
  separate();
  text_ += '{';
  return *this;
}

JsonWriter& JsonWriter::end_object() {
  text_ += '}';
  needs_comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::begin_array() {
  separate();
  text_ += '[';
  return *this;
}

JsonWriter& JsonWriter::end_array() {
  text_ += ']';
  needs_comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::key(std::string_view name) {
  separate();
  text_ += fmt::format("\"{}\":", json_escape(name));
  return *this;
}

JsonWriter& JsonWriter::value(std::string_view text) {
  return raw(fmt::format("\"{}\"", json_escape(text)));
}

JsonWriter& JsonWriter::value(bool boolean) {
  return raw(boolean ? "true" : "false");
}

JsonWriter& JsonWriter::value(double number) {
  if (!std::isfinite(number)) return null();
  return raw(fmt::format("{}", number));
}

}  // namespace lochos
