// Writes JSON (RFC 8259) into a string, always valid whatever the text values hold. Value; use
// anywhere.
//
//   JsonWriter json;
//   json.begin_object().key("name").value("a").key("sizes").begin_array().value(1).end_array();
//   json.end_object();  print(json.text());
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace lochos {

class JsonWriter {
 public:
  JsonWriter& begin_object();
  JsonWriter& end_object();
  JsonWriter& begin_array();
  JsonWriter& end_array();
  JsonWriter& key(std::string_view name);

  // Bytes that are no valid UTF-8 become U+FFFD.
  JsonWriter& value(std::string_view text);
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(const std::string& text) { return value(std::string_view(text)); }
  JsonWriter& value(bool boolean);
  // Infinity and NaN become null: JSON has no word for them.
  JsonWriter& value(double number);
  template <std::integral T>
  JsonWriter& value(T number) {
    return raw(std::to_string(number));
  }
  JsonWriter& null() { return raw("null"); }

  template <class T>
  JsonWriter& field(std::string_view name, const T& v) {
    return key(name).value(v);
  }

  // What was written so far, ended by a newline.
  std::string text() const { return text_ + "\n"; }

 private:
  JsonWriter& raw(std::string_view token);
  void separate();

  std::string text_;
  bool needs_comma_ = false;
};

// The text between the quotes of a JSON string.
std::string json_escape(std::string_view text);

}  // namespace lochos
