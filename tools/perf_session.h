// One run of `lochos perf bw|lat`, from the agreement of both sides to the last size. One thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/error.h"
#include "directory/messages.h"
#include "tools/perf_control.h"
#include "tools/perf_link.h"
#include "tools/perf_parameters.h"
#include "tools/perf_report.h"

namespace lochos {

struct PerfSetup {
  PerfTest test = PerfTest::kBandwidth;
  PerfGiven given;
  TransportPolicy policy = TransportPolicy::kAuto;
  PerfRail rail;
  // How rails are opened; a test may put something between the run and its transport.
  std::function<decltype(open_perf_transport)> open_transport = open_perf_transport;
};

// Whether verbs or TCP, given what each side can do. `reason` is for people.
struct PerfChoice {
  TransportKind kind = TransportKind::kTcp;
  std::string reason;
};
// Errors: kUnsupported when there is nothing that both can and may do.
Result<PerfChoice> choose_perf_transport(bool client_verbs, const std::string& why_client_not,
                                         bool client_tcp, bool server_verbs,
                                         const std::string& why_server_not, bool server_tcp);

// Makes the libraries behind the TCP rail look around on this machine, which takes long and is done
// once in a process: before the other side waits. Errors: those of opening the rail.
Status warm_up(const PerfSetup& setup);

// Both print the table to standard output and add to `report`. They tell the other side when they
// give up. Errors: kUnsupported for options that do not fit, kConnectionLost and kTimedOut when the
// other side dies or stops, kCancelled for a signal, kProtocol, and kSystem for wrong contents
// (with --verify), after all sizes.
Status run_perf_client(PerfControl& control, const PerfSetup& setup, PerfReport& report);
Status run_perf_server(PerfControl& control, const PerfSetup& setup, PerfReport& report);

}  // namespace lochos
