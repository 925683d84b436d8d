#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "node/local_codec.h"

namespace lochos {
namespace {

constexpr std::size_t kAlignment = 8;  // of the largest scalar in the schema
// Where the first frame is put, so that what follows its length is aligned and need not be copied.
constexpr std::size_t kFront = kAlignment - kFrameHeaderBytes;

}  // namespace

std::span<std::byte> FrameReader::prepare(std::size_t least) {
  if (begin_ == end_) begin_ = end_ = kFront;
  if (buffer_.size() < end_ + least && begin_ > kFront) {
    std::memmove(buffer_.data() + kFront, buffer_.data() + begin_, buffered());
    end_ -= begin_ - kFront;
    begin_ = kFront;
  }
  if (buffer_.size() < end_ + least) buffer_.resize(end_ + least);
  return std::span(buffer_).subspan(end_);
}

Result<std::span<const std::byte>> FrameReader::next() {
  if (buffered() < kFrameHeaderBytes) return std::span<const std::byte>();
  std::uint32_t length = 0;
  std::memcpy(&length, buffer_.data() + begin_, sizeof length);
  if (length == 0 || length > kMaxFrameBytes) {
    return fail(Errc::kProtocol,
                fmt::format("a frame of {} bytes; it may have 1 to {}", length, kMaxFrameBytes));
  }
  if (buffered() < kFrameHeaderBytes + length) return std::span<const std::byte>();
  const std::span<const std::byte> frame(buffer_.data() + begin_ + kFrameHeaderBytes, length);
  begin_ += kFrameHeaderBytes + length;
  if (reinterpret_cast<std::uintptr_t>(frame.data()) % kAlignment == 0) return frame;
  aligned_.assign(frame.begin(), frame.end());
  return std::span<const std::byte>(aligned_);
}

}  // namespace lochos
