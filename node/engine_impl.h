// The engine's insides. One class, cut by concern: engine.cc (turn, time, life), engine_clients.cc
// (what local clients ask), engine_user_memory.cc (their memory in place of the pool),
// engine_directory.cc (what the directory says), engine_edges.cc (connections and transfers),
// engine_reduce.cc (combining streams), engine_collective.cc.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "node/collective_work.h"
#include "node/edges.h"
#include "node/engine.h"
#include "node/object_index.h"
#include "node/peer_links.h"
#include "node/reduce_work.h"
#include "node/registered_ranges.h"

namespace lochos {

class EngineImpl final : public Engine {
 public:
  static Result<std::unique_ptr<Engine>> open(EngineOptions options, std::unique_ptr<Pool> pool,
                                              std::vector<Rail> rails,
                                              std::unique_ptr<DirectoryChannel> directory);
  EngineImpl(EngineOptions options, std::unique_ptr<Pool> pool, std::vector<Rail> rails,
             std::unique_ptr<DirectoryChannel> directory);
  ~EngineImpl() override;

  void handle(LocalClient& client, LocalMessage message, Instant now) override;
  void forget(LocalClient& client, Instant now) override;
  bool turn(Instant now) override;
  bool arm() override;
  std::vector<int> event_fds() const override;
  Instant next_deadline() const override;
  NodeStats stats() const override;
  const Pool& pool() const override { return index_.pool(); }
  bool joined() const override { return directory_->joined(); }
  void leave() override;

 private:
  using State = LocalObject::State;

  // A client's request under way.
  struct Operation {
    LocalClient* client = nullptr;
    LocalRequestNumber request = 0;
    const char* name = "";
    std::string object_name;
    Instant deadline = kNever;
    LocalObject* object = nullptr;        // get, create, seal, put of user memory
    RequestNumber directory_request = 0;  // wait, stat, list, erase, barrier
    bool progress = false;
    PinNumber pin = 0;  // opened by the first progress reply
    std::uint64_t reported = 0;
    std::vector<ObjectId> ids;  // wait: to find positions
    WriterNumber writer = 0;    // create, put, seal: the maker's
    CollectiveWork* collective = nullptr;
    // What to handle again when the directory has answered; see handle_after_answer().
    std::unique_ptr<LocalMessage> again;
    // How a get into a buffer has failed. Its answer waits until nobody can write there any more.
    std::unique_ptr<Error> failure;
  };
  using Operations = std::unordered_map<OperationNumber, Operation>;
  struct Pin {
    LocalClient* client = nullptr;
    LocalObject* object = nullptr;
  };
  struct Writer {
    LocalClient* client = nullptr;
    LocalObject* object = nullptr;
  };
  struct Client {
    std::unordered_map<LocalRequestNumber, OperationNumber> operations;
    std::unordered_set<PinNumber> pins;
    std::unordered_set<WriterNumber> writers;
    std::unordered_set<RegistrationNumber> registrations;
  };
  // What a directory request was for: an operation that passes it through, or an object's Put or
  // Get.
  struct Outstanding {
    OperationNumber operation = 0;
    LocalObject* object = nullptr;
    std::optional<NodeMessage>
        message;  // to issue it again after a re-join; absent for objects (made anew)
    // The caller of this Put gave up: undo it when the answer comes.
    bool undo_put = false;
    ObjectId id;
    bool complete_put = false;
  };

  // Something to look at later. Never taken back: what has been settled by then is ignored.
  struct Timer {
    std::optional<ObjectId> object;  // report its failed edge, or what the fields below say
    std::uint32_t slot = 0;          // without object: has the parent of this edge stopped?
    EdgeNumber edge = 0;
    ReduceKey reduce{};  // pull this stream of it again
    AttemptNumber attempt = 0;
    bool parked = false;  // the object's parked pulls have waited long enough
  };

