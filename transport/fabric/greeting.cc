#include "transport/fabric/greeting.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace lochos::fabric {
namespace {

// libfabric's control header, unchanged since 1.6: version, type, length of the data in network
// order, 20 bytes unused, then a 1 in the sender's byte order.
constexpr std::byte kControlVersion{3};
constexpr std::byte kConnectionRequest{0};
constexpr std::byte kRejection{6};
constexpr std::size_t kLengthOffset = 2;
constexpr std::size_t kByteOrderOffset = 24;

}  // namespace

std::array<std::byte, kGreetingBytes> encode(const Greeting& greeting) {
  std::array<std::byte, kGreetingBytes> bytes;
  const auto hello = encode(greeting.hello);
  std::memcpy(bytes.data(), hello.data(), kHelloBytes);
  std::memcpy(bytes.data() + kHelloBytes, &greeting.void_address, 8);
  std::memcpy(bytes.data() + kHelloBytes + 8, &greeting.void_key, 8);
  return bytes;
}

Result<Greeting> decode_greeting(std::span<const std::byte> bytes, const Hello& local) {
  auto hello = decode_hello(bytes, local);
  if (!hello) return fail(std::move(hello).error());
  if (bytes.size() < kGreetingBytes) {
    return fail(Errc::kProtocol, fmt::format("the peer's greeting has {} bytes, not {}",
                                             bytes.size(), kGreetingBytes));
  }
  Greeting greeting;
  greeting.hello = *hello;
  std::memcpy(&greeting.void_address, bytes.data() + kHelloBytes, 8);
  std::memcpy(&greeting.void_key, bytes.data() + kHelloBytes + 8, 8);
  return greeting;
}

Result<std::size_t> request_data_bytes(std::span<const std::byte> header) {
  if ((!header.empty() && header[0] != kControlVersion) ||
      (header.size() > 1 && header[1] != kConnectionRequest)) {
    return fail(Errc::kProtocol, "the first bytes are no connection request");
  }
  if (header.size() < kLengthOffset + 2) return std::size_t{0};
  std::uint16_t length;
  std::memcpy(&length, header.data() + kLengthOffset, sizeof length);
  length = ntohs(length);
  if (length < kHelloBytes || length > kMaxRequestDataBytes) {
    return fail(Errc::kProtocol,
                fmt::format("a connection request with {} bytes of data, not {} to {}", length,
                            kHelloBytes, kMaxRequestDataBytes));
  }
  return std::size_t{length};
}

std::array<std::byte, kRejectionBytes> encode_rejection(const Error& reason, const Hello& local) {
  std::array<std::byte, kRejectionBytes> bytes{};
  bytes[0] = kControlVersion;
  bytes[1] = kRejection;
  const std::uint16_t length = htons(kRefusalBytes);
  std::memcpy(bytes.data() + kLengthOffset, &length, sizeof length);
  bytes[kByteOrderOffset] = std::byte{1};
  const auto refusal = encode_refusal(reason, local);
  std::memcpy(bytes.data() + kRequestHeaderBytes, refusal.data(), refusal.size());
  return bytes;
}

}  // namespace lochos::fabric
