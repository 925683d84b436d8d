#include "transport/hello.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

namespace lochos {
namespace {

static_assert(std::endian::native == std::endian::little, "the wire format is little-endian");

constexpr std::uint32_t kHelloMagic = 0x484f434c;    // "LCOH"
constexpr std::uint32_t kRefusalMagic = 0x4e4f434c;  // "LCON"

class Writer {
 public:
  explicit Writer(std::span<std::byte> out) : out_(out) {}
  template <class T>
  void put(T value) {
    std::memcpy(out_.data(), &value, sizeof value);
    out_ = out_.subspan(sizeof value);
  }

 private:
  std::span<std::byte> out_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> in) : in_(in) {}
  template <class T>
  T get() {
    T value;
    std::memcpy(&value, in_.data(), sizeof value);
    in_ = in_.subspan(sizeof value);
    return value;
  }

 private:
  std::span<const std::byte> in_;
};

Error version_error(std::uint16_t theirs, std::uint16_t theirs_oldest, const Hello& local) {
  return Error(Errc::kVersionMismatch,
               fmt::format("the peer speaks protocol version {} (oldest it accepts: {}), this side "
                           "speaks version {} (oldest it accepts: {})",
                           theirs, theirs_oldest, local.version, local.oldest_version))
      .with_fix("run the same release of lochos on both sides");
}

}  // namespace

std::array<std::byte, kHelloBytes> encode(const Hello& hello) {
  std::array<std::byte, kHelloBytes> bytes{};
  Writer out(bytes);
  out.put(kHelloMagic);
  out.put(hello.version);
  out.put(hello.oldest_version);
  out.put(static_cast<std::uint16_t>(hello.purpose));
  out.put(std::uint16_t{0});  // reserved
  out.put(hello.capabilities);
  out.put(hello.max_message_bytes);
  out.put(hello.node.number);
  out.put(hello.node.incarnation);
  out.put(hello.cluster);
  return bytes;
}

Result<Hello> decode_hello(std::span<const std::byte> bytes, const Hello& local) {
  if (bytes.size() < kHelloBytes) {
    return fail(Errc::kProtocol,
                fmt::format("the peer's greeting has {} bytes, not {}: it is no lochos process",
                            bytes.size(), kHelloBytes));
  }
  Reader in(bytes);
  if (in.get<std::uint32_t>() != kHelloMagic) {
    return fail(Errc::kProtocol, "the peer's first bytes are no lochos greeting");
  }
  Hello hello;
  hello.version = in.get<std::uint16_t>();
  hello.oldest_version = in.get<std::uint16_t>();
  if (hello.version < local.oldest_version || hello.oldest_version > local.version) {
    return fail(version_error(hello.version, hello.oldest_version, local));
  }
  hello.purpose = static_cast<HelloPurpose>(in.get<std::uint16_t>());
  in.get<std::uint16_t>();
  hello.capabilities = in.get<std::uint32_t>();
  hello.max_message_bytes = in.get<std::uint32_t>();
  hello.node.number = in.get<std::uint32_t>();
  hello.node.incarnation = in.get<std::uint64_t>();
  hello.cluster = in.get<std::uint64_t>();
  if (hello.purpose != local.purpose) {
    return fail(Errc::kProtocol,
                fmt::format("the peer wants service {}, this port serves {} (1 data, 2 directory, "
                            "3 perf, 4 local)",
                            static_cast<int>(hello.purpose), static_cast<int>(local.purpose)));
  }
  if (hello.cluster != 0 && local.cluster != 0 && hello.cluster != local.cluster) {
    return fail(Errc::kProtocol, "the peer belongs to another cluster");
  }
  return hello;
}

std::array<std::byte, kRefusalBytes> encode_refusal(const Error& reason, const Hello& local) {
  std::array<std::byte, kRefusalBytes> bytes{};
  Writer out(bytes);
  out.put(kRefusalMagic);
  out.put(local.version);
  out.put(local.oldest_version);
  out.put(static_cast<std::uint8_t>(reason.code()));
  return bytes;
}

Error decode_refusal(std::span<const std::byte> bytes, const Hello& local) {
  Reader in(bytes);
  if (bytes.size() < kRefusalBytes || in.get<std::uint32_t>() != kRefusalMagic) {
    return Error(Errc::kUnreachable, "the peer refused the connection")
        .with_cause("nothing listens there, or it is no lochos process");
  }
  const auto version = in.get<std::uint16_t>();
  const auto oldest = in.get<std::uint16_t>();
  const auto code = static_cast<Errc>(in.get<std::uint8_t>());
  if (version < local.oldest_version || oldest > local.version || code == Errc::kVersionMismatch) {
    return version_error(version, oldest, local);
  }
  if (code == Errc::kFenced) return Error(Errc::kFenced, "the peer knows this node as dead");
  return Error(Errc::kProtocol, "the peer refused the greeting")
      .with_cause("another service or another cluster at that address");
}

}  // namespace lochos
