// A member's part in one collective operation: its input, its result, and the streams between.
// Engine thread only. Plain data; engine_collective.cc has the rules.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/error.h"
#include "directory/messages.h"
#include "node/local_object.h"
#include "node/reduce_work.h"
#include "scheduler/collective_plan.h"

namespace lochos {

struct CollectiveWork {
  OperationNumber operation = 0;  // 0: answered
  CollectiveNumber number = 0;    // 0: the directory has not answered yet
  CollectiveSpec spec;
  CollectivePlan plan;  // made when the schedule is known
  // Referenced; known to this node only.
  LocalObject* input = nullptr;  // null: this member gives none
  LocalObject* result = nullptr;
  std::optional<Error> refusal;  // it has no room to take part: joins only to tell the others
  std::vector<LocalObject*> own_blocks;  // slices of the input; referenced, in the index
  std::vector<ReduceKey> streams;        // as plan.streams
  std::uint32_t unfinished = 0;          // streams
  // Copies directly from other members that wait for their turn: by stream, with the peer.
  std::map<std::size_t, CollectivePeer> waiting;
  std::vector<ReduceKey> direct;       // those under way
  std::vector<std::uint32_t> missing;  // ranks it pulls from that have not come yet
};

}  // namespace lochos
