#include "transport/verbs/connection_manager.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.h"

namespace lochos::verbs {
namespace {

constexpr std::byte kGreetingTag{'V'};

// Reasons of a rejection, from the InfiniBand specification (volume 1, 12.6.7.2).
constexpr int kRejectedNobodyListens = 8;
constexpr int kRejectedStale = 10;
constexpr int kRejectedByConsumer = 28;

void copy_connection(const rdma_conn_param& from, CmEvent& to) {
  to.responder_resources = from.responder_resources;
  to.initiator_depth = from.initiator_depth;
  if (from.private_data == nullptr) return;
  to.private_bytes = std::min<std::size_t>(from.private_data_len, to.private_data.size());
  std::memcpy(to.private_data.data(), from.private_data, to.private_bytes);
}

}  // namespace

std::optional<CmEvent> next_event(rdma_event_channel* channel) {
  rdma_cm_event* event = nullptr;
  if (rdma_get_cm_event(channel, &event) != 0) {
    if (errno != EAGAIN && errno != EINTR) {
      log_error("{}", system_error(errno, "rdma_get_cm_event").to_string());
    }
    return std::nullopt;
  }
  CmEvent copy;
  copy.type = event->event;
  copy.status = event->status;
  copy.id = event->id;
  copy.listener = event->listen_id;
  copy_connection(event->param.conn, copy);
  rdma_ack_cm_event(event);
  return copy;
}

Error connect_error(const CmEvent& event, const Hello& local) {
  // Statuses are negative errno values, except for a rejection.
  const auto system = [&](std::string_view what) {
    return Error(Errc::kUnreachable, system_error(-event.status, what).message());
  };
  switch (event.type) {
    case RDMA_CM_EVENT_ADDR_ERROR:
      return system("finding the address").with_cause("no route, or no such neighbour");
    case RDMA_CM_EVENT_ROUTE_ERROR:
      return system("finding the route").with_cause("no path between the two RDMA ports");
    case RDMA_CM_EVENT_CONNECT_ERROR:
      return system("setting up the connection");
    case RDMA_CM_EVENT_UNREACHABLE:
      return system("no answer to the connection request")
          .with_cause("the peer is down, or UDP port 4791 is blocked");
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      return Error(Errc::kUnreachable, "the RDMA device was removed");
    case RDMA_CM_EVENT_REJECTED:
      break;
    default:
      return Error(Errc::kUnreachable,
                   fmt::format("the connection manager reports {}", rdma_event_str(event.type)));
  }
  if (event.status == kRejectedByConsumer) return decode_refusal(event.greeting(), local);
  if (event.status == kRejectedNobodyListens) {
    return Error(Errc::kUnreachable, "connection refused")
        .with_cause("nothing listens on that port over RDMA");
  }
  if (event.status == kRejectedStale) {
    return Error(Errc::kUnreachable, "the peer still holds an earlier connection; try again");
  }
  return Error(Errc::kUnreachable,
               fmt::format("the peer's connection manager refused (reason {})", event.status));
}

std::array<std::byte, kGreetingBytes> encode(const Greeting& greeting) {
  std::array<std::byte, kGreetingBytes> bytes{};
  const auto hello = encode(greeting.hello);
  std::copy(hello.begin(), hello.end(), bytes.begin());
  if (greeting.mtu) {
    bytes[kHelloBytes] = kGreetingTag;
    bytes[kHelloBytes + 1] = static_cast<std::byte>(*greeting.mtu);
  }
  return bytes;
}

Result<Greeting> decode_greeting(std::span<const std::byte> bytes, const Hello& local) {
  auto hello = decode_hello(bytes, local);
  if (!hello) return fail(std::move(hello.error()));
  Greeting greeting{.hello = *hello, .mtu = std::nullopt};
  if (bytes.size() >= kHelloBytes + 2 && bytes[kHelloBytes] == kGreetingTag) {
    const auto mtu = static_cast<int>(bytes[kHelloBytes + 1]);
    if (mtu < IBV_MTU_256 || mtu > IBV_MTU_4096) {
      return fail(Errc::kProtocol, fmt::format("the peer's greeting has no valid MTU ({})", mtu));
    }
    greeting.mtu = static_cast<ibv_mtu>(mtu);
  }
  return greeting;
}

}  // namespace lochos::verbs
