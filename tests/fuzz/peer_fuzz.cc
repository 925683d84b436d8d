// What a peer may send on a data connection: whatever it is, decoding refuses it or gives a message
// that survives being encoded and decoded again.
#include <cstdlib>

#include "node/peer_codec.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto message = lochos::decode_peer_message(bytes);
  if (!message) return 0;
  const auto again = lochos::encode(*message);
  if (again.size() > lochos::kMaxPeerMessageBytes) std::abort();
  const auto decoded = lochos::decode_peer_message(again);
  if (!decoded || decoded->index() != message->index()) std::abort();
  if (lochos::encode(*decoded) != again) std::abort();
  return 0;
}
