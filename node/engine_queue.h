// How clients in the engine's own process reach it: any thread submits, the engine thread handles.
// The node implements the queue; make_embedded_backend (store_backend.h) builds a Store on it.
//
// Thread word: thread-safe. Order: the engine handles the messages of one client in the order of
// submission. Locks: deliver() and closed() may take the client's lock, so the queue calls neither
// with its own lock held; a client calls submit() with its lock held.
#pragma once

#include <memory>

#include "node/engine.h"
#include "node/local_messages.h"

namespace lochos {

class EmbeddedClient : public LocalClient {
 public:
  bool in_process() const final { return true; }
  // The engine has ended: nothing is delivered any more. Called once, on the thread that closes the
  // queue, for every client that is attached then.
  virtual void closed() = 0;
};

class EngineQueue {
 public:
  virtual ~EngineQueue() = default;

  // Makes a client known, so that it hears of closed(). False: the queue is closed already.
  virtual bool attach(std::shared_ptr<EmbeddedClient> client) = 0;
  // Queues a message for the engine thread, which calls Engine::handle(client, message, now);
  // never delivers from within this call. False: the queue is closed and the message was dropped.
  // REQUIRES: `client` is attached.
  virtual bool submit(LocalClient& client, LocalMessage message) = 0;
  // No more messages come from this client. The queue drops its reference once the engine has
  // handled what was submitted before and has forgotten the client. Does not wait for that.
  virtual void detach(EmbeddedClient& client) = 0;
};

}  // namespace lochos
