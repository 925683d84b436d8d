#include "transport/verbs/listener.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "transport/verbs/errors.h"

namespace lochos::verbs {
namespace {

// Connect requests that may wait between two turns of the engine thread.
constexpr int kBacklog = 128;

// How long an accepted peer may take to confirm. It has shown that it is one of us, and the
// connection manager repeats what gets lost, each 4 s; a host that starts many connections at once
// needs some seconds too.
constexpr Duration kConfirmTimeout = std::chrono::seconds(15);

SocketAddress address_of(const sockaddr* address) {
  return {address, address->sa_family == AF_INET6 ? socklen_t{sizeof(sockaddr_in6)}
                                                  : socklen_t{sizeof(sockaddr_in)}};
}

}  // namespace

Listener::Listener(VerbsRail& rail, IdHandle id, SocketAddress address)
    : rail_(rail), id_(std::move(id)), address_(address) {}

Result<std::unique_ptr<Listener>> Listener::open(VerbsRail& rail, const SocketAddress& address) {
  // With a GID index that was asked for, the rail's address is the one that this GID stands for.
  const bool means_rail = address.is_unspecified() || address.host() == rail.options.local.host();
  const SocketAddress wanted = means_rail ? rail.local.with_port(address.port()) : address;
  const auto step = [&](int returned) {
    return check_minus_one(returned, fmt::format("listening on {}", wanted.to_string()));
  };
  rdma_cm_id* raw = nullptr;
  if (auto done = step(rdma_create_id(rail.channel.get(), &raw, nullptr, RDMA_PS_TCP)); !done) {
    return fail(std::move(done.error()));
  }
  IdHandle id(raw);
  if (auto done = step(rdma_bind_addr(raw, const_cast<sockaddr*>(wanted.get()))); !done) {
    return fail(std::move(done.error()).with_transport("verbs").with_nic(rail.device->name()));
  }
  if (raw->verbs == nullptr || ibv_get_device_name(raw->verbs->device) != rail.device->name()) {
    return fail(Errc::kUnreachable,
                fmt::format("{} is no address of {}", wanted.host(), rail.device->name()));
  }
  if (auto done = step(rdma_listen(raw, kBacklog)); !done) return fail(std::move(done.error()));
  const SocketAddress real = address_of(rdma_get_local_addr(raw));
  return std::unique_ptr<Listener>(new Listener(rail, std::move(id), real));
}

std::unique_ptr<VerbsEndpoint> Listener::judge(const CmEvent& request) {
  IdHandle id(request.id);
  id->context = nullptr;  // it came with the listener's
  auto greeting = decode_greeting(request.greeting(), rail_.options.hello);
  if (!greeting) {
    refuse(id.get(), greeting.error());
    return nullptr;
  }
  auto endpoint = std::make_unique<VerbsEndpoint>(rail_);
  const Instant deadline =
      saturating_add(rail_.now, std::max(rail_.options.handshake_timeout, kConfirmTimeout));
  if (auto accepted = endpoint->accept(id, request, *greeting, deadline); !accepted) {
    refuse(id.get(), accepted.error());
    return nullptr;
  }
  return endpoint;
}

void Listener::refuse(rdma_cm_id* id, const Error& reason) {
  log_warning("refused a connection from {} to {}: {}",
              address_of(rdma_get_peer_addr(id)).to_string(), address_.to_string(),
              reason.to_string());
  const auto answer = encode_refusal(reason, rail_.options.hello);
  rdma_reject(id, answer.data(), static_cast<std::uint8_t>(answer.size()));
}

}  // namespace lochos::verbs
