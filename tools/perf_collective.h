// The frame of `lochos perf bcast`, `reduce`, `allreduce` and the like: one embedded node a
// process, iterations that begin at a barrier, figures of all ranks brought together at rank 0.
// One thread.
//
// What is timed in an iteration: from a rank's leaving the barrier until its own part is done (for
// a reduce, rank 0's).
// Outside of it: making contents, checking them, erasing, and the exchange of figures.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "compute/element.h"
#include "node/node.h"
#include "node/store.h"

namespace lochos {

struct CollectiveOptions {
  std::uint32_t ranks = 1;
  std::uint32_t rank = 0;
  // Bytes of the object; of each rank's, for operations with many (but see perf_group_ops.cc).
  std::uint64_t size = 0;
  std::uint32_t iterations = 5;
  std::uint32_t warmup = 1;                     // iterations before those that count
  Duration arrive{0};                           // rank i begins i times this after the barrier
  bool verify = false;                          // compare every byte, not a sample
  Duration timeout = std::chrono::seconds(60);  // of each step

  // Operations that combine elements:
  DataType dtype = DataType::kF32;
  ReduceOp reduce_op = ReduceOp::kSum;
  std::uint32_t count = 0;  // of the ranks' objects, the first to turn up; 0: all
  std::uint32_t sources() const { return count == 0 ? ranks : count; }
};

// What an operation may use.
struct CollectiveContext {
  Store& store;
  const CollectiveOptions& options;
  std::uint32_t ranks;  // those that take part; may be fewer than options.ranks
};

// One operation. The frame calls, on each rank that takes part and for each iteration: prepare,
// execute, check, clean. `key` names the objects of this iteration. Interface.
class CollectiveOp {
 public:
  virtual ~CollectiveOp() = default;
  virtual std::string_view name() const = 0;
  // It combines elements: reduce_op means something.
  virtual bool combines() const { return false; }
  // What it moves are elements: dtype means something, and figures come as nccl-tests have them.
  virtual bool has_elements() const { return combines(); }
  // It may do with a part of the ranks' objects: count means something.
  virtual bool takes_count() const { return false; }
  // The largest size up to options.size that it can have.
  virtual std::uint64_t usable_size(const CollectiveOptions& options) const { return options.size; }
  // What an iteration takes of this rank's pool.
  virtual std::uint64_t pool_bytes(const CollectiveOptions& options) const { return options.size; }
  // Time at the limit over the time that one pair of ranks needs for one object of the same size.
  virtual double bound_factor(std::uint32_t ranks) const = 0;
  // Bandwidth of the busiest link over size per time: what nccl-tests call busbw over algbw.
  virtual double bus_factor(std::uint32_t) const { return 1; }
  // Whether the operation lasts until this rank is done.
  virtual bool is_timed(std::uint32_t) const { return true; }
  // Since when, after the barrier, all ranks' own times are counted, if it is not each one's
  // arrival.
  virtual std::optional<Duration> begins(const CollectiveOptions&) const { return std::nullopt; }
  virtual Status prepare(CollectiveContext& context, const std::string& key,
                         std::uint64_t seed) = 0;
  virtual Status execute(CollectiveContext& context, const std::string& key) = 0;
  // How many objects had wrong contents.
  virtual std::uint64_t check(CollectiveContext& context, std::uint64_t seed) = 0;
  // Called when all ranks have checked; what was prepared or received is given up.
  virtual Status clean(CollectiveContext& context, const std::string& key) = 0;
};

std::unique_ptr<CollectiveOp> make_broadcast();
std::unique_ptr<CollectiveOp> make_reduce_to_first();

// The operations of known groups.
struct GroupOperation {
  const char* help;
  const char* footer;
  std::unique_ptr<CollectiveOp> (*make)();
};
std::span<const GroupOperation> group_operations();

// Fills and checks objects: of a sample of the bytes unless `all`.
bool has_contents(std::span<const std::byte> bytes, std::uint64_t seed, bool all);

// One rank's figures of one iteration. Travels as an object of exactly these bytes.
struct RankFigures {
  double total_s = 0;  // since the barrier; 0 if the operation does not wait for this rank
  double own_s = 0;    // since its own arrival, or what CollectiveOp::begins says
  double cpu_s = 0;    // user and system, of the whole process
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t wrong = 0;
};

// All ranks' figures of one iteration.
struct IterationFigures {
  double total_s = 0;  // slowest rank
  double own_s = 0;    // slowest rank
  double cpu_s = 0;    // sum
  std::uint64_t bytes_sent_max = 0;
  std::uint64_t bytes_sent_first = 0;  // by rank 0
  std::uint64_t bytes_sent_total = 0;
  std::uint64_t bytes_received_total = 0;
  std::uint64_t wrong = 0;
};
IterationFigures combine(std::span<const RankFigures> ranks);

struct CollectiveResult {
  std::vector<IterationFigures> iterations;  // rank 0 only
  double bound_s = 0;                        // 0 if there is no pair to measure
};

class Collective {
 public:
  // Starts the node and meets the other ranks. Errors: those of Node::start and Store::barrier.
  static Result<std::unique_ptr<Collective>> join(const NodeOptions& node,
                                                  const CollectiveOptions& options,
                                                  std::string_view name);
  // Measures the pair of ranks 0 and 1 alone, then the operation. All ranks call it. Rank 0 prints
  // a line for each iteration as it ends. Errors: those of the operation, naming iteration and
  // step.
  Result<CollectiveResult> run(CollectiveOp& op);

 private:
  Collective(std::unique_ptr<Node> node, const CollectiveOptions& options);
  Status agree_on_run(std::string_view name);
  Result<std::vector<IterationFigures>> iterate(CollectiveOp& op, std::string_view label,
                                                std::uint32_t ranks, std::uint32_t warmup,
                                                std::uint32_t iterations, Duration arrive);
  Result<RankFigures> measure(CollectiveOp& op, CollectiveContext& context, const std::string& key,
                              std::uint64_t seed, Duration arrive);
  Result<std::vector<RankFigures>> gather(const RankFigures& own, const std::string& key,
                                          std::uint32_t ranks);
  Status meet(const std::string& name, std::uint32_t ranks);

  const std::unique_ptr<Node> node_;
  const CollectiveOptions options_;
  Store store_;
  std::string run_;  // makes the names of this run's objects
};

// The table that rank 0 prints: a header, a line for each iteration, the medians.
void print_collective_header();
void print_iteration(std::size_t number, const IterationFigures& figures);
void print_collective(const CollectiveOp& op, const CollectiveOptions& options,
                      const CollectiveResult& result);
// Rank 0's result. What is not known (a run that failed) is null: valid in every case.
std::string collective_json(const CollectiveOp& op, const CollectiveOptions& options,
                            const CollectiveResult& result);

}  // namespace lochos