  // A pull of what is not here yet.
  struct ParkedPull {
    Connection* connection = nullptr;
    PullMessage pull;
    Instant until{};
  };

  // --- engine_clients.cc ---
  void on(LocalClient& client, LocalCreate& m);
  void on(LocalClient& client, LocalPutInline& m);
  void on(LocalClient& client, LocalPublish& m);
  void on(LocalClient& client, LocalSeal& m);
  void on(LocalClient& client, LocalAbandon& m);
  void on(LocalClient& client, LocalGet& m);
  void on(LocalClient& client, LocalRelease& m);
  void on(LocalClient& client, LocalCancel& m);
  void on(LocalClient& client, LocalWait& m);
  void on(LocalClient& client, LocalStat& m);
  void on(LocalClient& client, LocalList& m);
  void on(LocalClient& client, LocalErase& m);
  void on(LocalClient& client, LocalBarrier& m);
  void on(LocalClient& client, LocalStats& m);
  void on(LocalClient& client, LocalReduce& m);
  void on(LocalClient& client, LocalScratch& m);
  void on(LocalClient& client, LocalCollective& m);
  OperationNumber begin(LocalClient& client, LocalRequestNumber request, const char* name,
                        std::string object_name, Duration timeout);
  Operation take_operation(Operations::iterator at);
  void finish(OperationNumber number, Result<LocalPayload> result);
  void reply_error(LocalClient& client, LocalRequestNumber request, const char* name,
                   const std::string& object_name, Error error);
  // Ends the operation with this error and takes back whatever it had begun.
  void give_up(OperationNumber number, Error error);
  void pass_on(OperationNumber number, NodeMessage message);
  // What the directory is given of a caller's time where its error says more than ours could: a
  // little less, so that it comes first.
  static Duration directory_timeout(Duration timeout);
  // What a request's object is called, for error text.
  template <class Message>
  static std::string name_of(const Message& m) {
    return m.name.empty() ? m.id.to_hex() : m.name;
  }
  Status check_free(const ObjectId& id) const;
  const LocalObject* possibly_erased(const ObjectId& id) const;
  void handle_after_answer(LocalClient& client, const char* name, const LocalObject& existing,
                           LocalMessage message);
  bool handle_again(OperationNumber number);
  Result<LocalObject*> make_own(const ObjectId& id, const std::string& name, std::uint64_t size);
  WriterNumber open_writer(LocalClient& client, LocalObject& object);
  void begin_claim(LocalClient& client, LocalRequestNumber request, const char* name,
                   Duration timeout, WriterNumber writer);
  void claim(LocalObject& object);
  // Local readers that wait for the object's id wait for this object from now on.
  void take_over_wanted(LocalObject& object);
  void deliver_view(OperationNumber number, LocalObject& object);
  void report_progress(LocalObject& object);
  PinNumber open_pin(LocalClient& client, LocalObject& object);
  void close_pin(PinNumber pin);
  void close_writer(WriterNumber writer);
  void abandon(WriterNumber writer);
  // No reader waits for it any more and nobody is fed by it: stop fetching.
  void stop_if_unwanted(LocalObject& object);
  LocalView view_of(const LocalObject& object, PinNumber pin) const;

  // --- engine_user_memory.cc ---
  void on(LocalClient& client, LocalPutUserMemory& m);
  void on(LocalClient& client, LocalGetInto& m);
  void on(LocalClient& client, LocalRegisterMemory& m);
  void on(LocalClient& client, LocalUnregisterMemory& m);
  const Region& region_of(const LocalObject& object, std::size_t rail) const;
  Status give_buffer(LocalObject& object, std::uint64_t size);
  void receive_inline(LocalObject& object, const Inline& m);
  void share(LocalObject& object);
  void complete_into(LocalObject& object);
  void end_into(LocalObject& object, Error error);
  void hold_back(OperationNumber number, Error error);
  void answer_held_back(LocalObject& object);

