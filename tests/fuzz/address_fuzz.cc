// An address as somebody may type it: parsed without a crash, and what is accepted reads back.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "transport/address.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using lochos::SocketAddress;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const int default_port : {-1, 7777}) {
    const auto address = SocketAddress::parse(text, default_port);
    if (!address) continue;
    const auto again = SocketAddress::parse(address->to_string());
    if (!again || *again != *address || again->port() != address->port()) std::abort();
  }
  return 0;
}
