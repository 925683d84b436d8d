// One reduce as the table knows it. Plain data; the rules are in table_reduce.cc. Not for others.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/node_id.h"
#include "directory/messages.h"
#include "scheduler/reduce_planner.h"

namespace lochos {

struct Entry;
struct Member;

struct ReduceRecord {
  static constexpr std::uint32_t kNobody = 0xffffffff;

  // What a source gives, once it is there.
  struct Contribution {
    Entry* entry = nullptr;
    Generation generation = 0;  // of the source, while it is ready; 0: not there (any more)
    NodeId node;                // the holder that was chosen for it; none if it is inline
    std::vector<NodeId> avoid;  // holders that could not deliver it
    bool erased = false;        // on purpose, and not put again since
  };
  // What a slot's node was told to do.
  struct SlotTask {
    NodeId node;
    AttemptNumber attempt = 0;  // 0: no task
    ObjectId output;
    Generation generation = 0;
    bool is_target = false;
    std::uint32_t expected = 0;
    std::uint32_t inputs = 0;  // that it knows of
  };

  explicit ReduceRecord(const Reduce& message);
  RequestNumber request_number() const { return number_of_request; }

  Reduce request;
  RequestNumber number_of_request = 0;
  ReduceNumber number = 0;
  Member* caller = nullptr;
  Entry* target = nullptr;
  Instant deadline = kNever;
  std::vector<Contribution> contributions;  // as request.sources
  std::vector<std::uint32_t> changed;       // contributions to look at
  std::uint32_t ready = 0;                  // contributions that are there, spare ones included
  std::uint32_t erased = 0;                 // contributions that are
  std::uint32_t sized_by = kNobody;         // the source that said how large they all are
  std::uint64_t size = 0;

  std::vector<std::uint32_t> arrived;  // inline sources in order of arrival
  // The sources of a deterministic reduce of fewer than all: their rank is their index in the plan.
  std::vector<std::uint32_t> chosen;
  std::optional<ReducePlan> plan;
  std::vector<SlotTask> tasks;  // by slot
  std::uint64_t chunk_bytes = 0;
  AttemptNumber attempts = 0;  // the latest
  bool announced = false;      // the living generation of the target
  bool root_is_done = false;   // it has all bytes of the living generation
};

}  // namespace lochos
