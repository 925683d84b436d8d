#include "tools/perf_session.h"

#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "base/units.h"
#include "tools/perf_bandwidth.h"
#include "tools/perf_latency.h"

namespace lochos {
namespace {

// Opening a rail on a busy machine takes its time.
constexpr Duration kAnswerTimeout = std::chrono::seconds(8);

// The verbs rail if policy and machine allow it, or why not.
struct VerbsRail {
  std::unique_ptr<Transport> transport;
  std::string why_not;
};

Result<VerbsRail> try_verbs(const PerfSetup& setup, const PerfParameters& parameters,
                            const SocketAddress& local) {
  VerbsRail rail;
  if (setup.policy == TransportPolicy::kTcp) {
    rail.why_not = "it was asked to use TCP";
    return rail;
  }
  auto opened = setup.open_transport(TransportKind::kVerbs, parameters, local, setup.rail);
  if (opened) {
    rail.transport = std::move(*opened);
  } else if (setup.policy == TransportPolicy::kVerbs) {
    return fail(opened.error());
  } else {
    rail.why_not = opened.error().message();
  }
  return rail;
}

void print_setting(const PerfParameters& parameters, const PerfLink& link,
                   const std::string& reason) {
  std::string line = fmt::format("# {} {}, {}", to_string(parameters.test),
                                 to_string(parameters.op), link.transport().describe());
  if (parameters.test == PerfTest::kBandwidth) line += fmt::format(", depth {}", parameters.depth);
  line += parameters.events ? ", sleeping" : ", polling";
  if (parameters.bidirectional) line += ", both directions together";
  if (parameters.verify) line += ", contents checked";
  fmt::print("{}\n# {}\n", line, reason);
}

Status measure_all(PerfLink& link, const PerfParameters& parameters, PerfSide side,
                   PerfReport& report) {
  std::uint64_t wrong = 0;
  std::string first_wrong;
  report.print_header();
  for (const std::uint64_t size : parameters.sizes) {
    auto outcome = parameters.test == PerfTest::kBandwidth
                       ? measure_bandwidth(link, parameters, size, side)
                       : measure_latency(link, parameters, size, side);
    if (!outcome) {
      return fail(Error(outcome.error())
                      .with_operation(fmt::format("perf {} of {}", to_string(parameters.test),
                                                  format_size(size)))
                      .with_transport(to_string(link.transport().kind())));
    }
    if (auto added = report.add(outcome->row); !added) return added;
    if (wrong == 0) first_wrong = outcome->first_wrong;
    wrong += outcome->wrong;
  }
  if (wrong > 0) {
    return fail(Errc::kSystem,
                fmt::format("{} messages had wrong contents; the first: {}", wrong, first_wrong));
  }
  return {};
}

// Both sides are done: nobody may go before the other has heard it.
Status say_goodbye(PerfLink& link) {
  if (auto sent = link.control().send(PerfBye{}); !sent) return sent;
  auto bye = link.receive_a<PerfBye>();
  return bye ? Status{} : fail(bye.error());
}

Status finish(PerfLink& link, Status measured) {
  if (!measured && measured.error().code() != Errc::kSystem) return measured;
  if (auto bye = say_goodbye(link); !bye && measured) return bye;
  return measured;
}

// Whatever went wrong here, the other side shall know why.
Status tell(PerfControl& control, Status status) {
  if (!status) (void)control.send(PerfAbort{status.error().to_string()});
  return status;
}

Status client(PerfControl& control, const PerfSetup& setup, PerfReport& report) {
  const PerfParameters parameters = with_defaults(setup.test, setup.given);
  if (auto possible = check(parameters); !possible) return possible;
  auto verbs = try_verbs(setup, parameters, control.local());
  if (!verbs) return fail(verbs.error());

  PerfOffer offer{parameters, verbs->transport != nullptr, setup.policy != TransportPolicy::kVerbs,
                  verbs->why_not};
  if (auto sent = control.send(offer); !sent) return sent;
  auto answer = control.receive_a<PerfAnswer>(SteadyClock().now() + kAnswerTimeout);
  if (!answer) return fail(answer.error());
  auto address = SocketAddress::parse(answer->address);
  if (!address) return fail(Errc::kProtocol, address.error().message());

  std::unique_ptr<Transport> transport = std::move(verbs->transport);
  if (answer->transport != TransportKind::kVerbs) {
    auto tcp = setup.open_transport(TransportKind::kTcp, parameters, control.local(), setup.rail);
    if (!tcp) return fail(tcp.error());
    transport = std::move(*tcp);
  }
  if (transport == nullptr) return fail(Errc::kProtocol, "the server chose what was not offered");
  auto link = PerfLink::establish(std::move(transport), &*address, control, parameters);
  if (!link) return fail(link.error());
  print_setting(parameters, **link, answer->reason);
  return finish(**link, measure_all(**link, parameters, PerfSide::kClient, report));
}

Status server(PerfControl& control, const PerfSetup& setup, PerfReport& report) {
  auto offer = control.receive_a<PerfOffer>(SteadyClock().now() + kAnswerTimeout);
  if (!offer) return fail(offer.error());
  auto agreed = agree(setup.test, setup.given, offer->parameters);
  if (!agreed) return fail(agreed.error());
  auto verbs = try_verbs(setup, *agreed, control.local());
  if (!verbs) return fail(verbs.error());
  auto choice = choose_perf_transport(offer->verbs, offer->why_no_verbs, offer->tcp,
                                      verbs->transport != nullptr, verbs->why_not,
                                      setup.policy != TransportPolicy::kVerbs);
  if (!choice) return fail(choice.error());

  std::unique_ptr<Transport> transport = std::move(verbs->transport);
  if (choice->kind == TransportKind::kTcp) {
    auto tcp = setup.open_transport(TransportKind::kTcp, *agreed, control.local(), setup.rail);
    if (!tcp) return fail(tcp.error());
    transport = std::move(*tcp);
  }
  auto listening = transport->listen(control.local().with_port(0));
  if (!listening) return fail(listening.error());
  if (auto sent = control.send(PerfAnswer{choice->kind, choice->reason, listening->to_string()});
      !sent)
    return sent;
  auto link = PerfLink::establish(std::move(transport), nullptr, control, *agreed);
  if (!link) return fail(link.error());
  print_setting(*agreed, **link, choice->reason);
  return finish(**link, measure_all(**link, *agreed, PerfSide::kServer, report));
}

}  // namespace

Result<PerfChoice> choose_perf_transport(bool client_verbs, const std::string& why_client_not,
                                         bool client_tcp, bool server_verbs,
                                         const std::string& why_server_not, bool server_tcp) {
  if (client_verbs && server_verbs)
    return PerfChoice{TransportKind::kVerbs, "verbs: both sides can"};
  std::string reason = !client_verbs ? "the client cannot use verbs: " + why_client_not
                                     : "the server cannot use verbs: " + why_server_not;
  if (client_tcp && server_tcp) return PerfChoice{TransportKind::kTcp, "tcp: " + reason};
  return fail(
      Error(Errc::kUnsupported, fmt::format("no transport that both sides may use: {}", reason))
          .with_fix("give --transport auto on both sides"));
}

Status warm_up(const PerfSetup& setup) {
  if (setup.policy == TransportPolicy::kVerbs) return {};
  auto opened = setup.open_transport(TransportKind::kTcp, with_defaults(setup.test, setup.given),
                                     SocketAddress(), setup.rail);
  return opened ? Status{} : fail(opened.error());
}

Status run_perf_client(PerfControl& control, const PerfSetup& setup, PerfReport& report) {
  return tell(control, client(control, setup, report));
}

Status run_perf_server(PerfControl& control, const PerfSetup& setup, PerfReport& report) {
  return tell(control, server(control, setup, report));
}

}  // namespace lochos
