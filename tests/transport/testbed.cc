#include "tests/transport/testbed.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "base/unique_fd.h"
#include "tests/ipv6_loopback.h"
#include "transport/sim/sim_network.h"
#ifdef LOCHOS_HAVE_FABRIC
#include "transport/fabric/fabric_transport.h"
#endif
#ifdef LOCHOS_HAVE_VERBS
#include "transport/topology.h"
#include "transport/verbs/verbs_transport.h"
#endif

namespace lochos {
namespace {

// Real time, and descriptors to sleep on.
class RealTestbed : public Testbed {
 public:
  Instant now() const override { return clock_.now(); }

  void idle(std::span<TestHost*> hosts, Instant limit) override {
    std::vector<pollfd> descriptors;
    for (TestHost* host : hosts) {
      if (!host->alive() || !host->polls) continue;
      if (!host->transport().arm()) return;
      descriptors.push_back({host->transport().event_fd(), POLLIN, 0});
      limit = std::min(limit, host->transport().next_deadline());
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(limit - now()).count();
    ::poll(descriptors.data(), descriptors.size(),
           static_cast<int>(std::clamp<std::int64_t>(left, 0, 1000)));
  }

  void kill(TestHost& host, std::size_t) override { host.destroy(); }

 private:
  SteadyClock clock_;
};

#ifdef LOCHOS_HAVE_FABRIC
class FabricTestbed final : public RealTestbed {
 public:
  explicit FabricTestbed(std::string provider) : provider_(std::move(provider)) {}

  Result<std::unique_ptr<Transport>> open(std::size_t, const TransportOptions& options) override {
    FabricOptions fabric;
    static_cast<TransportOptions&>(fabric) = options;
    fabric.provider = provider_;
    return open_fabric_transport(fabric);
  }
  SocketAddress address(std::size_t) const override { return *SocketAddress::parse("127.0.0.1:0"); }
  Result<SocketAddress> address_v6() const override {
    if (!has_ipv6_loopback()) return fail(Errc::kUnsupported, "the system has no address ::1");
    return SocketAddress::parse("[::1]:0");
  }

  // A listening socket whose queue is full drops further requests in silence.
  Result<SocketAddress> blackhole() override {
    SocketAddress full = *SocketAddress::parse("127.0.0.1:0");
    full_.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int listener = full_.back().get();
    sockaddr_storage name{};
    socklen_t length = sizeof name;
    auto* address = reinterpret_cast<sockaddr*>(&name);
    if (::bind(listener, full.get(), full.length()) != 0 || ::listen(listener, 0) != 0 ||
        ::getsockname(listener, address, &length) != 0) {
      return fail(system_error(errno, "make a socket with a full queue"));
    }
    for (int count = 0; count < 3; ++count) {
      full_.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      ::connect(full_.back().get(), address, length);
    }
    return SocketAddress(address, length);
  }

 private:
  const std::string provider_;
  std::vector<UniqueFd> full_;
};
#endif

#ifdef LOCHOS_HAVE_VERBS
// Where the suite finds an RDMA port.
struct VerbsAddresses {
  SocketAddress v4;
  std::optional<SocketAddress> v6;
};

class VerbsTestbed final : public RealTestbed {
 public:
  explicit VerbsTestbed(const VerbsAddresses& addresses) : addresses_(addresses) {}

  Result<std::unique_ptr<Transport>> open(std::size_t, const TransportOptions& options) override {
    VerbsOptions verbs;
    static_cast<TransportOptions&>(verbs) = options;
    verbs.local = addresses_.v4;
    return open_verbs_transport(verbs);
  }
  SocketAddress address(std::size_t) const override { return addresses_.v4; }
  Result<SocketAddress> address_v6() const override {
    if (addresses_.v6) return *addresses_.v6;
    return fail(Errc::kUnsupported, "the RDMA port has no IPv6 address");
  }
  Result<SocketAddress> blackhole() override {
    // A neighbour that is not there: hosts are seldom numbered 253.
    const std::string host = addresses_.v4.host();
    return SocketAddress::parse(host.substr(0, host.rfind('.')) + ".253:9");
  }

