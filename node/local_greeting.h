// How a connection on the node's Unix socket begins. The client sends a Hello (purpose kLocal); the
// node answers in one message with its own Hello, the PoolOffer below and the pool's memfd
// (SCM_RIGHTS), or with a refusal and the end of the connection. Frames follow (local.fbs).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "base/error.h"
#include "base/unique_fd.h"
#include "directory/messages.h"
#include "transport/hello.h"

struct sockaddr_un;

namespace lochos {

// A client or a node that has not finished its part by then is refused.
inline constexpr Duration kLocalGreetingTimeout = std::chrono::milliseconds(800);

struct PoolOffer {
  std::uint64_t bytes = 0;  // of the pool: how much of the memfd to map
  std::uint64_t reserved = 0;
};
static_assert(sizeof(PoolOffer) == 16 && std::is_trivially_copyable_v<PoolOffer>);

inline constexpr std::size_t kLocalAnswerBytes = kHelloBytes + sizeof(PoolOffer);

inline Hello local_hello() {
  Hello hello;
  hello.purpose = HelloPurpose::kLocal;
  hello.max_message_bytes = kMaxFrameBytes;
  return hello;
}

// Errors: kInvalidArgument if `path` is empty or does not fit (the limit is named).
Status make_socket_address(const std::string& path, sockaddr_un& address);

// What a client has after the greeting.
struct LocalConnection {
  UniqueFd socket;  // non-blocking
  UniqueFd memfd;
  std::uint64_t pool_bytes = 0;
};

// Connects and greets. Blocks until `deadline` at most. Errors: kUnreachable (no node there, with
// the fix), kVersionMismatch, kTimedOut, kProtocol, kPermission, kInvalidArgument.
Result<LocalConnection> connect_to_node(const std::string& path, Instant deadline);

}  // namespace lochos
