// An object being made, seen from the client: memory in the pool, and messages about its progress.
// Thread-safe.
#pragma once

#include <memory>
#include <mutex>

#include "node/pending.h"
#include "node/store.h"

namespace lochos {

class ObjectWriter::Backend {
 public:
  // Errors: kProtocol if the node named memory outside its pool.
  static Result<std::unique_ptr<Backend>> make(std::shared_ptr<LocalLink> link,
                                               const LocalCreated& created, CallContext context);
  ~Backend();

  std::span<std::byte> bytes() const { return bytes_; }

  // Tells the node at most once in 64 KiB, or once in a millisecond if the producer is slower than
  // that; what it does not hear at once it hears with the next call that is due, or with seal().
  void publish(std::uint64_t count);
  Status seal(Duration timeout);

 private:
  Backend(std::shared_ptr<LocalLink> link, WriterNumber writer, std::span<std::byte> bytes,
          CallContext context);

  const std::shared_ptr<LocalLink> link_;
  const WriterNumber writer_;
  const std::span<std::byte> bytes_;
  const CallContext context_;
  std::mutex mutex_;             // guards what follows
  std::uint64_t published_ = 0;  // as the node knows
  Instant published_at_;
  bool ended_ = false;  // sealed, or failed to
};

}  // namespace lochos
