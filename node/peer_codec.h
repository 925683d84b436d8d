// The messages of peer.fbs as plain values, and their form on the wire. Thread-safe (no state).
#pragma once

#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/object_id.h"

namespace lochos {

struct PullMessage {
  std::uint32_t slot = 0;
  std::uint64_t edge = 0;
  ObjectId id;
  std::uint64_t generation = 0;
  std::uint64_t first = 0;
  std::uint64_t chunk = 0;
  std::uint64_t address = 0;
  std::uint64_t key = 0;
  bool expected = false;  // the parent may get the object only after this: it waits a little
};
struct CancelPullMessage {
  std::uint32_t slot = 0;
  std::uint64_t edge = 0;
};
struct PullEndMessage {
  std::uint32_t slot = 0;
  std::uint64_t edge = 0;
  Errc reason = Errc::kCancelled;
};
struct PingMessage {
  std::int64_t time = 0;  // the sender's own clock; comes back unchanged
};
struct PongMessage {
  std::int64_t time = 0;
};

using PeerMessage =
    std::variant<PullMessage, CancelPullMessage, PullEndMessage, PingMessage, PongMessage>;

// No message is longer on the wire.
inline constexpr std::size_t kMaxPeerMessageBytes = 1024;

std::vector<std::byte> encode(const PeerMessage& message);
// Errors: kProtocol for anything that encode() cannot have made.
Result<PeerMessage> decode_peer_message(std::span<const std::byte> bytes);

}  // namespace lochos
