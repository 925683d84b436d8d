// A node for tests: a FakeEngine on a thread of its own, with its socket and its queue.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "base/event_fd.h"
#include "base/temporary_folder.h"
#include "node/engine_queue.h"
#include "node/local_server.h"
#include "node/store.h"
#include "tests/node/fake_engine.h"

namespace lochos {

class TestNode {
 public:
  explicit TestNode(std::string socket_path, std::uint64_t pool_bytes = 64 << 20);
  ~TestNode() { stop(); }

  // Ends the engine; its clients hear of it.
  void stop();
  // Runs `work` on the engine thread and returns when it is done.
  void run(const std::function<void(FakeEngine&)>& work);
  // While held, the engine thread does nothing: as if the process were stopped.
  std::unique_lock<std::mutex> freeze() { return std::unique_lock(turn_mutex_); }

  std::size_t clients();
  const std::string& path() const { return path_; }
  Store connect();   // over the socket
  Store embedded();  // over the queue

 private:
  class Queue;
  void loop();

  const std::string path_;
  std::unique_ptr<FakeEngine> engine_;
  std::unique_ptr<LocalServer> server_;
  std::shared_ptr<const PoolMapping> pool_;
  std::shared_ptr<Queue> queue_;
  std::mutex turn_mutex_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

// A path for a socket in a folder of its own; whatever is there is removed at the end.
class SocketPath {
 public:
  const std::string& str() const { return path_; }

 private:
  const TemporaryFolder folder_ = TemporaryFolder::create("lochos-test").value();
  const std::string path_ = folder_.path() + "/node.sock";
};

// Waits until `condition` holds, or fails the test after ten seconds.
bool eventually(const std::function<bool()>& condition);

std::vector<std::byte> pattern(std::size_t size, unsigned seed = 1);

}  // namespace lochos
