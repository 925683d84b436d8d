// The two ends of a framed byte stream on a non-blocking socket, shared by server and client.
// Neither is thread-safe.
#pragma once

#include <cstddef>
#include <span>

#include "base/clock.h"
#include "base/error.h"
#include "directory/codec.h"
#include "directory/messages.h"

namespace lochos {

// Cuts what arrives into frames. Keeps only what is not consumed yet: at most one frame, plus what
// arrived behind a payload that the caller did not want yet.
class FrameReader {
 public:
  // Hands each whole payload to `take(span) -> bool` in order; false leaves the rest for the next
  // call (`bytes` may be empty then). Errors: kProtocol for a length beyond the limit; nothing is
  // allocated for it.
  template <class F>
  Status feed(std::span<const std::byte> bytes, F&& take) {
    if (rest_.empty()) return cut(bytes, take);
    rest_.insert(rest_.end(), bytes.begin(), bytes.end());
    const Bytes whole = std::move(rest_);
    rest_.clear();
    return cut(whole, take);
  }
  bool has_rest() const { return !rest_.empty(); }
  void clear() { rest_ = {}; }

 private:
  template <class F>
  Status cut(std::span<const std::byte> bytes, F&& take) {
    bool wanted = true;
    while (wanted) {
      const auto length = frame_length(bytes);
      if (!length) return fail(length.error());
      if (!*length || bytes.size() - kFrameHeaderBytes < **length) break;
      const std::size_t frame = kFrameHeaderBytes + **length;
      wanted = take(bytes.subspan(kFrameHeaderBytes, **length));
      bytes = bytes.subspan(frame);
    }
    rest_.assign(bytes.begin(), bytes.end());
    return {};
  }

  Bytes rest_;
};

// Bytes that wait until the socket takes them.
class OutputBuffer {
 public:
  // Where encoders append.
  Bytes& bytes() { return bytes_; }
  std::size_t pending() const { return bytes_.size() - sent_; }
  // Writes what the socket takes now. Returns how much that was. Errors: the connection is broken.
  Result<std::size_t> flush(int fd);
  void clear();

 private:
  Bytes bytes_;
  std::size_t sent_ = 0;
};

// No delay for small messages; a peer that acknowledges nothing for `silence` is gone, also when
// there is nothing to send.
void tune_socket(int fd, Duration silence);

}  // namespace lochos
