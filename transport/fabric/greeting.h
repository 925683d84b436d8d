// What travels as connection-manager data on fi_connect and fi_accept: the hello of every backend,
// and where a write without bytes may point. Values.
//
// A write of length 0 with an immediate must name memory that the peer has registered, or some
// providers break the connection. Callers need not: each side tells the other one such place.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/hello.h"

namespace lochos::fabric {

inline constexpr std::size_t kGreetingBytes = kHelloBytes + 16;

struct Greeting {
  Hello hello;
  std::uint64_t void_address = 0;
  std::uint64_t void_key = 0;
};

std::array<std::byte, kGreetingBytes> encode(const Greeting& greeting);
// Errors: those of decode_hello.
Result<Greeting> decode_greeting(std::span<const std::byte> bytes, const Hello& local);

// The first bytes on a connection of the provider `tcp`: a header and the data of fi_connect. Our
// listener reads them in the provider's place (see listener.h) and refuses in its language.
inline constexpr std::size_t kRequestHeaderBytes = 32;
inline constexpr std::size_t kMaxRequestDataBytes = 256;
inline constexpr std::size_t kRejectionBytes = kRequestHeaderBytes + kRefusalBytes;

// How many bytes follow the header. Errors: kProtocol if it is not the header of a connection
// request. `header` may be shorter than a header: then what is there is judged and the answer is 0.
Result<std::size_t> request_data_bytes(std::span<const std::byte> header);
std::array<std::byte, kRejectionBytes> encode_rejection(const Error& reason, const Hello& local);

}  // namespace lochos::fabric
