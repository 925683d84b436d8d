// A node's part of one reduce: streams that arrive (or lie here) are combined into an output that
// others pull while it grows. Engine thread only. Plain data; engine_reduce.cc has the rules.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "directory/messages.h"
#include "node/local_object.h"

namespace lochos {

struct CollectiveWork;

// Which of a directory's reduces, and which place in its tree. A new attempt takes the place of the
// one before.
using ReduceKey = std::pair<ReduceNumber, std::uint32_t>;

struct ReduceStream {
  ReduceInput from;
  // Referenced. An object of this node (a source, or the output of other work here), or what an
  // incoming edge fills for this work alone: then `object->feeds` is the work.
  LocalObject* object = nullptr;
  std::uint32_t fruitless = 0;  // edges in a row that moved nothing
};

struct ReduceWork {
  ReduceTask task;
  LocalObject* output = nullptr;  // referenced; under its id in the index
  std::vector<ReduceStream> streams;
  // One stream arrives in the output's own storage and is combined where it lies.
  bool in_place_taken = false;
  bool ready = false;                    // in the list of work that can go on
  bool given_up = false;                 // a target that waits for the directory's word
  CollectiveWork* collective = nullptr;  // that it is a stream of

  ReduceKey key() const { return {task.reduce, task.slot}; }
};

}  // namespace lochos
