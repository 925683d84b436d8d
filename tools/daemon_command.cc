#include "tools/daemon_command.h"

#include <fmt/format.h>

#include <cstdio>
#include <thread>

#include "base/event_fd.h"
#include "base/log.h"
#include "base/units.h"
#include "directory/server.h"
#include "node/node.h"
#include "tools/options.h"
#include "tools/stop_signals.h"
#include "transport/address.h"

namespace lochos {
namespace {

constexpr const char* kDirectoryFooter =
    "One directory serves a cluster: it knows which node has which object and who feeds whom. No\n"
    "object of more than 64 KiB passes through it. When it serves it prints one line:\n\n"
    "  ready directory=ADDR:PORT\n\n"
    "SIGTERM and SIGINT end it with status 0.\n\n"
    "  lochos directory --listen 10.0.0.1:7777\n"
    "  lochos directory --listen [::1]:0";

constexpr const char* kNodeFooter =
    "One node serves a host: programs put and get through its Unix socket and share its pool. It\n"
    "may be started before the directory, and waits for it. Once it has joined it prints one "
    "line:\n\n"
    "  ready node=N name=NAME socket=PATH tcp=ADDR:PORT verbs=ADDR:PORT\n\n"
    "SIGTERM and SIGINT end it with status 0.\n\n"
    "  lochos node --directory 10.0.0.1:7777\n"
    "  lochos node --directory [fe80::1%eth0]:7777 --pool 16G --transport verbs";

void print_ready(const std::string& line) {
  fmt::print("ready {}\n", line);
  std::fflush(stdout);
}

void apply_log_level(const Config& config) {
  const std::string& level = config.text("log_level");
  if (level == "debug") set_log_level(LogLevel::kDebug);
  if (level == "warning") set_log_level(LogLevel::kWarning);
  if (level == "error") set_log_level(LogLevel::kError);
}

Result<SocketAddress> resolve_one(const std::string& text) {
  auto addresses = resolve(text);
  if (!addresses) return fail(addresses.error());
  return addresses->front();
}

// Says which option, and where it was set, made a start-up fail.
Error blame(const Config& config, std::string_view key, const Error& error) {
  const Config::Value& value = config.value(key);
  if (value.origin == Config::Origin::kDefault) return error;
  return Error(error.code(), fmt::format("{} (from {})", error.message(), value.where))
      .with_fix(error.fix());
}

Result<int> run_directory(const Context& context) {
  const Config& config = context.config;
  apply_log_level(config);
  auto signals = StopSignals::open();
  if (!signals) return fail(signals.error());
  auto listen = resolve_one(config.text("directory.listen"));
  if (!listen) return fail(blame(config, "directory.listen", listen.error()));
  DirectoryOptions options;
  options.listen = *listen;
  options.heartbeat_interval = config.duration("directory.heartbeat");
  options.dead_after = config.duration("directory.dead_after");
  if (options.dead_after < 2 * options.heartbeat_interval) {
    return fail(Errc::kInvalidArgument,
                fmt::format("--dead-after {} must be at least twice --heartbeat {}",
                            format_duration(options.dead_after),
                            format_duration(options.heartbeat_interval)));
  }
  auto server = DirectoryServer::open(options);
  if (!server) return fail(server.error());
  auto ended = EventFd::open();
  if (!ended) return fail(ended.error());

  std::thread stopper([&] {
    if (signals->wait(Duration::max(), ended->fd())) (*server)->stop();
  });
  print_ready(fmt::format("directory={}", (*server)->address().to_string()));
  const Status served = (*server)->run();
  ended->signal();
  stopper.join();
  if (!served) return fail(served.error());
  return kExitDone;
}

NodeOptions node_options(const Config& config) {
  NodeOptions options;
  options.directory = config.text("node.directory");
  options.name = config.text("node.name");
  options.pool_bytes = config.size("node.pool");
  options.transport = config.transport("node.transport");
  options.interface = config.text("node.interface");
  options.socket_path = config.text("socket");
  options.listen = config.text("node.listen");
  options.provider = config.text("node.provider");
  options.gid_index = config.integer("node.gid_index");
  options.rdma_mtu = config.integer("node.rdma_mtu");
  options.service_level = config.integer("node.service_level");
  options.traffic_class = config.integer("node.traffic_class");
  options.huge_pages = config.boolean("node.huge_pages");
  return options;
}

// Waits for the directory for as long as it takes. False: a signal came first.
Result<bool> wait_for_directory(Node& node, const StopSignals& signals) {
  constexpr Duration kAskEvery = std::chrono::milliseconds(200);
  constexpr Duration kComplainAfter = std::chrono::seconds(2);
  const Instant started = SteadyClock().now();
  bool complained = false;
  for (;;) {
    auto joined = node.wait_until_joined(kAskEvery);
    if (joined) return true;
    if (joined.error().code() != Errc::kTimedOut) return fail(joined.error());
    if (!complained && SteadyClock().now() - started >= kComplainAfter) {
      log_warning("still waiting for the directory: {}", joined.error().to_string());
      complained = true;
    }
    if (signals.wait(Duration{0})) return false;
  }
}

Result<int> run_node(const Context& context) {
  const Config& config = context.config;
  apply_log_level(config);
  if (config.text("node.directory").empty()) {
    return fail(Errc::kInvalidArgument,
                "where is the directory? Give --directory ADDR:PORT or set LOCHOS_DIRECTORY");
  }
  // Refuses a malformed address at once; a name that does not resolve yet may do so later.
  if (auto address = resolve(config.text("node.directory"));
      !address && address.error().code() == Errc::kInvalidArgument)
    return fail(blame(config, "node.directory", address.error()));
  if (const std::string& listen = config.text("node.listen"); !listen.empty()) {
    if (auto address = resolve(listen); !address)
      return fail(blame(config, "node.listen", address.error()));
  }
  auto signals = StopSignals::open();
  if (!signals) return fail(signals.error());
  auto node = Node::start(node_options(config));
  if (!node) return fail(node.error());
  auto joined = wait_for_directory(**node, *signals);
  if (!joined) return fail(joined.error());
  if (!*joined) return kExitDone;

  auto stats = (*node)->store().stats();
  if (!stats) return fail(stats.error());
  std::string line = fmt::format("node=n{} name={} socket={}", stats->node.number, stats->node_name,
                                 config.text("socket"));
  for (const std::string& rail : (*node)->rail_addresses())
    line += " " + rail;
  print_ready(line);
  signals->wait(Duration::max());
  return kExitDone;
}

}  // namespace

void add_directory_command(CLI::App& app, Context& context) {
  CLI::App& command =
      add_command(app, "directory", "Run the cluster's directory", kDirectoryFooter);
  for (const char* key :
       {"directory.listen", "directory.heartbeat", "directory.dead_after", "log_level"})
    add_config_option(command, context, key);
  set_run(command, context, [&context] { return run_directory(context); });
}

void add_node_command(CLI::App& app, Context& context) {
  CLI::App& command = add_command(app, "node", "Run this host's node", kNodeFooter);
  for (const char* key :
       {"node.directory", "node.name", "node.pool", "node.transport", "node.interface",
        "node.listen", "node.provider", "node.gid_index", "node.rdma_mtu", "node.service_level",
        "node.traffic_class", "node.huge_pages", "socket", "log_level"})
    add_config_option(command, context, key);
  set_run(command, context, [&context] { return run_node(context); });
}

}  // namespace lochos
