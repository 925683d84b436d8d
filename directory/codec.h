// The wire form of messages.h: a 32-bit little-endian length and a FlatBuffer (directory.fbs).
// Thread word: a FrameEncoder belongs to one thread; decoding is free of state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/error.h"
#include "directory/messages.h"

namespace lochos {

inline constexpr std::size_t kFrameHeaderBytes = 4;

// Keeps its working memory from one message to the next.
class FrameEncoder {
 public:
  FrameEncoder();
  ~FrameEncoder();
  FrameEncoder(FrameEncoder&&) noexcept;
  FrameEncoder& operator=(FrameEncoder&&) noexcept;

  // Appends one frame, length first.
  void append(const NodeMessage& message, Bytes& out);
  void append(const DirectoryMessage& message, Bytes& out);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The payload length that a frame's first bytes announce; none while there are fewer than
// kFrameHeaderBytes. Errors: kProtocol beyond kMaxFrameBytes.
Result<std::optional<std::uint32_t>> frame_length(std::span<const std::byte> bytes);

// A frame's payload (without the length). Every offset is verified before anything is read, and
// every enumeration checked. Errors: kProtocol.
Result<NodeMessage> decode_node_message(std::span<const std::byte> payload);
Result<DirectoryMessage> decode_directory_message(std::span<const std::byte> payload);

}  // namespace lochos
