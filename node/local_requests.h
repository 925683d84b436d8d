// The requests of one link that have no answer yet, and what becomes of answers that nobody wants
// any more.
//
// Thread word: a monitor. `mutex()` guards the table and every LocalRequest made by it; all
// functions REQUIRE it held, unless they say otherwise.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/event_fd.h"
#include "node/local_messages.h"

namespace lochos {

// The client stops waiting for an answer this long after the operation's deadline. The engine
// enforces the deadline itself and says why; only one that is stopped or gone misses it by as much.
inline constexpr Duration kAnswerGrace = std::chrono::milliseconds(500);

// One request, shared by who waits for it and the table.
struct LocalRequest {
  LocalRequest(LocalRequestNumber request_number, Instant when)
      : number(request_number), give_up(when) {}

  const LocalRequestNumber number;
  const Instant give_up;            // deadline + kAnswerGrace
  std::condition_variable changed;  // with the table's mutex: a result or progress has come
  std::optional<Result<LocalPayload>> result;
  std::optional<LocalProgress> progress;  // the newest that was not looked at
  std::optional<EventFd> event;           // readable once there is a result
};

class RequestTable {
 public:
  std::mutex& mutex() { return mutex_; }

  // A new request; its answer, and its failure if the link ends, will arrive in it.
  std::shared_ptr<LocalRequest> add(Instant deadline);
  // As if it had never been made (the message was not sent).
  void remove(const LocalRequest& request) { drop(request.number); }

  // What came from the engine. Messages that must go back because of it are appended to
  // `follow_ups`: the release of a pin and the end of a writer that nobody waits for any more.
  void deliver(LocalReply reply, std::vector<LocalMessage>& follow_ups);

  // Ends a request here with `error`, unless it has a result. The engine is told to stop; whatever
  // it still answers is undone.
  void give_up(LocalRequest& request, Error error, std::vector<LocalMessage>& follow_ups);
  // The result will not be taken: undoes what it holds, or gives up if there is none yet.
  void abandon(LocalRequest& request, std::vector<LocalMessage>& follow_ups);

  // The link has ended: every request that has no result fails with `error`.
  void fail_all(const Error& error);

  // Gives the request an event descriptor. Errors: kSystem.
  Result<int> watch(LocalRequest& request);
  // Whether answers must be read though no caller waits for them: somebody sleeps on a descriptor,
  // or what comes must be given back.
  bool needs_reader() const { return !watched_.empty() || orphans_ > 0; }
  // The watched requests whose time is over by `now`; the next time when there is one.
  std::vector<std::shared_ptr<LocalRequest>> overdue(Instant now) const;
  Instant next_give_up() const { return watched_.empty() ? kNever : watched_.begin()->first; }

 private:
  struct Entry {
    std::shared_ptr<LocalRequest> request;  // null: nobody waits any more
    Instant give_up;
    PinNumber open_pin = 0;  // opened by progress, not yet passed on with a view
  };

  static void undo(const LocalPayload& payload, std::vector<LocalMessage>& follow_ups);
  void set_result(LocalRequest& request, Result<LocalPayload> result);
  void drop(LocalRequestNumber number);

  std::mutex mutex_;
  LocalRequestNumber last_number_ = 0;
  std::unordered_map<LocalRequestNumber, Entry> entries_;
  std::size_t orphans_ = 0;                                   // entries without a request
  std::set<std::pair<Instant, LocalRequestNumber>> watched_;  // with an event, without a result
};

}  // namespace lochos
