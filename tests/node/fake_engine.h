// An engine of one node without peers: objects in the pool and a table of who waits for what. For
// tests of everything that talks to an engine. Engine thread only.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "node/engine.h"

namespace lochos {

class FakeEngine final : public Engine {
 public:
  explicit FakeEngine(std::unique_ptr<Pool> pool) : pool_(std::move(pool)) {}

  void handle(LocalClient& client, LocalMessage message, Instant now) override;
  void forget(LocalClient& client, Instant now) override;
  bool turn(Instant now) override;
  bool arm() override { return true; }
  std::vector<int> event_fds() const override { return {}; }
  Instant next_deadline() const override;
  NodeStats stats() const override;
  const Pool& pool() const override { return *pool_; }
  bool joined() const override { return true; }
  void leave() override {}

  std::uint64_t publishes() const { return publishes_; }
  std::uint64_t messages() const { return messages_; }
  std::size_t waiting() const { return waiters_.size(); }
  std::size_t writers() const { return writers_.size(); }
  const std::set<RegistrationNumber>& registrations() const { return registrations_; }

 private:
  struct Object {
    ObjectId id;
    std::string name;
    Block block;
    const std::byte* external = nullptr;
    std::uint64_t generation = 0;
    std::uint64_t valid = 0;
    bool sealed = false;
    bool erased = false;
    std::size_t pins = 0;
  };
  using ObjectRef = std::shared_ptr<Object>;
  struct Writer {
    LocalClient* client;
    ObjectRef object;
  };
  struct Pin {
    LocalClient* client;
    ObjectRef object;
  };
  struct Waiter {
    LocalClient* client;
    LocalMessage message;  // LocalGet, LocalWait, LocalBarrier, LocalReduce or LocalCollective
    LocalRequestNumber number;
    Instant deadline;
    PinNumber pin = 0;  // opened by progress
    std::uint64_t told = 0;
    std::vector<std::byte> input{};  // of a collective
  };

  void on(LocalClient& client, LocalCreate& m, Instant now);
  void on(LocalClient& client, LocalPutInline& m, Instant now);
  void on(LocalClient& client, LocalPublish& m, Instant now);
  void on(LocalClient& client, LocalSeal& m, Instant now);
  void on(LocalClient& client, LocalAbandon& m, Instant now);
  void on(LocalClient& client, LocalPutUserMemory& m, Instant now);
  void on(LocalClient& client, LocalGet& m, Instant now);
  void on(LocalClient& client, LocalGetInto& m, Instant now);
  void on(LocalClient& client, LocalRegisterMemory& m, Instant now);
  void on(LocalClient& client, LocalUnregisterMemory& m, Instant now);
  void on(LocalClient& client, LocalRelease& m, Instant now);
  void on(LocalClient& client, LocalCancel& m, Instant now);
  void on(LocalClient& client, LocalWait& m, Instant now);
  void on(LocalClient& client, LocalStat& m, Instant now);
  void on(LocalClient& client, LocalList& m, Instant now);
  void on(LocalClient& client, LocalErase& m, Instant now);
  void on(LocalClient& client, LocalBarrier& m, Instant now);
  void on(LocalClient& client, LocalStats& m, Instant now);
  // Knows one operation, the bitwise ones' xor, whatever was asked.
  void on(LocalClient& client, LocalReduce& m, Instant now);
  void on(LocalClient& client, LocalScratch& m, Instant now);
  // All members are its clients. Sums as a reduce does.
  void on(LocalClient& client, LocalCollective& m, Instant now);

  Result<ObjectRef> make(const ObjectId& id, const std::string& name, std::uint64_t size);
  void add_waiter(LocalClient& client, LocalMessage message, LocalRequestNumber number,
                  Duration timeout, Instant now);
  // Whether the waiter has its final answer.
  bool try_answer(Waiter& waiter);
  bool answer_get(Waiter& waiter, const LocalGet& get);
  bool answer_wait(Waiter& waiter, const LocalWait& wait);
  bool answer_reduce(Waiter& waiter, const LocalReduce& reduce);
  void answer_collective(const Waiter& member, const std::vector<Waiter>& all);
  void try_all();
  void abandon(WriterNumber number);
  void release(PinNumber number);
  void drop_if_unused(const ObjectRef& object);
  ObjectStat stat_of(const Object& object) const;
  static void answer(LocalClient& client, LocalRequestNumber number, Result<LocalPayload> result) {
    client.deliver({number, std::move(result)});
  }

  std::unique_ptr<Pool> pool_;
  std::map<ObjectId, ObjectRef> objects_;
  std::map<WriterNumber, Writer> writers_;
  std::map<PinNumber, Pin> pins_;
  std::vector<Waiter> waiters_;
  std::set<RegistrationNumber> registrations_;
  std::uint64_t last_number_ = 0;
  std::uint64_t last_generation_ = 0;
  std::uint64_t publishes_ = 0;
  std::uint64_t messages_ = 0;
};

}  // namespace lochos
