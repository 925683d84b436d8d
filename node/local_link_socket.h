// The link to a daemon over its Unix socket.
//
// Who reads: the thread that waits for an answer reads the socket itself, so an answer costs one
// wake-up. Of several waiting threads one reads (the leader) and wakes the others as their answers
// come; when it has its own, it passes the reading on. A service thread exists only once somebody
// must read though no caller waits (a pending operation has an event descriptor, one was cancelled
// and its answer may bring what must be given back, bytes could not be sent at once), and it reads
// only while that is so and no caller does. Writing never blocks under the lock: what the socket
// does not take is kept, up to a bound, and written by whoever reads.
//
// Thread word: thread-safe.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/event_fd.h"
#include "node/local_codec.h"
#include "node/local_greeting.h"
#include "node/local_link.h"
#include "node/pool.h"

namespace lochos {

class SocketLink final : public LocalLink {
 public:
  // Connects, greets and maps the pool. Errors: as connect_to_node; kNoSpace (address space).
  static Result<std::shared_ptr<SocketLink>> open(const std::string& path, Instant deadline);
  ~SocketLink() override;

  bool alive() const override;
  std::string describe() const override { return "node at " + path_; }
  Result<std::shared_ptr<LocalRequest>> start(LocalMessage message, Instant deadline) override;
  void post(LocalMessage message) override;
  void wait(LocalRequest& request, Until until) override;
  bool ready(LocalRequest& request) override;
  void cancel(LocalRequest& request) override;
  void abandon(LocalRequest& request) override;
  Result<int> watch(LocalRequest& request) override;
  std::mutex& mutex() override { return table_.mutex(); }
  std::span<const std::byte> readable() const override { return views_->memory(); }
  std::span<std::byte> writable() const override { return writers_->memory(); }

 private:
  using Lock = std::unique_lock<std::mutex>;

  SocketLink(std::string path, UniqueFd socket, EventFd wake,
             std::shared_ptr<const PoolMapping> views, std::shared_ptr<const PoolMapping> writers);

  // All below REQUIRE the lock.
  void send(const LocalMessage& message);
  void send(const std::vector<LocalMessage>& messages);
  void flush();
  void give_up(LocalRequest& request, Error error);
  // Waits for the socket (without the lock) and deals with what came. REQUIRES: nobody reads.
  void read_turn(Lock& lock, Instant until);
  bool receive();  // without the lock, by the reader. False: the connection has ended.
  void dispatch();
  void pass_on();
  void see_to_the_rest();
  bool needs_service() const;
  Status make_room(Lock& lock, LocalRequest& request);
  Status start_service();
  void end(Error error);

  void serve();  // the service thread

  const std::string path_;
  const UniqueFd socket_;
  const EventFd wake_;  // ends the reader's sleep
  // Two mappings of the pool: views cannot be written through, writers' memory can.
  const std::shared_ptr<const PoolMapping> views_;
  const std::shared_ptr<const PoolMapping> writers_;

  FrameReader frames_;  // belongs to the reader

  mutable RequestTable table_;  // its mutex guards all that follows
  std::optional<Error> ended_;
  bool reading_ = false;
  std::vector<LocalRequest*> waiting_;  // threads that wait while another reads
  std::vector<std::byte> unsent_;
  std::condition_variable room_;  // unsent_ has become small, or the link has ended
  std::condition_variable service_due_;
  bool stopping_ = false;
  std::thread service_;
};

}  // namespace lochos
