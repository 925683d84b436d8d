#include "tests/node/fake_engine.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace lochos {

void FakeEngine::handle(LocalClient& client, LocalMessage message, Instant now) {
  ++messages_;
  std::visit([&](auto& m) { on(client, m, now); }, message);
}

void FakeEngine::forget(LocalClient& client, Instant) {
  std::erase_if(waiters_, [&](const Waiter& waiter) { return waiter.client == &client; });
  std::vector<WriterNumber> writers;
  for (const auto& [number, writer] : writers_) {
    if (writer.client == &client) writers.push_back(number);
  }
  for (const WriterNumber number : writers)
    abandon(number);
  std::vector<PinNumber> pins;
  for (const auto& [number, pin] : pins_) {
    if (pin.client == &client) pins.push_back(number);
  }
  for (const PinNumber number : pins)
    release(number);
}

bool FakeEngine::turn(Instant now) {
  std::vector<Waiter> late;
  std::erase_if(waiters_, [&](const Waiter& waiter) {
    if (waiter.deadline > now) return false;
    late.push_back(waiter);
    return true;
  });
  for (const Waiter& waiter : late) {
    answer(*waiter.client, waiter.number, fail(Errc::kTimedOut, "it did not turn up"));
  }
  return !late.empty();
}

Instant FakeEngine::next_deadline() const {
  Instant next = kNever;
  for (const Waiter& waiter : waiters_)
    next = std::min(next, waiter.deadline);
  return next;
}

NodeStats FakeEngine::stats() const {
  NodeStats stats;
  stats.pool_bytes = pool_->stats().capacity;
  stats.pool_used_bytes = pool_->stats().used;
  stats.objects = objects_.size();
  stats.pinned = pins_.size();
  stats.node_name = "fake";
  stats.node = {1, 7};
  stats.rails = {"none"};
  return stats;
}

// ---- making ----

Result<FakeEngine::ObjectRef> FakeEngine::make(const ObjectId& id, const std::string& name,
                                               std::uint64_t size) {
  if (objects_.contains(id)) return fail(Errc::kAlreadyExists, "it is there");
  auto block = pool_->allocate(size);
  if (!block) return fail(std::move(block.error()));
  auto object = std::make_shared<Object>();
  object->id = id;
  object->name = name;
  object->block = *block;
  object->generation = ++last_generation_;
  objects_.emplace(id, object);
  return object;
}

void FakeEngine::on(LocalClient& client, LocalCreate& m, Instant) {
  auto object = make(m.id, m.name, m.size);
  if (!object) return answer(client, m.request, fail(std::move(object.error())));
  const WriterNumber number = ++last_number_;
  writers_.emplace(number, Writer{&client, *object});
  answer(client, m.request, LocalCreated{number, (*object)->block.offset, m.size});
}

void FakeEngine::on(LocalClient& client, LocalPutInline& m, Instant) {
  auto object = make(m.id, m.name, m.bytes.size());
  if (!object) return answer(client, m.request, fail(std::move(object.error())));
  std::copy(m.bytes.begin(), m.bytes.end(), pool_->bytes((*object)->block).begin());
  (*object)->valid = m.bytes.size();
  (*object)->sealed = true;
  answer(client, m.request, LocalDone{});
  try_all();
}

void FakeEngine::on(LocalClient&, LocalPublish& m, Instant) {
  ++publishes_;
  const auto at = writers_.find(m.writer);
  if (at == writers_.end()) return;
  at->second.object->valid = m.count;
  try_all();
}

void FakeEngine::on(LocalClient& client, LocalSeal& m, Instant) {
  const auto at = writers_.find(m.writer);
  if (at == writers_.end()) {
    return answer(client, m.request, fail(Errc::kDeleted, "no such writer"));
  }
  at->second.object->valid = at->second.object->block.bytes;
  at->second.object->sealed = true;
  writers_.erase(at);
  answer(client, m.request, LocalDone{});
  try_all();
}

void FakeEngine::on(LocalClient&, LocalAbandon& m, Instant) {
  abandon(m.writer);
}

void FakeEngine::on(LocalClient& client, LocalPutUserMemory& m, Instant) {
  auto object = make(m.id, m.name, 0);
  if (!object) return answer(client, m.request, fail(std::move(object.error())));
  (*object)->external = m.address;
  (*object)->block.bytes = 0;
  (*object)->valid = m.size;
  (*object)->sealed = true;
  answer(client, m.request, LocalDone{});
  try_all();
}

