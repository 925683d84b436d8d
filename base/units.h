// Sizes and durations as people write them. Values; use anywhere.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/error.h"

namespace lochos {

// "0", "4096", "64K", "64KiB", "4G", "1.5M"; K, M, G, T are powers of 1024. "4GB" too (also 1024).
// Errors: kInvalidArgument for anything else, and for values above 2^63 - 1.
Result<std::uint64_t> parse_size(std::string_view text);

// "250ms", "30s", "5m", "1h", "10us", "1.5s"; a bare number means seconds.
// Errors: kInvalidArgument for anything else, negative values, or more than 100 years.
Result<Duration> parse_duration(std::string_view text);

// "64 MiB", "1.5 KiB", "17 B".
std::string format_size(std::uint64_t bytes);
// "1.25 s", "830 us".
std::string format_duration(Duration duration);

}  // namespace lochos
