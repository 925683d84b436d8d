// The measured connection of `lochos perf`: a transport with one endpoint, memory that the other
// side may write and read, and a watch over both processes while a loop runs. One thread.
//
// The memory has two areas of the same layout: messages leave from `outgoing` and arrive in
// `incoming`. Without --verify every message uses the same place; with it, as many places as
// messages are under way at once, each with contents of its own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "tools/perf_control.h"
#include "tools/perf_parameters.h"
#include "transport/transport.h"

namespace lochos {

// What both sides know beforehand about the messages of one size.
struct PerfLayout {
  std::uint64_t size = 0;
  std::uint64_t stride = 0;  // bytes from one place to the next
  std::uint64_t slots = 1;   // places
  std::uint64_t bytes() const { return stride * slots; }
};
PerfLayout perf_layout(const PerfParameters& parameters, std::uint64_t size);

// How the user wants the transport to be opened.
struct PerfRail {
  std::string provider = "tcp";
  int gid_index = -1;
};

// Opens the rail that a run with these parameters needs, on `local`. Errors: those of the
// factories.
Result<std::unique_ptr<Transport>> open_perf_transport(TransportKind kind,
                                                       const PerfParameters& parameters,
                                                       const SocketAddress& local,
                                                       const PerfRail& rail);

// Memory from the system, zeroed; given back when this is destroyed.
class PerfMemoryArea {
 public:
  static Result<PerfMemoryArea> allocate(std::uint64_t bytes);
  PerfMemoryArea(PerfMemoryArea&& other) noexcept;
  PerfMemoryArea& operator=(PerfMemoryArea&&) = delete;
  ~PerfMemoryArea();
  std::span<std::byte> bytes() const { return bytes_; }

 private:
  explicit PerfMemoryArea(std::span<std::byte> bytes) : bytes_(bytes) {}
  std::span<std::byte> bytes_;
};

class PerfLink {
 public:
  // Connects to `address` (the client), or waits for the other side on a transport that listens
  // (the server: nullptr), and exchanges memory. The control connection must outlive the link.
  // Errors: kTimedOut, kConnectionLost, kUnreachable, kCancelled, kPermission, kSystem.
  static Result<std::unique_ptr<PerfLink>> establish(std::unique_ptr<Transport> transport,
                                                     const SocketAddress* address,
                                                     PerfControl& control,
                                                     const PerfParameters& parameters);
  ~PerfLink();

  Transport& transport() const { return *transport_; }
  Endpoint& endpoint() const { return *endpoint_; }
  const Region& region() const { return *region_; }
  PerfControl& control() const { return control_; }
  std::span<std::byte> outgoing() const { return region_->memory().first(area_bytes_); }
  std::span<std::byte> incoming() const { return region_->memory().subspan(area_bytes_); }
  // The other side's, as told by it: where its `outgoing` and `incoming` begin, and its limits.
  const PerfMemory& remote() const { return remote_; }
  // The most that one request of this kind carries on this link.
  std::uint64_t max_piece(PerfOp op) const;

  // The requests that move one message of `layout` in place `slot`, in pieces that the link can
  // carry, appended to `requests`. `last_write` is the opcode of a write's last piece.
  void append_message(PerfOp op, const PerfLayout& layout, std::uint64_t slot, Opcode last_write,
                      std::vector<WorkRequest>& requests) const;

  // Call when a turn found nothing to do: looks from time to time whether both sides are well and,
  // with `events`, sleeps until there is something. Progress is whatever the caller counts in
  // `progress`; nothing for a side that cannot see any, whose peer watches for both. Errors:
  // kConnectionLost, kTimedOut without progress for kStallTimeout, kCancelled.
  Status idle(std::optional<std::uint64_t> progress);
  void sleep_when_idle(bool events) { events_ = events; }

  // Waits for a control message while the transport goes on working for the other side.
  template <class T>
  Result<T> receive_a();

 private:
  static constexpr Duration kStallTimeout = std::chrono::seconds(8);
  // Empty turns between two looks; a look costs about as much as twenty turns.
  static constexpr unsigned kTurnsBetweenLooks = 4096;

  PerfLink(std::unique_ptr<Transport> transport, PerfControl& control, bool events);
  Status connect(const SocketAddress* address, Instant deadline);
  Status exchange_memory(const PerfParameters& parameters, Instant deadline);
  Status look(Instant now);
  Status take_connection_events(Instant now);
  void sleep(Instant now);
  Status wait_for_control();
  void drain();

  PerfControl& control_;
  std::unique_ptr<PerfMemoryArea> memory_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Region> region_;
  Endpoint* endpoint_ = nullptr;
  bool closed_ = false;
  std::uint64_t area_bytes_ = 0;
  PerfMemory remote_;
  bool events_ = false;
  bool woken_ = false;  // from sleep, and not by the transport
  unsigned idle_turns_ = 0;
  std::uint64_t last_progress_ = 0;
  Instant last_progress_time_;
};

template <class T>
Result<T> PerfLink::receive_a() {
  if (auto waited = wait_for_control(); !waited) return fail(waited.error());
  return control_.receive_a<T>(SteadyClock().now());
}

}  // namespace lochos
