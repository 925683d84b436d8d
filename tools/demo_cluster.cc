#include "tools/demo_cluster.h"

#include <fmt/format.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "tools/deadline.h"

namespace lochos {
namespace {

// "ready directory=127.0.0.1:40123 …" and "directory" give "127.0.0.1:40123".
std::string ready_field(const std::string& line, const std::string& name) {
  const std::size_t begin = line.find(" " + name + "=");
  if (begin == std::string::npos) return "";
  const std::size_t value = begin + name.size() + 2;
  return line.substr(value, line.find(' ', value) - value);
}

Error of_child(const std::string& name, const Error& error) {
  return Error(error.code(), fmt::format("{}: {}", name, error.message()));
}

}  // namespace

Result<DemoCluster> DemoCluster::start(const std::string& folder, std::size_t node_count,
                                       std::uint64_t pool_bytes, Duration timeout) {
  const Deadline deadline(timeout);
  // An empty file, so that nobody's own configuration changes the demo.
  const std::vector<std::string> common = {"--config", "/dev/null"};
  auto arguments = common;
  arguments.insert(arguments.end(), {"directory", "--listen", "127.0.0.1:0"});
  auto directory = ChildProcess::start(arguments, folder + "/directory.log");
  if (!directory) return fail(directory.error());
  auto line = directory->read_line(deadline.remaining());
  if (!line) return fail(of_child("directory", line.error()));
  const std::string address = ready_field(*line, "directory");

  DemoCluster cluster(std::move(*directory));
  std::vector<ChildProcess> processes;
  std::vector<std::string> sockets;
  for (std::size_t i = 0; i < node_count; ++i) {
    const std::string name = fmt::format("node-{}", i + 1);
    sockets.push_back(fmt::format("{}/{}.sock", folder, name));
    arguments = common;
    arguments.insert(arguments.end(),
                     {"node", "--directory", address, "--name", name, "--pool",
                      fmt::format("{}", pool_bytes), "--transport", "tcp", "--interface", "lo",
                      "--listen", "127.0.0.1:0", "--socket", sockets.back()});
    auto process = ChildProcess::start(arguments, fmt::format("{}/{}.log", folder, name));
    if (!process) return fail(process.error());
    processes.push_back(std::move(*process));
  }
  for (std::size_t i = 0; i < node_count; ++i) {
    const std::string name = fmt::format("node-{}", i + 1);
    if (auto ready = processes[i].read_line(deadline.remaining()); !ready)
      return fail(of_child(name, ready.error()));
    auto store = Store::connect(sockets[i], deadline.remaining());
    if (!store) return fail(of_child(name, store.error()));
    cluster.nodes_.push_back(DemoNode{name, std::move(processes[i]), std::move(*store)});
  }
  cluster.killed_.assign(node_count, false);
  return cluster;
}

void DemoCluster::kill(std::size_t index) {
  nodes_[index].process.signal(SIGKILL);
  killed_[index] = true;
}

Status DemoCluster::stop(Duration timeout) {
  const Deadline deadline(timeout);
  for (const DemoNode& node : nodes_)
    node.process.signal(SIGTERM);
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    auto status = nodes_[i].process.wait(deadline.remaining());
    if (!status) return fail(of_child(nodes_[i].name, status.error()));
    if (*status != 0 && !killed_[i])
      return fail(Errc::kSystem, fmt::format("{} ended with status {}", nodes_[i].name, *status));
  }
  directory_.signal(SIGTERM);
  auto status = directory_.wait(deadline.remaining());
  if (!status) return fail(of_child("directory", status.error()));
  if (*status != 0)
    return fail(Errc::kSystem, fmt::format("the directory ended with status {}", *status));
  return {};
}

}  // namespace lochos