 private:
  const VerbsAddresses addresses_;
};

// The first RDMA port of this host that could be a rail, or why there is none.
Result<VerbsAddresses> find_verbs_addresses() {
  auto host = discover_topology();
  if (!host) return fail(host.error());
  if (!host->no_rdma_reason.empty()) return fail(Errc::kUnsupported, host->no_rdma_reason);
  auto rails = choose_rails(*host, InterfaceFilter(), {.tcp = false, .verbs = true});
  if (!rails) return fail(rails.error());
  const RailChoice& first = rails->front();  // chosen ones come first
  if (!first.chosen || first.address.family() != AF_INET) {
    const std::string& why = host->rdma_ports.front().port.why_unusable;
    return fail(Errc::kUnsupported, why.empty() ? "no RDMA port has an IPv4 address" : why);
  }
  VerbsAddresses addresses{.v4 = first.address, .v6 = std::nullopt};
  for (const RailChoice& rail : *rails) {
    if (rail.device != first.device || rail.address.family() != AF_INET6) continue;
    if (!addresses.v6) addresses.v6 = rail.address;
  }
  return addresses;
}

Result<std::unique_ptr<Testbed>> open_verbs() {
  static const Result<VerbsAddresses> addresses = find_verbs_addresses();  // looking takes a while
  if (!addresses) return fail(addresses.error());
  auto testbed = std::make_unique<VerbsTestbed>(*addresses);
  auto probe = testbed->open(0, {});
  if (!probe) return fail(probe.error());
  return testbed;
}
#endif

class SimTestbed final : public Testbed {
 public:
  Result<std::unique_ptr<Transport>> open(std::size_t index,
                                          const TransportOptions& options) override {
    hosts_ = std::max(hosts_, index + 1);
    return network_.open_transport(address(index), options);
  }
  SocketAddress address(std::size_t index) const override {
    return *SocketAddress::parse("10.0.0." + std::to_string(index + 1) + ":0");
  }
  Result<SocketAddress> address_v6() const override {
    return fail(Errc::kInvalidArgument, "addresses are only names here");
  }
  Result<SocketAddress> blackhole() override {
    const SocketAddress lost = *SocketAddress::parse("192.0.2.123:9");
    for (std::size_t index = 0; index < hosts_; ++index)
      network_.cut(address(index), lost);
    return lost;
  }
  Instant now() const override { return network_.now(); }
  void idle(std::span<TestHost*> hosts, Instant limit) override {
    for (TestHost* host : hosts) {
      if (!host->alive() || !host->polls) continue;
      if (!host->transport().arm()) return;
      limit = std::min(limit, host->transport().next_deadline());
    }
    network_.step(limit);
  }
  void kill(TestHost& host, std::size_t index) override {
    network_.kill(address(index), true);
    host.polls = false;
  }

 private:
  SimNetwork network_{1};
  std::size_t hosts_ = 0;
};

}  // namespace

bool TestHost::turn(Instant now) {
  if (!alive() || !polls) return false;
  std::vector<Completion> completions(batch);
  std::vector<ConnectionEvent> new_events(
      batch, ConnectionEvent{.kind = {}, .endpoint = nullptr, .peer = {}});
  const std::size_t count = transport_->poll(completions);
  for (const Completion& completion : std::span(completions).first(count)) {
    check(completion);
    auto& list = completion.kind == Completion::Kind::kRequest ? requests : arrivals;
    list.push_back({completion, {completion.message.begin(), completion.message.end()}});
  }
  const std::size_t event_count = transport_->poll_connections(now, new_events);
  for (const ConnectionEvent& event : std::span(new_events).first(event_count))
    check(event);
  events.insert(
      events.end(), std::make_move_iterator(new_events.begin()),
      std::make_move_iterator(new_events.begin() + static_cast<std::ptrdiff_t>(event_count)));
  return count + event_count > 0;
}

void TestHost::check(const Completion& completion) {
  if (disorder.empty() && !open_.contains(completion.endpoint)) {
    disorder = "a completion of an endpoint that is not established, or has ended";
  }
}

void TestHost::check(const ConnectionEvent& event) {
  const bool was_open = open_.contains(event.endpoint);
  if (event.kind == ConnectionEvent::Kind::kEstablished) {
    open_.insert(event.endpoint);
    if (was_open) disorder = "an endpoint was established twice";
  } else {
    open_.erase(event.endpoint);
    if (was_open != (event.kind == ConnectionEvent::Kind::kClosed)) {
      disorder = "an endpoint failed after it was established, or ended before";
    }
    if (was_open && event.endpoint->outstanding() > 0) disorder = "it ended before its requests";
  }
}

const ConnectionEvent* TestHost::find(ConnectionEvent::Kind kind, const Endpoint* endpoint) const {
  for (const ConnectionEvent& event : events) {
    if (event.kind == kind && event.endpoint == endpoint) return &event;
  }
  return nullptr;
}

std::size_t TestHost::count(ConnectionEvent::Kind kind) const {
  return static_cast<std::size_t>(
      std::count_if(events.begin(), events.end(),
                    [&](const ConnectionEvent& event) { return event.kind == kind; }));
}

std::vector<Backend> all_backends() {
  std::vector<Backend> backends;
#ifdef LOCHOS_HAVE_FABRIC
  backends.push_back({.name = "fabric_tcp", .open = []() -> Result<std::unique_ptr<Testbed>> {
                        return std::make_unique<FabricTestbed>("tcp");
                      }});
#endif
#ifdef LOCHOS_HAVE_VERBS
  backends.push_back({.name = "verbs", .needs_device = true, .cycles = 30, .open = open_verbs});
#endif
  backends.push_back(
      {.name = "sim", .is_real = false, .open = []() -> Result<std::unique_ptr<Testbed>> {
         return std::make_unique<SimTestbed>();
       }});
  return backends;
}

std::vector<Backend> real_backends() {
  std::vector<Backend> backends = all_backends();
  std::erase_if(backends, [](const Backend& backend) { return !backend.is_real; });
  return backends;
}

}  // namespace lochos
