// The parts of rdma_cm that set-up needs as values: one event, and the greeting that both sides put
// into the private data. Engine thread only.
#pragma once

#include <rdma/rdma_cma.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/error.h"
#include "transport/hello.h"
#include "transport/verbs/handles.h"

namespace lochos::verbs {

// A copy of an event that is acknowledged already, so that its id may be destroyed while handling
// it.
struct CmEvent {
  rdma_cm_event_type type{};
  int status = 0;
  rdma_cm_id* id = nullptr;  // a connect request: the new id, which is ours now
  rdma_cm_id* listener = nullptr;
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  std::array<std::byte, 255> private_data{};  // a length is one byte on the wire
  std::size_t private_bytes = 0;              // padding included

  std::span<const std::byte> greeting() const {
    return std::span(private_data).first(private_bytes);
  }
};

// Nothing: no event is there, or the channel is broken (logged).
std::optional<CmEvent> next_event(rdma_event_channel* channel);

// What an event that ends a set-up means to the side that wanted to connect.
Error connect_error(const CmEvent& event, const Hello& local);

// A hello, and after it what only this backend needs to agree on. 56 bytes: all that a connect
// request carries.
struct Greeting {
  Hello hello;
  // The largest packet this side can take. Both sides use the smaller one: with different packet
  // sizes a connection comes up and then breaks at the first long write.
  std::optional<ibv_mtu> mtu;
};

inline constexpr std::size_t kGreetingBytes = 56;
static_assert(kHelloBytes + 8 <= kGreetingBytes);

std::array<std::byte, kGreetingBytes> encode(const Greeting& greeting);
// Errors: those of decode_hello.
Result<Greeting> decode_greeting(std::span<const std::byte> bytes, const Hello& local);

}  // namespace lochos::verbs