void FakeEngine::abandon(WriterNumber number) {
  const auto at = writers_.find(number);
  if (at == writers_.end()) return;
  const ObjectRef object = at->second.object;
  writers_.erase(at);
  objects_.erase(object->id);
  object->erased = true;
  std::vector<Waiter> told;
  std::erase_if(waiters_, [&](const Waiter& waiter) {
    const auto* get = std::get_if<LocalGet>(&waiter.message);
    if (get == nullptr || get->id != object->id) return false;
    told.push_back(waiter);
    return true;
  });
  for (const Waiter& waiter : told) {
    answer(*waiter.client, waiter.number, fail(Errc::kAborted, "its producer gave up"));
  }
  drop_if_unused(object);
}

// ---- reading ----

void FakeEngine::add_waiter(LocalClient& client, LocalMessage message, LocalRequestNumber number,
                            Duration timeout, Instant now) {
  Waiter waiter{&client, std::move(message), number, saturating_add(now, timeout)};
  if (!try_answer(waiter)) waiters_.push_back(std::move(waiter));
}

bool FakeEngine::try_answer(Waiter& waiter) {
  if (const auto* get = std::get_if<LocalGet>(&waiter.message)) return answer_get(waiter, *get);
  if (const auto* wait = std::get_if<LocalWait>(&waiter.message)) return answer_wait(waiter, *wait);
  if (const auto* reduce = std::get_if<LocalReduce>(&waiter.message)) {
    return answer_reduce(waiter, *reduce);
  }
  return false;
}

bool FakeEngine::answer_get(Waiter& waiter, const LocalGet& get) {
  const auto at = objects_.find(get.id);
  if (at == objects_.end()) return false;
  const ObjectRef& object = at->second;
  const bool news = get.progress && object->valid > waiter.told;
  if (!object->sealed && !news) return false;
  if (waiter.pin == 0) {
    waiter.pin = ++last_number_;
    pins_.emplace(waiter.pin, Pin{waiter.client, object});
    ++object->pins;
  }
  const std::uint64_t size = object->external != nullptr ? object->valid : object->block.bytes;
  if (object->sealed) {
    answer(*waiter.client, waiter.number,
           LocalView{waiter.pin, object->block.offset, size, object->generation, object->external});
    return true;
  }
  waiter.told = object->valid;
  answer(*waiter.client, waiter.number,
         LocalProgress{waiter.pin, object->block.offset, size, object->valid, object->generation});
  return false;
}

bool FakeEngine::answer_wait(Waiter& waiter, const LocalWait& wait) {
  LocalReady ready;
  for (std::uint32_t i = 0; i < wait.ids.size(); ++i) {
    const auto at = objects_.find(wait.ids[i]);
    if (at != objects_.end() && at->second->sealed) ready.positions.push_back(i);
  }
  if (ready.positions.size() < wait.count) return false;
  answer(*waiter.client, waiter.number, std::move(ready));
  return true;
}

bool FakeEngine::answer_reduce(Waiter& waiter, const LocalReduce& reduce) {
  LocalReduced reduced;
  std::vector<std::byte> sum;
  for (std::uint32_t i = 0; i < reduce.sources.size(); ++i) {
    const auto at = objects_.find(reduce.sources[i].id);
    if (reduced.included.size() == reduce.count || at == objects_.end() || !at->second->sealed)
      continue;
    const auto bytes = pool_->bytes(at->second->block);
    sum.resize(bytes.size());
    for (std::size_t byte = 0; byte < sum.size(); ++byte)
      sum[byte] ^= bytes[byte];
    reduced.included.push_back(i);
  }
  if (reduced.included.size() < reduce.count) return false;
  auto object = make(reduce.target, reduce.name, sum.size());
  if (!object) {
    answer(*waiter.client, waiter.number, fail(std::move(object.error())));
    return true;
  }
  std::copy(sum.begin(), sum.end(), pool_->bytes((*object)->block).begin());
  (*object)->valid = sum.size();
  (*object)->sealed = true;
  reduced.size = sum.size();
  reduced.generation = (*object)->generation;
  answer(*waiter.client, waiter.number, std::move(reduced));
  return true;
}

