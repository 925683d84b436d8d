#include "base/units.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdlib>

namespace lochos {
namespace {

// Splits "1.5MiB" into 1.5 and "MiB". False if there is no plain decimal number in front.
bool split_number(std::string_view text, double& number, std::string_view& unit) {
  const std::size_t end = text.find_first_not_of("0123456789.");
  const std::string digits(text.substr(0, end));
  unit = end == std::string_view::npos ? std::string_view() : text.substr(end);
  if (digits.empty() || digits.size() > 32 || digits == ".") return false;
  char* stop = nullptr;
  number = std::strtod(digits.c_str(), &stop);
  return *stop == '\0' && std::isfinite(number);
}

bool all_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

Error bad_size(std::string_view text) {
  return Error(Errc::kInvalidArgument,
               fmt::format("'{}' is not a size; write bytes or a number with K, M, G or T "
                           "(powers of 1024), below 8E",
                           text.substr(0, 64)));
}

Error bad_duration(std::string_view text) {
  return Error(Errc::kInvalidArgument,
               fmt::format("'{}' is not a duration; write a number with us, ms, s, m or h, such as "
                           "250ms or 30s",
                           text.substr(0, 64)));
}

int size_shift(std::string_view unit) {
  if (unit.empty() || unit == "B") return 0;
  int shift = 0;
  switch (unit[0]) {
    case 'k':
    case 'K':
      shift = 10;
      break;
    case 'm':
    case 'M':
      shift = 20;
      break;
    case 'g':
    case 'G':
      shift = 30;
      break;
    case 't':
    case 'T':
      shift = 40;
      break;
    default:
      return -1;
  }
  const std::string_view rest = unit.substr(1);
  return rest.empty() || rest == "B" || rest == "iB" ? shift : -1;
}

double unit_seconds(std::string_view unit) {
  if (unit == "ns") return 1e-9;
  if (unit == "us") return 1e-6;
  if (unit == "ms") return 1e-3;
  if (unit.empty() || unit == "s") return 1;
  if (unit == "m" || unit == "min") return 60;
  if (unit == "h") return 3600;
  return -1;
}

}  // namespace

Result<std::uint64_t> parse_size(std::string_view text) {
  double number = 0;
  std::string_view unit;
  if (!split_number(text, number, unit)) return fail(bad_size(text));
  const int shift = size_shift(unit);
  if (shift < 0) return fail(bad_size(text));
  const double value = std::ldexp(number, shift);
  if (value >= 9.2e18) return fail(bad_size(text));
  const std::string_view digits = text.substr(0, text.size() - unit.size());
  // Whole numbers stay exact beyond 2^53.
  if (all_digits(digits)) return std::strtoull(std::string(digits).c_str(), nullptr, 10) << shift;
  return static_cast<std::uint64_t>(value);
}

Result<Duration> parse_duration(std::string_view text) {
  double number = 0;
  std::string_view unit;
  if (!split_number(text, number, unit)) return fail(bad_duration(text));
  const double scale = unit_seconds(unit);
  constexpr double kHundredYears = 100.0 * 365 * 86400;
  if (scale < 0 || number * scale > kHundredYears) return fail(bad_duration(text));
  return Duration(static_cast<Duration::rep>(std::llround(number * scale * 1e9)));
}

std::string format_size(std::uint64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  if (value == std::floor(value)) return fmt::format("{:.0f} {}", value, kUnits[unit]);
  return fmt::format("{:.2f} {}", value, kUnits[unit]);
}

std::string format_duration(Duration duration) {
  const double s = seconds(duration);
  if (s >= 1) return fmt::format("{:.3g} s", s);
  if (s >= 1e-3) return fmt::format("{:.3g} ms", s * 1e3);
  return fmt::format("{:.3g} us", s * 1e6);
}

}  // namespace lochos
