// User memory that is registered with every rail of a node: for as long as its owner says so
// (`add`, `remove`), or for one use. Engine thread only.
//
// The ranges are explicit because nobody tells a process that memory was unmapped: a cache that
// guessed would hand out registrations of pages that belong to something else by now.
//
// Whoever uses a range shares it: a range that is removed stays registered until its last user has
// let go. All users must be gone before the rails are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "node/local_messages.h"
#include "transport/transport.h"

namespace lochos {

// One piece of memory, registered with every rail. Dies with its registrations.
class RegisteredMemory {
 public:
  // `regions`: one a rail, of at least `bytes` each.
  RegisteredMemory(std::span<std::byte> bytes, std::vector<std::unique_ptr<Region>> regions)
      : bytes_(bytes), regions_(std::move(regions)) {}

  std::span<std::byte> bytes() const { return bytes_; }
  const Region& region(std::size_t rail) const { return *regions_.at(rail); }

 private:
  const std::span<std::byte> bytes_;
  const std::vector<std::unique_ptr<Region>> regions_;
};

class RegisteredRanges {
 public:
  explicit RegisteredRanges(std::vector<Transport*> rails) : rails_(std::move(rails)) {}

  // Registers a range until remove(). Ranges may overlap. Errors: kInvalidArgument (no bytes), and
  // what Transport::register_memory says; nothing stays registered then.
  Result<RegistrationNumber> add(std::span<std::byte> memory);
  // The range is not given out any more. A number that is not known is ignored.
  void remove(RegistrationNumber number);

  // A registration that covers `memory`: that of a range which holds all of it, else one of its own
  // that ends with its last user. Errors: as add().
  Result<std::shared_ptr<const RegisteredMemory>> use(std::span<std::byte> memory);

  std::size_t size() const { return by_number_.size(); }
  void clear();

 private:
  using ByBegin = std::multimap<const std::byte*, std::shared_ptr<const RegisteredMemory>>;

  Result<std::shared_ptr<const RegisteredMemory>> make(std::span<std::byte> memory) const;

  const std::vector<Transport*> rails_;
  ByBegin by_begin_;
  std::unordered_map<RegistrationNumber, ByBegin::iterator> by_number_;
  // No range was longer since the last time there was none: bounds the search among overlapping
  // ones.
  std::size_t longest_ = 0;
  RegistrationNumber last_number_ = 0;
};

}  // namespace lochos
