// The objects of a node by id, their storage in the pool, and which copies may be evicted.
// Engine thread only.
//
// Ownership: the index owns every LocalObject, also retired ones, until `release` finds that a
// retired object has no references; the pointer is then dead.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <unordered_map>

#include "node/local_object.h"

namespace lochos {

class ObjectIndex {
 public:
  explicit ObjectIndex(std::unique_ptr<Pool> pool) : pool_(std::move(pool)) {}

  // The object that lives under `id` now, or null.
  LocalObject* find(const ObjectId& id) const;

  // A new object without storage, not yet under its id.
  LocalObject& make(const ObjectId& id, const std::string& name);
  // Puts it under its id. REQUIRES: nothing is there.
  void enter(LocalObject& object);
  // Takes it from under its id, if it is there, and marks it retired. Destroys it if unreferenced.
  void retire(LocalObject& object);

  // Gives the object storage for `size` bytes, evicting unused fetched copies if need be (least
  // recently used first). Each evicted id is appended to `evicted`. Errors: kNoSpace.
  Status allocate(LocalObject& object, std::uint64_t size,
                  std::vector<std::pair<ObjectId, Generation>>& evicted);

  void add_reference(LocalObject& object);
  void drop_reference(LocalObject& object);
  // The object was used, or its state changed: decides anew whether and when it may be evicted.
  void touch(LocalObject& object) { update_lru(object); }

  // First byte. REQUIRES: storage.
  std::byte* data(const LocalObject& object) const;

  // Destroys every object, also those that are referenced. The end.
  void clear();

  const Pool& pool() const { return *pool_; }
  std::size_t size() const { return by_id_.size(); }
  std::uint64_t evictions() const { return evictions_; }
  std::uint64_t destroyed() const { return destroyed_; }

  template <class F>
  void for_each(F&& visit) const {
    for (const auto& [id, object] : by_id_)
      visit(*object);
  }

  // Told just before an object is destroyed.
  std::function<void(LocalObject&)> on_destroy;

 private:
  void update_lru(LocalObject& object);
  void destroy(LocalObject& object);
  bool evict_one(std::vector<std::pair<ObjectId, Generation>>& evicted);

  std::unique_ptr<Pool> pool_;
  std::unordered_map<ObjectId, LocalObject*, ObjectIdHash> by_id_;
  std::unordered_map<LocalObject*, std::unique_ptr<LocalObject>> all_;
  std::list<LocalObject*> lru_;  // complete, fetched, unreferenced; front is the oldest
  std::uint64_t evictions_ = 0;
  std::uint64_t destroyed_ = 0;
};

}  // namespace lochos
