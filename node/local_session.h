// One client on the node's Unix socket: its greeting, its requests, the replies it has not read
// yet. Engine thread only.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/unique_fd.h"
#include "node/engine.h"
#include "node/local_codec.h"
#include "node/local_greeting.h"

namespace lochos {

class LocalSession final : public LocalClient {
 public:
  // `epoll` reports this socket with a pointer to the session. Both outlive it.
  LocalSession(UniqueFd socket, int epoll, Engine& engine, Instant now);
  ~LocalSession() override;  // the engine forgets it
  LocalSession(const LocalSession&) = delete;
  LocalSession& operator=(const LocalSession&) = delete;

  // Errors: kSystem (epoll).
  Status watch();

  // The socket can be read or written: reads, hands requests to the engine, writes.
  void serve(Instant now);
  // Its greeting has taken too long.
  void refuse_silence();
  // Refuses it before its greeting.
  void refuse(const Error& reason);

  bool greeted() const { return greeted_; }
  // To be destroyed: the connection has ended, for whatever reason.
  bool ended() const { return ended_; }
  Instant greeting_deadline() const { return greeting_deadline_; }

  void deliver(LocalReply reply) override;
  bool in_process() const override { return false; }

 private:
  void greet();
  void accept_client();
  void read(Instant now);
  void handle_frames(Instant now);
  // False: its number is that of a request which is not answered yet.
  bool note_request(const LocalMessage& message);
  void append(const LocalReply& reply);
  // True: the progress is kept back because the client does not keep up.
  bool hold_back(const LocalReply& reply);
  void flush();
  void update_interest();
  void end(const std::string& why);
  std::size_t unread_bytes() const { return out_.size() - out_sent_; }

  const UniqueFd socket_;
  const int epoll_;
  Engine& engine_;
  const Instant greeting_deadline_;
  bool greeted_ = false;
  bool ended_ = false;
  std::uint32_t interest_ = 0;  // as epoll knows it
  std::array<std::byte, kHelloBytes> hello_{};
  std::size_t hello_bytes_ = 0;
  FrameReader frames_;
  std::vector<std::byte> out_;  // replies that the socket did not take; from out_sent_ on
  std::size_t out_sent_ = 0;
  std::unordered_set<LocalRequestNumber> outstanding_;
  std::unordered_map<LocalRequestNumber, LocalProgress> held_back_;  // the newest of each request
};

}  // namespace lochos
