// Whatever bytes a local client or a node sends: decoding ends in a value or in an error, and what
// was decoded encodes to something that decodes again. The first byte picks how the stream is cut.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/check.h"
#include "node/local_codec.h"

namespace {

using namespace lochos;

// A decoded value must survive the way back; it may only be too long for a frame.
template <class Value, class Decode>
void check_again(const Value& value, Decode decode) {
  std::vector<std::byte> out;
  if (!append_frame(value, out)) return;
  const std::vector<std::byte> body(out.begin() + kFrameHeaderBytes, out.end());
  LOCHOS_CHECK(decode(body).has_value());
}

void judge(std::span<const std::byte> body) {
  if (const auto message = decode_local_message(body)) check_again(*message, decode_local_message);
  if (const auto reply = decode_local_reply(body)) check_again(*reply, decode_local_reply);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::size_t piece = data[0] + std::size_t{1};
  const std::span<const std::byte> stream(reinterpret_cast<const std::byte*>(data + 1), size - 1);
  judge(std::vector<std::byte>(stream.begin(), stream.end()));  // aligned
  FrameReader reader;
  for (std::size_t at = 0; at < stream.size();) {
    const std::size_t count = std::min(piece, stream.size() - at);
    std::memcpy(reader.prepare(count).data(), stream.data() + at, count);
    reader.commit(count);
    at += count;
    for (;;) {
      const auto frame = reader.next();
      if (!frame) return 0;
      if (frame->empty()) break;
      judge(*frame);
    }
  }
  return 0;
}
