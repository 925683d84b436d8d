#include "node/rails.h"

#include <fmt/format.h>

#include "base/log.h"
#include "node/peer_codec.h"
#include "transport/fabric/fabric_transport.h"
#include "transport/verbs/verbs_transport.h"

namespace lochos {
namespace {

// Sizes that every rail of a node shares.
void set_common_options(TransportOptions& options) {
  options.hello.purpose = HelloPurpose::kData;
  options.hello.max_message_bytes = kMaxPeerMessageBytes;
  // Control messages only; data is written one-sided.
  options.receive_buffer_bytes = kMaxPeerMessageBytes;
  options.receive_buffers = 64;
}

Result<std::unique_ptr<Transport>> open_transport(const NodeOptions& options,
                                                  const RailChoice& choice) {
  if (choice.kind == TransportKind::kVerbs) {
    VerbsOptions verbs;
    set_common_options(verbs);
    verbs.local = choice.address;
    verbs.gid_index = options.gid_index;
    verbs.mtu = options.rdma_mtu;
    verbs.service_level = options.service_level;
    verbs.traffic_class = options.traffic_class;
    return open_verbs_transport(verbs);
  }
  FabricOptions fabric;
  set_common_options(fabric);
  fabric.local = choice.address;
  fabric.provider = options.provider;
  return open_fabric_transport(fabric);
}

Result<Rail> open_rail(const NodeOptions& options, const RailChoice& choice, std::uint16_t port) {
  auto transport = open_transport(options, choice);
  if (!transport) return fail(transport.error());
  auto address = (*transport)->listen(choice.address.with_port(port));
  if (!address) return fail(address.error());
  return Rail{std::move(*transport), *address};
}

// A GID index that was asked for is meant: where no RDMA port can have it, TCP would be a silent
// second choice.
Status check_gid_index(const NodeOptions& options, const RailPlan& plan,
                       const std::string& why_no_verbs) {
  if (options.gid_index < 0 || options.transport == TransportPolicy::kTcp) return {};
  for (const RailChoice& choice : plan.choices) {
    if (choice.kind == TransportKind::kVerbs) return {};
  }
  return fail(Error(Errc::kUnsupported,
                    fmt::format("GID index {} was asked for, but no RDMA port can be used{}",
                                options.gid_index, why_no_verbs))
                  .with_fix("leave out --gid-index, or see `lochos info` for what there is"));
}

}  // namespace

Result<RailPlan> plan_rails(const NodeOptions& options) {
  auto host = discover_topology();
  if (!host) return fail(host.error());
  std::string wanted = options.interface;
  if (!options.listen.empty()) {
    auto listen = SocketAddress::parse(options.listen);
    if (!listen) return fail(listen.error());
    // An address to listen on says which interface is meant.
    if (wanted.empty() && !listen->is_unspecified()) wanted = listen->host();
  }
  auto filter = InterfaceFilter::parse(wanted);
  if (!filter) return fail(filter.error());
  const RailPolicy policy{.tcp = options.transport != TransportPolicy::kVerbs,
                          .verbs = options.transport != TransportPolicy::kTcp};
  auto choices = choose_rails(*host, *filter, policy);
  if (!choices) return fail(choices.error());
  RailPlan plan;
  std::string reasons;
  for (RailChoice& choice : *choices) {
    if (choice.chosen) {
      plan.choices.push_back(std::move(choice));
    } else if (choice.kind == TransportKind::kVerbs) {
      reasons += fmt::format("; {}/{}: {}", choice.device, choice.port, choice.reason);
    }
  }
  if (!host->no_rdma_reason.empty()) reasons = "; " + host->no_rdma_reason;
  if (plan.choices.empty()) {
    return fail(
        Error(Errc::kUnsupported, fmt::format("no network interface can be used (transport={}{})",
                                              to_string(options.transport), reasons))
            .with_fix("see `lochos info`; or allow another transport or interface"));
  }
  if (Status gid = check_gid_index(options, plan, reasons); !gid) return fail(gid.error());
  plan.numa_node = home_numa_node(*host, plan.choices);
  return plan;
}

Result<std::vector<Rail>> open_rails(const NodeOptions& options, const RailPlan& plan) {
  std::uint16_t port = 0;
  if (!options.listen.empty()) port = SocketAddress::parse(options.listen)->port();
  std::vector<Rail> rails;
  Error last(Errc::kUnsupported, "no rail");
  for (const RailChoice& choice : plan.choices) {
    auto rail = open_rail(options, choice, port);
    if (rail) {
      rails.push_back(std::move(*rail));
      continue;
    }
    // A port that is taken, a GID index that is not there, a value out of range: these were asked
    // for, so there is no silent second choice.
    const bool optional = options.transport == TransportPolicy::kAuto &&
                          choice.kind == TransportKind::kVerbs && options.gid_index < 0 &&
                          rail.error().code() != Errc::kAddressInUse &&
                          rail.error().code() != Errc::kInvalidArgument;
    if (!optional && rail.error().code() != Errc::kUnreachable) return fail(rail.error());
    log_warning("{} on {} is left out: {}", to_string(choice.kind), choice.address.host(),
                rail.error().to_string());
    last = rail.error();
  }
  if (rails.empty()) return fail(last);
  return rails;
}

}  // namespace lochos
