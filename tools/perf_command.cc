#include "tools/perf_command.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "base/units.h"
#include "tools/options.h"
#include "tools/perf_collective_command.h"
#include "tools/perf_session.h"
#include "tools/stop_signals.h"

namespace lochos {
namespace {

constexpr std::uint64_t kDefaultPort = 18515;  // perftest's
constexpr Duration kConnectTimeout = std::chrono::seconds(5);

constexpr const char* kPerfFooter =
    "  lochos perf bw                     on one host: waits for a client\n"
    "  lochos perf bw HOST                on the other: measures, both print the figures";

constexpr const char* kPairFooter =
    "Without HOST: the server, which prints one line\n\n"
    "  ready perf=ADDR:PORT\n\n"
    "serves one client, prints the same figures and ends. With HOST: the client. The server "
    "adopts\n"
    "the client's options; those given on both sides must be equal. Both sides end with status 1\n"
    "when anything failed, at the latest 10 s after the other side died.\n\n"
    "MB are 2^20 bytes. Latency is half the round trip (of a read: all of it). Peak and minimum "
    "of\n"
    "bandwidth are those of the fastest and slowest hundredth of the messages (at least as many "
    "as\n"
    "are under way at once).\n\n"
    "  lochos perf bw --port 0\n"
    "  lochos perf bw 10.0.0.1 --size 1M --transport tcp\n"
    "  lochos perf lat [fe80::1%eth0]:18515 --op write --all --json lat.json";

struct PairOptions {
  std::string host;
  std::string op;
  std::string size;
  bool all = false;
  std::uint64_t iterations = 0;  // 0: not given
  std::uint64_t depth = 0;
  bool events = false;
  bool bidirectional = false;
  bool verify = false;
  std::string listen_address = "::";
  std::uint64_t port = kDefaultPort;
  std::string json;
};

Result<PerfGiven> given(const PairOptions& options) {
  PerfGiven given;
  if (options.op == "write") given.op = PerfOp::kWrite;
  if (options.op == "send") given.op = PerfOp::kSend;
  if (options.op == "read") given.op = PerfOp::kRead;
  if (options.all && !options.size.empty())
    return fail(Errc::kInvalidArgument, "give either --size or --all");
  if (options.all) given.sizes = all_perf_sizes();
  if (!options.size.empty()) {
    auto size = parse_size(options.size);
    if (!size) return fail(Errc::kInvalidArgument, "--size: " + size.error().message());
    given.sizes = std::vector<std::uint64_t>{*size};
  }
  if (options.iterations != 0) given.iterations = options.iterations;
  if (options.depth != 0) given.depth = options.depth;
  given.events = options.events;
  given.bidirectional = options.bidirectional;
  given.verify = options.verify;
  return given;
}

Status run_client(const PairOptions& options, const PerfSetup& setup, const StopSignals& signals,
                  PerfReport& report) {
  auto addresses = resolve(options.host, static_cast<int>(options.port));
  if (!addresses) return fail(addresses.error());
  auto control =
      PerfControl::connect(*addresses, SteadyClock().now() + kConnectTimeout, signals.fd());
  if (!control) return fail(control.error());
  return run_perf_client(**control, setup, report);
}

Result<SocketAddress> listen_address(const PairOptions& options) {
  const auto port = static_cast<std::uint16_t>(options.port);
  auto address = SocketAddress::parse(options.listen_address, port);
  if (!address) return fail(address.error());
  return address->with_port(port);
}

Result<std::unique_ptr<PerfListener>> open_listener(const PairOptions& options) {
  auto address = listen_address(options);
  if (!address) return fail(address.error());
  auto listener = PerfListener::open(*address);
  if (listener || !address->is_unspecified() || address->family() != AF_INET6) return listener;
  // A kernel without IPv6.
  if (listener.error().code() == Errc::kAddressInUse) return listener;
  return PerfListener::open(SocketAddress().with_port(address->port()));
}

Status run_server(const PairOptions& options, const PerfSetup& setup, const StopSignals& signals,
                  PerfReport& report) {
  auto listener = open_listener(options);
  if (!listener) return fail(listener.error());
  fmt::print("ready perf={}\n", (*listener)->address().to_string());
  std::fflush(stdout);
  auto control = (*listener)->accept(signals.fd());
  if (!control) return fail(control.error());
  return run_perf_server(**control, setup, report);
}

Result<int> run_pair(PerfTest test, const PairOptions& options, const Context& context) {
  auto file = PerfJsonFile::open(options.json, perf_json(test, {}));
  if (!file) return fail(file.error());
  PerfReport report(test, std::move(*file));
  PerfSetup setup;
  setup.test = test;
  auto options_given = given(options);
  if (!options_given) return fail(options_given.error());
  setup.given = std::move(*options_given);
  if (auto possible = check(with_defaults(test, setup.given)); !possible)
    return fail(possible.error());
  setup.policy = context.config.transport("node.transport");
  setup.rail.provider = context.config.text("node.provider");
  setup.rail.gid_index = context.config.integer("node.gid_index");
  auto signals = StopSignals::open();
  if (!signals) return fail(signals.error());

  if (auto warm = warm_up(setup); !warm) return fail(warm.error());

  const Status done = options.host.empty() ? run_server(options, setup, *signals, report)
                                           : run_client(options, setup, *signals, report);
  if (auto written = report.finish(); !written) return fail(written.error());
  if (done) return kExitDone;
  // A server that nobody has used yet and that is told to end has done all it had to do.
  const bool unused = options.host.empty() && report.rows() == 0;
  if (unused && done.error().code() == Errc::kCancelled) return kExitDone;
  return fail(done.error());
}

void add_pair_command(CLI::App& perf, Context& context, PerfTest test) {
  const bool bandwidth = test == PerfTest::kBandwidth;
  CLI::App& command = add_command(perf, std::string(to_string(test)),
                                  bandwidth ? "Bandwidth between two hosts, like ib_write_bw"
                                            : "Latency between two hosts, like ib_send_lat",
                                  kPairFooter);
  auto options = std::make_shared<PairOptions>();
  add_positional(command, "HOST", options->host, Presence::kOptional,
                 "The server: name or address, with or without a port");
  add_choice(command, "--op", options->op, {"write", "send", "read"},
             bandwidth ? "What moves the messages [write]" : "What moves the messages [send]");
  add_text(command, "-s,--size", "SIZE", options->size,
           bandwidth ? "Bytes of a message [64K]" : "Bytes of a message [2]");
  add_switch(command, "-a,--all", options->all, "All sizes from 2 B to 8 MiB");
  add_integer(command, "-n,--iterations", options->iterations, 1, kMaxPerfIterations,
              bandwidth ? "Messages of each size [5000]" : "Round trips of each size [1000]");
  if (bandwidth) {
    add_integer(command, "-t,--depth", options->depth, 1, kMaxPerfDepth,
                "Messages under way at once [128]");
    add_switch(command, "-b,--bidirectional", options->bidirectional, "Both sides send at once");
  }
  add_switch(command, "-e,--events", options->events,
             "Sleep while there is nothing to do, instead of polling");
  add_switch(command, "--verify", options->verify, "Check the contents of the messages");
  add_integer(command, "-p,--port", options->port, 0, 65535,
              "Port of the server; 0: any free one, printed [18515]");
  add_text(command, "--address", "ADDR", options->listen_address,
           "Address to serve on [all of them]");
  add_text(command, "--json", "FILE", options->json,
           "Write the figures as JSON; -: standard output");
  for (const char* key : {"node.transport", "node.provider", "node.gid_index"})
    add_config_option(command, context, key);
  set_run(command, context,
          [options, test, &context] { return run_pair(test, *options, context); });
}

}  // namespace

void add_perf_command(CLI::App& app, Context& context) {
  CLI::App& perf = add_command_group(
      app, "perf", "Measure bandwidth, latency and collective operations", kPerfFooter);
  add_pair_command(perf, context, PerfTest::kBandwidth);
  add_pair_command(perf, context, PerfTest::kLatency);
  add_collective_commands(perf, context);
}

}  // namespace lochos
