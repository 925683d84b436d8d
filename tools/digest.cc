#include "tools/digest.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>

namespace lochos {

std::string sha256(std::span<const std::byte> bytes) {
  std::array<unsigned char, 32> digest{};
  unsigned length = digest.size();
  EVP_Digest(bytes.data(), bytes.size(), digest.data(), &length, EVP_sha256(), nullptr);
  std::string hex;
  for (const unsigned char byte : digest)
    hex += fmt::format("{:02x}", byte);
  return hex;
}

}  // namespace lochos