void FakeEngine::try_all() {
  std::erase_if(waiters_, [this](Waiter& waiter) { return try_answer(waiter); });
}

void FakeEngine::on(LocalClient& client, LocalGet& m, Instant now) {
  add_waiter(client, m, m.request, m.timeout, now);
}

// Through the pool, as when the object is here already.
void FakeEngine::on(LocalClient& client, LocalGetInto& m, Instant now) {
  add_waiter(client, LocalGet{m.request, m.id, m.name, m.timeout, true}, m.request, m.timeout, now);
}

void FakeEngine::on(LocalClient& client, LocalRegisterMemory& m, Instant) {
  if (m.size == 0) return answer(client, m.request, fail(Errc::kInvalidArgument, "no bytes"));
  registrations_.insert(++last_number_);
  answer(client, m.request, LocalRegistered{last_number_});
}

void FakeEngine::on(LocalClient& client, LocalUnregisterMemory& m, Instant) {
  registrations_.erase(m.registration);
  answer(client, m.request, LocalDone{});
}

void FakeEngine::on(LocalClient& client, LocalWait& m, Instant now) {
  add_waiter(client, m, m.request, m.timeout, now);
}

void FakeEngine::on(LocalClient& client, LocalReduce& m, Instant now) {
  add_waiter(client, m, m.request, m.timeout, now);
}

// ---- collective operations ----

void FakeEngine::on(LocalClient& client, LocalScratch& m, Instant) {
  auto block = pool_->allocate(m.size);
  if (!block) return answer(client, m.request, fail(std::move(block.error())));
  auto object = std::make_shared<Object>();
  object->block = *block;
  const WriterNumber number = ++last_number_;
  writers_.emplace(number, Writer{&client, object});
  answer(client, m.request, LocalCreated{number, block->offset, m.size});
}

void FakeEngine::on(LocalClient& client, LocalCollective& m, Instant now) {
  Waiter waiter{&client, m, m.request, saturating_add(now, m.timeout)};
  if (const auto at = writers_.find(m.writer); at != writers_.end()) {
    const auto bytes = pool_->bytes(at->second.object->block);
    waiter.input.assign(bytes.begin(), bytes.end());
    abandon(m.writer);
  }
  waiters_.push_back(std::move(waiter));
  const auto takes_part = [&m](const Waiter& other) {
    const auto* theirs = std::get_if<LocalCollective>(&other.message);
    return theirs != nullptr && theirs->name == m.name;
  };
  std::vector<Waiter> all;
  std::copy_if(waiters_.begin(), waiters_.end(), std::back_inserter(all), takes_part);
  if (all.size() < m.spec.members) return;
  std::erase_if(waiters_, takes_part);
  const auto rank = [](const Waiter& one) {
    return std::get<LocalCollective>(one.message).spec.rank;
  };
  std::sort(all.begin(), all.end(),
            [&](const Waiter& a, const Waiter& b) { return rank(a) < rank(b); });
  for (const Waiter& member : all)
    answer_collective(member, all);
}

void FakeEngine::answer_collective(const Waiter& member, const std::vector<Waiter>& all) {
  const CollectiveSpec& spec = std::get<LocalCollective>(member.message).spec;
  std::vector<std::byte> result;
  const auto append = [&](const std::vector<std::byte>& input, const CollectiveBlock& block) {
    const auto begin = input.begin() + static_cast<std::ptrdiff_t>(block.offset);
    result.insert(result.end(), begin, begin + static_cast<std::ptrdiff_t>(block.bytes));
  };
  const CollectiveBlock whole{0, spec.size};
  const CollectiveBlock mine = input_block(spec, spec.rank);
  switch (spec.kind) {
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kScatter:
      append(all[spec.root].input, mine);
      break;
    case CollectiveKind::kAllreduce:
    case CollectiveKind::kReduceScatter: {
      const CollectiveBlock part = spec.kind == CollectiveKind::kAllreduce ? whole : mine;
      append(std::vector<std::byte>(spec.size), part);
      for (const Waiter& other : all) {
        for (std::uint64_t i = 0; i < part.bytes; ++i)
          result[i] ^= other.input[part.offset + i];
      }
      break;
    }
    case CollectiveKind::kGather:
      if (spec.rank != spec.root) break;
      [[fallthrough]];
    case CollectiveKind::kAllgather:
      for (const Waiter& other : all)
        append(other.input, whole);
      break;
    case CollectiveKind::kAllToAll:
      for (const Waiter& other : all)
        append(other.input, mine);
      break;
  }
  auto block = pool_->allocate(result.size());
  if (!block) return answer(*member.client, member.number, fail(std::move(block.error())));
  std::copy(result.begin(), result.end(), pool_->bytes(*block).begin());
  auto object = std::make_shared<Object>();
  object->block = *block;
  object->erased = true;  // it goes with its pin
  object->pins = 1;
  const PinNumber pin = ++last_number_;
  pins_.emplace(pin, Pin{member.client, object});
  answer(*member.client, member.number, LocalView{pin, block->offset, result.size(), 0, nullptr});
}

