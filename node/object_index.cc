#include "node/object_index.h"

#include "base/check.h"

namespace lochos {

LocalObject* ObjectIndex::find(const ObjectId& id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second;
}

LocalObject& ObjectIndex::make(const ObjectId& id, const std::string& name) {
  auto owner = std::make_unique<LocalObject>();
  LocalObject& object = *owner;
  object.id = id;
  object.name = name;
  all_.emplace(&object, std::move(owner));
  return object;
}

void ObjectIndex::enter(LocalObject& object) {
  const bool inserted = by_id_.emplace(object.id, &object).second;
  LOCHOS_CHECK(inserted);
}

void ObjectIndex::retire(LocalObject& object) {
  const auto found = by_id_.find(object.id);
  if (found != by_id_.end() && found->second == &object) by_id_.erase(found);
  object.state = LocalObject::State::kRetired;
  update_lru(object);
  if (object.references == 0) destroy(object);
}

Status ObjectIndex::allocate(LocalObject& object, std::uint64_t size,
                             std::vector<std::pair<ObjectId, Generation>>& evicted) {
  LOCHOS_CHECK(!object.has_block);
  auto block = pool_->allocate(size);
  while (!block && block.error().code() == Errc::kNoSpace && size <= pool_->stats().capacity &&
         evict_one(evicted)) {
    block = pool_->allocate(size);
  }
  if (!block) return fail(block.error());
  object.block = *block;
  object.has_block = true;
  object.size = size;
  return {};
}

void ObjectIndex::add_reference(LocalObject& object) {
  ++object.references;
  update_lru(object);
}

void ObjectIndex::drop_reference(LocalObject& object) {
  LOCHOS_CHECK(object.references > 0);
  --object.references;
  if (object.references == 0 && object.state == LocalObject::State::kRetired) {
    destroy(object);
  } else {
    update_lru(object);
  }
}

std::byte* ObjectIndex::data(const LocalObject& object) const {
  // What a put serves from user memory is only ever read; the transports' interface has one pointer
  // type for both ways.
  if (object.external != nullptr) return const_cast<std::byte*>(object.external);
  LOCHOS_CHECK(object.has_block);
  return pool_->memory().data() + object.block.offset;
}

void ObjectIndex::clear() {
  by_id_.clear();
  lru_.clear();
  all_.clear();
}

void ObjectIndex::update_lru(LocalObject& object) {
  const bool evictable =
      object.state == LocalObject::State::kComplete && !object.origin && object.references == 0;
  if (object.in_lru) {
    lru_.erase(object.lru);
    object.in_lru = false;
  }
  if (evictable) {
    object.lru = lru_.insert(lru_.end(), &object);
    object.in_lru = true;
  }
}

void ObjectIndex::destroy(LocalObject& object) {
  if (on_destroy) on_destroy(object);
  if (object.has_block) pool_->free(object.block);
  all_.erase(&object);
  ++destroyed_;
}

bool ObjectIndex::evict_one(std::vector<std::pair<ObjectId, Generation>>& evicted) {
  if (lru_.empty()) return false;
  LocalObject& oldest = *lru_.front();
  evicted.emplace_back(oldest.id, oldest.generation);
  ++evictions_;
  retire(oldest);
  return true;
}

}  // namespace lochos
