// The control messages of `lochos perf` as values, and their form on the wire (perf.fbs). Values;
// use anywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/error.h"
#include "tools/perf_parameters.h"
#include "tools/perf_statistics.h"
#include "transport/transport.h"

namespace lochos {

struct PerfOffer {
  PerfParameters parameters;
  bool verbs = false;
  bool tcp = false;
  std::string why_no_verbs;
};
struct PerfAnswer {
  TransportKind transport = TransportKind::kTcp;
  std::string reason;
  std::string address;
};
// Where the other side may write to and read from, and what this side can take at once.
struct PerfMemory {
  std::uint64_t incoming = 0;  // remote addresses
  std::uint64_t outgoing = 0;
  std::uint64_t key = 0;
  std::uint64_t max_transfer = 0;
  std::uint64_t max_message = 0;
};
struct PerfBegin {
  std::uint64_t size = 0;
};
struct PerfFinished {
  std::uint64_t wrong = 0;  // messages
  std::string first_wrong;
  BandwidthFigures figures;
};
struct PerfRow {
  std::uint64_t size = 0;
  std::uint64_t iterations = 0;
  std::vector<double> figures;  // in the order of the report's columns
};
struct PerfAbort {
  std::string reason;
};
struct PerfBye {};

using PerfMessage = std::variant<PerfOffer, PerfAnswer, PerfMemory, PerfBegin, PerfFinished,
                                 PerfRow, PerfAbort, PerfBye>;

// A frame's payload is at most this long.
inline constexpr std::size_t kMaxPerfFrameBytes = 64 * 1024;

std::vector<std::byte> encode(const PerfMessage& message);
// Errors: kProtocol for anything that encode() does not produce.
Result<PerfMessage> decode_perf_message(std::span<const std::byte> bytes);

}  // namespace lochos
