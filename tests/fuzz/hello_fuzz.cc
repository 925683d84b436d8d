// A stranger's first bytes: judged without a crash, and what is accepted comes back as it was.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "transport/hello.h"
#ifdef LOCHOS_HAVE_FABRIC
#include "transport/fabric/greeting.h"
#endif

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lochos;
  const auto bytes = std::as_bytes(std::span(data, size));
  const Hello local;
  if (const auto hello = decode_hello(bytes, local)) {
    const auto again = decode_hello(encode(*hello), local);
    if (!again || *again != *hello) std::abort();
  } else if (hello.error().to_string().empty()) {
    std::abort();
  }
  if (decode_refusal(bytes, local).to_string().empty()) std::abort();
#ifdef LOCHOS_HAVE_FABRIC
  if (const auto greeting = fabric::decode_greeting(bytes, local)) {
    const auto again = fabric::decode_greeting(encode(*greeting), local);
    if (!again || again->void_key != greeting->void_key) std::abort();
  }
  if (const auto length = fabric::request_data_bytes(bytes)) {
    if (*length > fabric::kMaxRequestDataBytes) std::abort();
  }
#endif
  return 0;
}
