// What the conformance suite runs on: a few hosts of one backend, and a way to let time pass until
// something is true. A backend that is not there says why, and its tests are skipped.
//
// Real backends sleep on their event descriptors between turns, so every test also tests those; sim
// moves its virtual clock.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <ostream>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "transport/transport.h"

namespace lochos {

// A completion as the tests keep it: the bytes of a message are copied out.
struct Arrival {
  Completion completion;
  std::vector<std::byte> message;
};

// One transport and all it has reported.
class TestHost {
 public:
  explicit TestHost(std::unique_ptr<Transport> transport) : transport_(std::move(transport)) {}

  Transport& transport() { return *transport_; }
  bool alive() const { return transport_ != nullptr; }
  // One turn of an event loop. Returns whether there was anything.
  bool turn(Instant now);
  // What a killed process leaves: its transport is gone, nobody said good-bye.
  void destroy() { transport_.reset(); }

  std::vector<Arrival> requests;
  std::vector<Arrival> arrivals;  // messages and immediates in the order they came
  std::vector<ConnectionEvent> events;
  // How many completions and events to take a turn; small numbers find what is lost in between.
  std::size_t batch = 64;
  bool polls = true;  // false: the host is there but looks at nothing
  // The first thing that was reported in an order that transport.h forbids, or "".
  std::string disorder;

  const ConnectionEvent* find(ConnectionEvent::Kind kind, const Endpoint* endpoint) const;
  std::size_t count(ConnectionEvent::Kind kind) const;

 private:
  void check(const Completion& completion);
  void check(const ConnectionEvent& event);

  std::unique_ptr<Transport> transport_;
  std::set<const Endpoint*> open_;
};

class Testbed {
 public:
  virtual ~Testbed() = default;
  // A transport of host number `index`.
  virtual Result<std::unique_ptr<Transport>> open(std::size_t index,
                                                  const TransportOptions& options) = 0;
  // Where host number `index` can listen; port 0.
  virtual SocketAddress address(std::size_t index) const = 0;
  // An address of IPv6. REQUIRES: the backend has them. Errors: kUnsupported: this machine has
  // none.
  virtual Result<SocketAddress> address_v6() const = 0;
  // An address that swallows connection requests, if this backend can have one here.
  virtual Result<SocketAddress> blackhole() = 0;
  virtual Instant now() const = 0;
  // Lets time pass until something happens for one of `hosts`, at most until `limit`.
  virtual void idle(std::span<TestHost*> hosts, Instant limit) = 0;
  // The host's process is killed.
  virtual void kill(TestHost& host, std::size_t index) = 0;
};

struct Backend {
  std::string name;
  bool needs_device = false;  // open() may say kUnsupported: this machine has no such device
  bool is_real = true;        // has descriptors to sleep on and addresses of IPv6; else virtual
  int cycles = 1000;          // how often to repeat what must not leak; less where it is slow
  std::function<Result<std::unique_ptr<Testbed>>()> open;
};

inline void PrintTo(const Backend& backend, std::ostream* out) {
  *out << backend.name;
}

// fabric, verbs and sim. verbs runs on the host's first usable RDMA port and is skipped, with
// the reason, without one: tests/lab/rxe has one.
std::vector<Backend> all_backends();
// Those among them for promises that virtual time and made-up addresses cannot have.
std::vector<Backend> real_backends();

}  // namespace lochos
