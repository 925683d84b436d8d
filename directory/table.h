// Who holds what, who waits for what, and who feeds whom: the directory as a state machine without
// I/O, threads or clock. Messages and time go in, messages come out; the server (server.cc) and the
// simulator drive the same code. One thread.
//
// Nothing a node sends can break it: what is malformed is answered with Failed or ignored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "directory/messages.h"

namespace lochos {

struct TableOptions {
  // Another value at each start of a directory. Incarnations and generations begin above it, so it
  // should grow from one start to the next (microseconds of the calendar do): then what nodes
  // remember from an earlier directory is older than anything new.
  std::uint64_t epoch = 1;
  std::uint64_t cluster = 1;  // the same at each start, so that data connections survive it
  Duration heartbeat_interval = std::chrono::milliseconds(250);
  Duration dead_after = std::chrono::seconds(5);
  // How long an object without any complete copy waits for one: a receiver that has just finished
  // may still report, and a holder whose connection broke may come back. Then it is lost.
  Duration loss_grace = std::chrono::seconds(1);
};

struct Outgoing {
  NodeId to;
  DirectoryMessage message;
};
// In order; the order between two messages to one node must be kept. A Fenced is the last message
// of its connection.
using Actions = std::vector<Outgoing>;

struct TableStats {
  std::size_t members = 0;
  std::size_t objects = 0;  // that exist
  std::size_t entries = 0;  // objects and ids that somebody waits for
  std::size_t copies = 0;   // holders, receivers and waiting gets of all objects
  std::size_t edges = 0;    // running transfers
  std::size_t waits = 0;
  std::size_t barriers = 0;
  std::size_t reduces = 0;
  std::size_t collectives = 0;
  std::size_t timers = 0;
  std::uint64_t inline_bytes = 0;
};

class Table {
 public:
  explicit Table(const TableOptions& options);
  ~Table();

  // Admits a node; the answer is a Joined in `out`. An older incarnation of the same node that
  // still counts as alive ends here (and is told Fenced). Errors: kInvalidArgument for names or
  // addresses beyond the limits.
  Result<NodeId> join(Instant now, const Join& join, Actions& out);
  // A message of a joined node. One from an incarnation that is not alive is answered with Fenced.
  void apply(Instant now, NodeId from, const NodeMessage& message, Actions& out);
  // The node's connection broke: it counts as dead at once.
  void disconnect(Instant now, NodeId node, Actions& out);
  // Does what time makes due: members without heartbeat, lost objects, retries.
  void tick(Instant now, Actions& out);
  Instant next_deadline() const;

  bool alive(NodeId node) const;
  TableStats stats() const;

 private:
  std::unique_ptr<class TableState> state_;
};

}  // namespace lochos
