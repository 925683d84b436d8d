#include "directory/codec.h"

#include <fmt/format.h>

#include <cstring>

#include "directory/codec_wire.h"

namespace lochos {

FrameEncoder::FrameEncoder() : state_(std::make_unique<State>()) {}
FrameEncoder::~FrameEncoder() = default;
FrameEncoder::FrameEncoder(FrameEncoder&&) noexcept = default;
FrameEncoder& FrameEncoder::operator=(FrameEncoder&&) noexcept = default;

Result<std::optional<std::uint32_t>> frame_length(std::span<const std::byte> bytes) {
  if (bytes.size() < kFrameHeaderBytes) return std::nullopt;
  std::uint32_t length;
  std::memcpy(&length, bytes.data(), sizeof length);
  if (length > kMaxFrameBytes) {
    return fail(Errc::kProtocol, fmt::format("the peer announced a frame of {} bytes, more than {}",
                                             length, kMaxFrameBytes));
  }
  return length;
}

}  // namespace lochos