  // --- engine_directory.cc ---
  bool poll_directory();
  void on(Joined& m);
  void on(PutReply& m);
  void on(Inline& m);
  void on(Assign& m);
  void on(Failed& m);
  void on(EraseReply& m);
  void on(StatReply& m);
  void on(ListReply& m);
  void on(WaitReply& m);
  void on(BarrierReply& m);
  void on(MembersReply&) {}
  void on(EdgeRevoked& m);
  void on(Deleted& m);
  void on(Withdrawn& m);
  void on(Fenced&) {}                        // the channel joins again by itself; Joined follows
  void request_object(LocalObject& object);  // Get
  void send_put(LocalObject& object);
  void forget_request(LocalObject& object);
  std::optional<Outstanding> take_outstanding(RequestNumber request);
  LocalObject* object_of(RequestNumber request) const;
  Status give_storage(LocalObject& object, std::uint64_t size);
  void complete(LocalObject& object);
  // Ends the object's life under its id: readers fail with `reason`, edges end, storage goes when
  // unused.
  void withdraw(LocalObject& object, Error reason);

  // --- engine_reduce.cc ---
  void on(ReduceReply& m);
  void on(ReduceTask& m);
  void on(ReduceCancel& m);
  void on(Committed& m);
  void on(Restarted& m);
  ReduceWork& begin_work(ReduceTask task, LocalObject& output);
  void restart(LocalObject& object);
  void seek_anew(const ObjectId& id, const std::string& name, std::vector<OperationNumber> readers);
  void forget_reduces();
  void add_streams(ReduceWork& work, const std::vector<ReduceInput>& inputs);
  bool add_local_stream(ReduceWork& work, const ReduceInput& input);
  bool add_remote_stream(ReduceWork& work, const ReduceInput& input);
  static ReduceStream& stream_of(ReduceWork& work, const LocalObject& staging);
  void start_stream(ReduceWork& work, LocalObject& staging);
  void on_stream_failure(LocalObject& staging, const IncomingEdge& edge);
  void retry_stream(const Timer& timer);
  void report_reduce_failure(const ReduceTask& task, const ObjectId& input, Errc reason,
                             std::string message);
  void make_ready(ReduceWork& work);
  bool combine();
  void combine_slice(ReduceWork& work);
  void finish_reduce(ReduceWork& work);
  void release_streams(ReduceWork& work);
  void give_up(ReduceWork& work);
  void end_reduce(ReduceWork& work, Errc reason);
  void park(Connection& connection, const PullMessage& m);
  void serve_parked(const LocalObject& object);
  void expire_parked(const ObjectId& id);
  bool unpark(const Connection& connection, std::uint32_t slot, EdgeNumber edge);
  void unpark_all(const Connection& connection);

  // --- engine_collective.cc ---
  void on(CollectivePeers& m);
  void on(CollectiveEnd& m);
  bool begin_collective(CollectiveWork& work, std::uint64_t chunk_bytes);
  LocalObject& slice_of(LocalObject& whole, std::uint64_t offset, std::uint64_t bytes);
  void add_own_copy(CollectiveWork& work, ReduceWork& reduce);
  void add_collective_input(CollectiveWork& work, ReduceWork& reduce,
                            const CollectiveStreamName& name, const CollectivePeer* peer);
  void add_peer(CollectiveWork& work, const CollectivePeer& peer);
  void start_direct_pulls(CollectiveWork& work);
  void finish_collective_if_done(CollectiveWork& work);
  void fail_collective(CollectiveWork& work, Errc reason, std::string message);
  void end_collective(CollectiveWork& work);
  void forget_collectives();

