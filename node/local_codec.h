// LocalMessage and LocalReply as frames on the Unix socket (local.fbs). Thread-safe functions of
// their arguments; whatever bytes come in, decoding ends in a value or in kProtocol.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"
#include "directory/messages.h"
#include "node/local_messages.h"

namespace lochos {

// A frame is a 32-bit length and that many bytes, at most kMaxFrameBytes (the directory's limit).
inline constexpr std::size_t kFrameHeaderBytes = 4;

// Append one frame to `out`. Errors: kInvalidArgument if it would be longer than kMaxFrameBytes
// (`out` is then unchanged); kUnsupported for what cannot leave the process (user memory).
Status append_frame(const LocalMessage& message, std::vector<std::byte>& out);
Status append_frame(const LocalReply& reply, std::vector<std::byte>& out);

// `buffer` is a frame without its length. REQUIRES: it lies at a multiple of 8, as FrameReader's
// do. Errors: kProtocol.
Result<LocalMessage> decode_local_message(std::span<const std::byte> buffer);
Result<LocalReply> decode_local_reply(std::span<const std::byte> buffer);

// Cuts a byte stream into frames. One thread.
class FrameReader {
 public:
  // Room for the next bytes of the stream, at least `least` bytes; commit() says how many came.
  std::span<std::byte> prepare(std::size_t least);
  void commit(std::size_t count) { end_ += count; }

  // The next whole frame (without its length), aligned for reading; empty span if there is none
  // yet. Valid until the next call. Errors: kProtocol for a length of zero or above kMaxFrameBytes.
  Result<std::span<const std::byte>> next();

 private:
  std::size_t buffered() const { return end_ - begin_; }

  std::vector<std::byte> buffer_;
  std::size_t begin_ = 0;  // of what was not given out yet
  std::size_t end_ = 0;
  std::vector<std::byte> aligned_;
};

}  // namespace lochos