void FakeEngine::on(LocalClient&, LocalRelease& m, Instant) {
  release(m.pin);
}

void FakeEngine::release(PinNumber number) {
  const auto at = pins_.find(number);
  if (at == pins_.end()) return;
  const ObjectRef object = at->second.object;
  pins_.erase(at);
  --object->pins;
  drop_if_unused(object);
}

void FakeEngine::drop_if_unused(const ObjectRef& object) {
  if (object->erased && object->pins == 0) pool_->free(object->block);
}

void FakeEngine::on(LocalClient& client, LocalCancel& m, Instant) {
  const auto erased = std::erase_if(waiters_, [&](const Waiter& waiter) {
    return waiter.client == &client && waiter.number == m.request;
  });
  if (erased > 0) answer(client, m.request, fail(Errc::kCancelled, ""));
}

ObjectStat FakeEngine::stat_of(const Object& object) const {
  ObjectStat stat;
  stat.id = object.id;
  stat.name = object.name;
  stat.size = object.block.bytes;
  stat.generation = object.generation;
  stat.sealed = object.sealed;
  stat.holder_count = 1;
  return stat;
}

void FakeEngine::on(LocalClient& client, LocalStat& m, Instant) {
  const auto at = objects_.find(m.id);
  if (at == objects_.end()) return answer(client, m.request, fail(Errc::kNotFound, ""));
  ObjectStat stat = stat_of(*at->second);
  stat.holders.push_back({{1, 7}, "fake", at->second->sealed, {}});
  answer(client, m.request, std::move(stat));
}

void FakeEngine::on(LocalClient& client, LocalList& m, Instant) {
  LocalListPage page;
  for (auto at = objects_.upper_bound(m.after); at != objects_.end(); ++at) {
    if (page.objects.size() == m.limit) {
      page.more = true;
      break;
    }
    page.objects.push_back(stat_of(*at->second));
  }
  answer(client, m.request, std::move(page));
}

void FakeEngine::on(LocalClient& client, LocalErase& m, Instant) {
  const auto at = objects_.find(m.id);
  if (at == objects_.end()) return answer(client, m.request, fail(Errc::kNotFound, ""));
  const ObjectRef object = at->second;
  objects_.erase(at);
  object->erased = true;
  std::erase_if(writers_, [&](const auto& entry) { return entry.second.object == object; });
  drop_if_unused(object);
  answer(client, m.request, LocalDone{});
}

void FakeEngine::on(LocalClient& client, LocalBarrier& m, Instant now) {
  waiters_.push_back({&client, m, m.request, saturating_add(now, m.timeout)});
  std::vector<Waiter> inside;
  for (const Waiter& waiter : waiters_) {
    const auto* barrier = std::get_if<LocalBarrier>(&waiter.message);
    if (barrier != nullptr && barrier->name == m.name) inside.push_back(waiter);
  }
  if (inside.size() < m.members) return;
  std::erase_if(waiters_, [&](const Waiter& waiter) {
    const auto* barrier = std::get_if<LocalBarrier>(&waiter.message);
    return barrier != nullptr && barrier->name == m.name;
  });
  for (const Waiter& waiter : inside)
    answer(*waiter.client, waiter.number, LocalDone{});
}

void FakeEngine::on(LocalClient& client, LocalStats& m, Instant) {
  answer(client, m.request, stats());
}

}  // namespace lochos