  // --- engine_edges.cc ---
  bool poll_rail(std::size_t rail);
  void on_connection_event(std::size_t rail, ConnectionEvent& event);
  void on_completion(const Completion& completion);
  void on_peer_message(Connection& connection, std::span<const std::byte> bytes);
  void on_peer(Connection& connection, const PullMessage& m);
  void on_peer(Connection& connection, const CancelPullMessage& m);
  void on_peer(Connection& connection, const PullEndMessage& m);
  void on_peer(Connection& connection, const PingMessage& m);
  void on_peer(Connection& connection, const PongMessage& m);
  void start_edge(LocalObject& object, const Assign& assignment);
  void connect_edge(IncomingEdge& edge);
  void send_pull(IncomingEdge& edge);
  void on_chunk(Connection& connection, std::uint32_t slot);
  void stop_edge(IncomingEdge& edge, bool seek_another, Errc reason);
  // The edge is over and its slot free; goes on as the edge says.
  void end_incoming(IncomingEdge& edge);
  void ask_again(LocalObject& object, const IncomingEdge& edge);
  void report_failed_edge(LocalObject& object);
  void advance(LocalObject& object, std::uint64_t valid);
  void make_ready(OutgoingEdge& edge);
  void pump();
  bool pump_edge(OutgoingEdge& edge);
  void end_outgoing(OutgoingEdge& edge, std::optional<Errc> tell_child);
  void destroy_outgoing(OutgoingEdge& edge);
  void lose_connection(Connection& connection, const Error& error);
  void close_connection(Connection& connection);
  std::size_t find_slot();

  // --- engine.cc ---
  void expire(Instant now);
  Error timed_out(const Operation& operation) const;
  void run_timers(Instant now);
  void trim_memory();
  void set_deadline(OperationNumber number, Operation& operation, Duration timeout);

  const EngineOptions options_;
  std::unique_ptr<DirectoryChannel> directory_;
  std::vector<Rail> rails_;
  std::vector<std::unique_ptr<Region>> pool_regions_;  // one a rail
  RegisteredRanges registered_;
  ObjectIndex index_;
  PeerLinks links_;

  Instant now_{};
  NodeId node_;
  bool handling_again_ = false;  // the message that waited for the directory's answer

  std::unordered_map<LocalClient*, Client> clients_;
  Operations operations_;
  std::set<std::pair<Instant, OperationNumber>> deadlines_;
  std::multimap<Instant, Timer> timers_;
  std::unordered_map<PinNumber, Pin> pins_;
  std::unordered_map<WriterNumber, Writer> writers_;
  std::unordered_map<RequestNumber, Outstanding> outstanding_;
  std::unordered_map<ObjectId, LocalObject*, ObjectIdHash>
      draining_external_;          // erased, may still be read from
  std::uint64_t next_number_ = 1;  // operations, pins, writers and requests: never reused

  std::vector<std::unique_ptr<IncomingEdge>> slots_;
  std::vector<std::uint32_t> free_slots_;
  std::unordered_map<OutgoingEdge*, std::unique_ptr<OutgoingEdge>> outgoing_;
  std::vector<OutgoingEdge*> ready_edges_;
  std::vector<OutgoingEdge*> pumping_;           // kept to reuse its memory
  std::unordered_set<LocalObject*> progressed_;  // this turn, with readers that want to know
  std::map<ReduceKey, std::unique_ptr<ReduceWork>> reduces_;
  std::unordered_map<CollectiveWork*, std::unique_ptr<CollectiveWork>> collectives_;
  std::vector<ReduceWork*> ready_reduces_;
  std::vector<ReduceWork*> combining_;    // kept to reuse its memory
  std::vector<const std::byte*> inputs_;  // of one slice; kept to reuse its memory
  std::unordered_multimap<ObjectId, ParkedPull, ObjectIdHash> parked_;
  std::vector<ChannelEvent> directory_events_;
  std::vector<Completion> completions_;
  std::vector<ConnectionEvent> connection_events_;

  std::uint64_t trimmed_at_ = 0;  // index_.destroyed() then
  std::uint64_t bytes_sent_ = 0, bytes_received_ = 0, edges_started_ = 0, edges_failed_ = 0;
};

}  // namespace lochos
