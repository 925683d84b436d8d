// The versioned greeting that both sides of every connection send first: as connection-manager
// private data on verbs and fabric, as the first bytes on the directory's TCP socket. Values; use
// anywhere.
//
// Fixed size and layout (little-endian), so that a stranger's bytes are judged before anything is
// allocated. 48 bytes: the RDMA connection manager carries at most 56 bytes on a connect request.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/error.h"
#include "base/node_id.h"

namespace lochos {

// 2: reduces. A peer of version 1 takes their messages for damage and hangs up.
inline constexpr std::uint16_t kProtocolVersion = 2;
inline constexpr std::uint16_t kOldestProtocolVersion =
    2;  // the oldest that this build can talk to

inline constexpr std::size_t kHelloBytes = 48;
inline constexpr std::size_t kRefusalBytes = 24;

// What the connection is for; both ends must mean the same.
enum class HelloPurpose : std::uint16_t {
  kData = 1,       // node to node
  kDirectory = 2,  // node to directory
  kPerf = 3,       // lochos perf
  kLocal = 4,      // client to its node, over the Unix socket
};

struct Hello {
  std::uint16_t version = kProtocolVersion;
  std::uint16_t oldest_version = kOldestProtocolVersion;
  HelloPurpose purpose = HelloPurpose::kData;
  std::uint32_t capabilities = 0;       // bits; unknown ones are ignored
  std::uint32_t max_message_bytes = 0;  // largest message the sender can receive
  NodeId node;                          // zero if it has none
  std::uint64_t cluster = 0;            // 0: any; else both must be equal or one of them 0

  bool operator==(const Hello&) const = default;
};

std::array<std::byte, kHelloBytes> encode(const Hello& hello);

// Judges what a peer sent first. `bytes` may be longer than a hello (padding added by a connection
// manager). Errors: kProtocol if it is no hello of Lochos; kVersionMismatch, naming both versions;
// kProtocol for another purpose or cluster than `local` expects.
Result<Hello> decode_hello(std::span<const std::byte> bytes, const Hello& local);

// What the refusing side answers, so that the refused one can name the reason.
std::array<std::byte, kRefusalBytes> encode_refusal(const Error& reason, const Hello& local);
// The error that a refusal means for the refused side. `bytes` may be anything, also empty.
Error decode_refusal(std::span<const std::byte> bytes, const Hello& local);

}  // namespace lochos
