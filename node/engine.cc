#include "node/engine.h"

#include <malloc.h>

#include <algorithm>

#include "base/check.h"
#include "base/log.h"
#include "node/engine_impl.h"

namespace lochos {
namespace {

// Completions taken from a rail in one call: enough that a call's cost does not matter, few enough
// that other rails and clients are served in between.
constexpr std::size_t kCompletionsPerPoll = 64;
constexpr std::size_t kConnectionEventsPerPoll = 16;

// After so many objects have gone, the memory of their records is handed back to the system.
constexpr std::uint64_t kTrimObjects = 10'000;

// Whether registering memory takes all its pages and keeps them.
bool pins_memory(const Rail& rail) {
  return rail.transport->kind() == TransportKind::kVerbs;
}

std::vector<Transport*> transports_of(const std::vector<Rail>& rails) {
  std::vector<Transport*> transports;
  transports.reserve(rails.size());
  for (const Rail& rail : rails)
    transports.push_back(rail.transport.get());
  return transports;
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::create(EngineOptions options, std::unique_ptr<Pool> pool,
                                               std::vector<Rail> rails,
                                               std::unique_ptr<DirectoryChannel> directory) {
  return EngineImpl::open(std::move(options), std::move(pool), std::move(rails),
                          std::move(directory));
}

Result<std::unique_ptr<Engine>> EngineImpl::open(EngineOptions options, std::unique_ptr<Pool> pool,
                                                 std::vector<Rail> rails,
                                                 std::unique_ptr<DirectoryChannel> directory) {
  // Too little memory is a reason that people can act on only if it is found before the device
  // finds it.
  if (std::any_of(rails.begin(), rails.end(), pins_memory)) {
    if (Status reserved = pool->reserve(); !reserved) return fail(std::move(reserved.error()));
  }
  const std::span<std::byte> memory = pool->memory();
  auto engine = std::make_unique<EngineImpl>(std::move(options), std::move(pool), std::move(rails),
                                             std::move(directory));
  for (Rail& rail : engine->rails_) {
    auto region = rail.transport->register_memory(memory);
    if (!region) return fail(std::move(region.error()).with_transport(rail.transport->describe()));
    engine->pool_regions_.push_back(std::move(*region));
  }
  return engine;
}

EngineImpl::EngineImpl(EngineOptions options, std::unique_ptr<Pool> pool, std::vector<Rail> rails,
                       std::unique_ptr<DirectoryChannel> directory)
    : options_(std::move(options)),
      directory_(std::move(directory)),
      rails_(std::move(rails)),
      registered_(transports_of(rails_)),
      index_(std::move(pool)),
      links_(rails_, options_.policy, options_.connect_timeout),
      completions_(kCompletionsPerPoll),
      connection_events_(kConnectionEventsPerPoll) {
  index_.on_destroy = [this](LocalObject& object) {
    progressed_.erase(&object);
    object.external_memory.reset();  // before its owner hears that it is out of use
    const auto draining = draining_external_.find(object.id);
    if (draining != draining_external_.end() && draining->second == &object)
      draining_external_.erase(draining);
    if (const OperationNumber waiting = std::exchange(object.erase_waiting, 0))
      finish(waiting, LocalPayload(LocalDone{}));
    if (object.shares != nullptr) index_.drop_reference(*object.shares);
  };
}

// Endpoints first (nobody writes any more), then registrations, then the memory: member order does
// the rest.
EngineImpl::~EngineImpl() {
  index_.on_destroy = nullptr;
  links_.for_each([](Connection& connection) { connection.endpoint->close(); });
  index_.clear();
  registered_.clear();
  pool_regions_.clear();
  rails_.clear();
}

bool EngineImpl::turn(Instant now) {
  now_ = now;
  bool busy = poll_directory();
  for (std::size_t rail = 0; rail < rails_.size(); ++rail)
    busy |= poll_rail(rail);
  busy |= combine();
  pump();
  for (LocalObject* object : std::exchange(progressed_, {}))
    report_progress(*object);
  run_timers(now);
  expire(now);
  if (!busy) trim_memory();
  return busy;
}

bool EngineImpl::arm() {
  if (!ready_edges_.empty() || !ready_reduces_.empty()) return false;
  for (Rail& rail : rails_) {
    if (!rail.transport->arm()) return false;
  }
  return true;
}

std::vector<int> EngineImpl::event_fds() const {
  std::vector<int> fds;
  fds.push_back(directory_->event_fd());
  for (const Rail& rail : rails_)
    fds.push_back(rail.transport->event_fd());
  return fds;
}

Instant EngineImpl::next_deadline() const {
  Instant next = directory_->next_deadline();
  for (const Rail& rail : rails_)
    next = std::min(next, rail.transport->next_deadline());
  if (!deadlines_.empty()) next = std::min(next, deadlines_.begin()->first);
  if (!timers_.empty()) next = std::min(next, timers_.begin()->first);
  return next;
}

void EngineImpl::set_deadline(OperationNumber number, Operation& operation, Duration timeout) {
  operation.deadline = saturating_add(now_, timeout);
  if (operation.deadline != kNever) deadlines_.emplace(operation.deadline, number);
}

void EngineImpl::expire(Instant now) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const OperationNumber number = deadlines_.begin()->second;
    const Operation& operation = operations_.at(number);
    give_up(number, timed_out(operation));
  }
}

Error EngineImpl::timed_out(const Operation& operation) const {
  Error error(Errc::kTimedOut, "the deadline passed");
  if (!directory_->joined()) {
    return std::move(error).with_cause("no directory: " + directory_->describe());
  }
  if (operation.collective != nullptr)
    return std::move(error).with_cause("the directory does not answer: " + directory_->describe());
  const LocalObject* object = operation.object;
  if (object == nullptr) return error;
  if (object->state == State::kWanted) {
    return std::move(error).with_cause("nobody has put it, or no holder is free");
  }
  const std::string peer =
      object->incoming != nullptr ? object->incoming->parent.to_string() : std::string();
  return std::move(error).with_bytes(object->valid, object->size).with_peer(peer);
}

// In a quiet moment only: it takes a while.
void EngineImpl::trim_memory() {
  if (index_.destroyed() - trimmed_at_ < kTrimObjects) return;
  trimmed_at_ = index_.destroyed();
  ::malloc_trim(0);
}

void EngineImpl::run_timers(Instant now) {
  while (!timers_.empty() && timers_.begin()->first <= now) {
    const auto [due, timer] = *timers_.begin();
    timers_.erase(timers_.begin());
    if (timer.parked) {
      expire_parked(*timer.object);
      continue;
    }
    if (timer.reduce.first != 0) {
      retry_stream(timer);
      continue;
    }
    if (timer.object) {
      LocalObject* object = index_.find(*timer.object);
      if (object != nullptr && object->ask_at == due && object->state == State::kFetching)
        report_failed_edge(*object);
      continue;
    }
    IncomingEdge* edge = slots_[timer.slot].get();
    if (edge != nullptr && edge->number == timer.edge &&
        edge->state == IncomingEdge::State::kStopping) {
      close_connection(*edge->connection);
    }
  }
}

void EngineImpl::leave() {
  directory_->send(Leave{});
}

NodeStats EngineImpl::stats() const {
  const PoolStats pool = index_.pool().stats();
  NodeStats stats;
  stats.pool_bytes = pool.capacity;
  stats.pool_used_bytes = pool.used;
  stats.huge_page_bytes = pool.huge_page_bytes;
  stats.objects = index_.size();
  stats.pinned = pins_.size();
  stats.evictions = index_.evictions();
  stats.bytes_sent = bytes_sent_;
  stats.bytes_received = bytes_received_;
  stats.edges_started = edges_started_;
  stats.edges_failed = edges_failed_;
  stats.transport_fallbacks = links_.fallbacks();
  stats.node_name = options_.name;
  stats.node = node_;
  stats.directory = directory_->describe();
  for (const Rail& rail : rails_) {
    stats.rails.push_back(std::string(to_string(rail.transport->kind())) + " " +
                          rail.listen_address.to_string() + " " + rail.transport->describe());
  }
  return stats;
}

}  // namespace lochos
