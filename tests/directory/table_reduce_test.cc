// Reduces in the table: who is told to combine what, and what happens when somebody goes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/directory/cluster.h"

namespace lochos::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::uint64_t kSize = 1 << 20;
constexpr std::uint32_t kTarget = 1000;

Bytes floats(std::initializer_list<float> values) {
  Bytes bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.begin(), bytes.size());
  return bytes;
}

class TableReduce : public testing::Test {
 protected:
  // Sources are objects 0 … n-1, named after their numbers.
  RequestNumber reduce(NodeId from, std::uint32_t sources, std::uint32_t count,
                       bool deterministic = false) {
    Reduce message;
    message.request = ++cluster.requests;
    message.target = id_of(kTarget);
    message.name = "sum";
    for (std::uint32_t i = 0; i < sources; ++i)
      message.sources.push_back({id_of(i), "s" + std::to_string(i)});
    message.count = count;
    message.deterministic = deterministic;
    message.timeout = std::chrono::seconds(10);
    cluster.say(from, message);
    return message.request;
  }
  // The only message to the node: a task.
  ReduceTask task(NodeId node) {
    const auto taken = cluster.take<ReduceTask>(node);
    EXPECT_TRUE(taken.has_value()) << node.to_string();
    return taken.value_or(ReduceTask{});
  }
  static std::vector<ObjectId> ids(const ReduceTask& task) {
    std::vector<ObjectId> ids;
    for (const ReduceInput& input : task.inputs)
      ids.push_back(input.id);
    return ids;
  }
  void finish(NodeId node, const ReduceTask& task) {
    cluster.say(node, ReduceDone{task.reduce, task.slot, task.attempt});
  }
  void put_inline(NodeId node, std::uint32_t object, Bytes bytes) {
    Put put{.request = ++cluster.requests, .id = id_of(object), .name = {}, .size = bytes.size()};
    put.complete = true;
    put.inline_bytes = std::move(bytes);
    cluster.say(node, put);
    EXPECT_TRUE(cluster.take<PutReply>(node).has_value());
  }

  Cluster cluster;
  NodeId a = cluster.join("a"), b = cluster.join("b"), c = cluster.join("c"), d = cluster.join("d");
  NodeId caller = cluster.join("caller");
};

TEST_F(TableReduce, SmallSourcesAreCombinedHere) {
  put_inline(a, 0, floats({1, 2}));
  const RequestNumber request = reduce(caller, 2, 2);
  EXPECT_TRUE(cluster.silent(caller));
  put_inline(b, 1, floats({10, 20}));
  const auto reply = cluster.take<ReduceReply>(caller);
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->request, request);
  EXPECT_EQ(reply->size, 8U);
  EXPECT_THAT(reply->included, ElementsAre(0, 1));
  cluster.get(c, kTarget);
  const auto sum = cluster.take<Inline>(c);
  ASSERT_TRUE(sum.has_value());
  EXPECT_EQ(sum->bytes.to_bytes(), floats({11, 22}));
  EXPECT_EQ(cluster.table.stats().reduces, 0U);
}

TEST_F(TableReduce, AskedForAgainItGoesOn) {
  put_inline(a, 0, floats({1, 2}));
  Reduce message;
  message.request = reduce(caller, 2, 2);
  message.target = id_of(kTarget);
  message.sources = {{id_of(0), "s0"}, {id_of(1), "s1"}};
  message.count = 2;
  message.timeout = std::chrono::seconds(10);
  cluster.say(caller, message);
  EXPECT_TRUE(cluster.silent(caller));
  put_inline(b, 1, floats({10, 20}));
  EXPECT_TRUE(cluster.take<ReduceReply>(caller).has_value());
  EXPECT_TRUE(cluster.silent(caller));
}

TEST_F(TableReduce, AChainGrowsInTheOrderOfArrival) {
  reduce(caller, 3, 3);
  cluster.put(b, 1, kSize);
  EXPECT_TRUE(cluster.silent(b)) << "one source alone is its own stream";
  cluster.put(c, 2, kSize, /*complete=*/false);
  const ReduceTask second = task(c);
  EXPECT_THAT(ids(second), ElementsAre(id_of(1), id_of(2)));
  EXPECT_EQ(second.inputs[0].node, b);
  EXPECT_EQ(second.inputs[1].node, c);
  EXPECT_FALSE(second.is_target);
  cluster.put(a, 0, kSize);
  const ReduceTask root = task(a);
  EXPECT_THAT(ids(root), ElementsAre(second.output, id_of(0)));
  EXPECT_TRUE(root.is_target);
  EXPECT_EQ(root.output, id_of(kTarget));
  EXPECT_EQ(root.size, kSize);
}

TEST_F(TableReduce, TheTargetIsReadWhileItIsMadeAndCommittedAtItsEnd) {
  cluster.get(d, kTarget);
  const RequestNumber request = reduce(caller, 2, 2);
  cluster.put(a, 0, kSize);
  cluster.put(b, 1, kSize);
  const ReduceTask root = task(b);
  const auto assign = cluster.take<Assign>(d);
  ASSERT_TRUE(assign.has_value());
  EXPECT_TRUE(assign->uncommitted);
  EXPECT_EQ(assign->parent, b);
  cluster.done(d, kTarget, *assign);
  EXPECT_TRUE(cluster.silent(d)) << "all bytes are there, but they may still be void";
  finish(b, root);
  EXPECT_TRUE(cluster.take<Committed>(d).has_value());
  EXPECT_TRUE(cluster.take<Committed>(b).has_value());
  const auto reply = cluster.take<ReduceReply>(caller);
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->request, request);
  EXPECT_EQ(reply->generation, root.generation);
  EXPECT_FALSE(cluster.fetch(c, kTarget).uncommitted);
}

TEST_F(TableReduce, TheFirstToBeReadyGoIn) {
  reduce(caller, 4, 2);
  cluster.put(d, 3, kSize);
  cluster.put(b, 1, kSize);
  const ReduceTask root = task(b);
  EXPECT_TRUE(root.is_target);
  cluster.put(a, 0, kSize);
  EXPECT_TRUE(cluster.silent(a));
  finish(b, root);
  const auto reply = cluster.take<ReduceReply>(caller);
  ASSERT_TRUE(reply.has_value());
  EXPECT_THAT(reply->included, ElementsAre(1, 3));
}

TEST_F(TableReduce, SourcesOfOneNodeAreCombinedBeforeTheyLeaveIt) {
  cluster.put(a, 0, kSize);
  cluster.put(b, 1, kSize);
  cluster.put(a, 2, kSize);
  cluster.put(b, 3, kSize);
  reduce(caller, 4, 4);
  std::size_t network = 0;
  for (const NodeId node : {a, b}) {
    while (const auto sent = cluster.take<ReduceTask>(node)) {
      if (sent->inputs.size() < sent->expected_inputs) continue;
      for (const ReduceInput& input : sent->inputs)
        network += input.node != node ? 1 : 0;
    }
  }
  EXPECT_EQ(network, 1U);
}

TEST_F(TableReduce, AContributorsDeathRestartsOnlyWhatIsAboveIt) {
  cluster.put(a, 0, kSize);
  reduce(caller, 4, 3);
  cluster.put(b, 1, kSize);
  const ReduceTask middle = task(b);
  cluster.put(c, 2, kSize);
  const ReduceTask root = task(c);
  cluster.get(d, kTarget);
  const auto reading = cluster.take<Assign>(d);
  ASSERT_TRUE(reading.has_value());
  cluster.put(d, 3, kSize);  // a spare
  cluster.die(c);
  EXPECT_TRUE(cluster.take<EdgeRevoked>(d).has_value());
  // The reader begins again; the spare is the new root, and the middle keeps its work.
  const auto restarted = cluster.take<Restarted>(d);
  ASSERT_TRUE(restarted.has_value());
  EXPECT_EQ(restarted->generation, reading->generation);
  const ReduceTask again = task(d);
  EXPECT_TRUE(again.is_target);
  EXPECT_GT(again.attempt, root.attempt);
  EXPECT_GT(again.generation, root.generation);
  EXPECT_THAT(ids(again), ElementsAre(middle.output, id_of(3)));
  EXPECT_TRUE(cluster.silent(b));
  finish(c, root);  // a word from the dead has no effect
  EXPECT_TRUE(cluster.silent(caller));
  finish(d, again);
  EXPECT_THAT(cluster.take<ReduceReply>(caller).value().included, ElementsAre(0, 1, 3));
}

TEST_F(TableReduce, ALostLeafsAncestorsBeginAnewWhenItIsPutAgain) {
  cluster.put(a, 0, kSize);
  reduce(caller, 3, 3);
  cluster.put(b, 1, kSize);
  const ReduceTask middle = task(b);
  cluster.put(c, 2, kSize);
  const ReduceTask root = task(c);
  cluster.die(a);
  cluster.pass(std::chrono::seconds(2), {b, c, d, caller});
  cluster.put(d, 0, kSize);
  ReduceTask middle_again, root_again;
  while (!cluster.silent(b)) {
    if (auto sent = cluster.take<ReduceTask>(b))
      middle_again = *sent;
    else if (!cluster.take<ReduceCancel>(b))
      FAIL();
  }
  while (!cluster.silent(c)) {
    if (auto sent = cluster.take<ReduceTask>(c))
      root_again = *sent;
    else if (!cluster.take<ReduceCancel>(c) && !cluster.take<Restarted>(c))
      FAIL();
  }
  EXPECT_GT(middle_again.attempt, middle.attempt);
  EXPECT_NE(middle_again.output, middle.output);
  EXPECT_THAT(ids(middle_again), ElementsAre(id_of(0), id_of(1)));
  EXPECT_EQ(middle_again.inputs[0].node, d);
  EXPECT_THAT(ids(root_again), ElementsAre(middle_again.output, id_of(2)));
  EXPECT_TRUE(root_again.is_target);
  finish(c, root);
  EXPECT_TRUE(cluster.silent(caller)) << "the old attempt lacks nothing but its right to be";
  finish(c, root_again);
  EXPECT_TRUE(cluster.take<ReduceReply>(caller).has_value());
}

TEST_F(TableReduce, SizesThatDifferAreNamed) {
  cluster.put(a, 0, kSize);
  reduce(caller, 2, 2);
  cluster.put(b, 1, kSize * 2);
  const auto failed = cluster.take<Failed>(caller);
  ASSERT_TRUE(failed.has_value());
  EXPECT_EQ(failed->code, Errc::kInvalidArgument);
  EXPECT_THAT(failed->message, HasSubstr("'s0'"));
  EXPECT_THAT(failed->message, HasSubstr("'s1'"));
  EXPECT_EQ(cluster.table.stats().reduces, 0U);
  cluster.put(c, kTarget, 10);  // the target's id is free
}

TEST_F(TableReduce, ASizeThatIsNoMultipleOfTheElementIsNamed) {
  reduce(caller, 2, 2);
  cluster.put(a, 0, kSize + 2);
  const auto failed = cluster.take<Failed>(caller);
  ASSERT_TRUE(failed.has_value());
  EXPECT_EQ(failed->code, Errc::kInvalidArgument);
  EXPECT_THAT(failed->message, HasSubstr("'s0'"));
  EXPECT_THAT(failed->message, HasSubstr("'sum'"));
}

TEST_F(TableReduce, AnErasedSourceEndsItUnlessEnoughAreLeft) {
  reduce(caller, 3, 2);
  cluster.put(a, 0, kSize);
  cluster.say(d, Erase{.request = ++cluster.requests, .id = id_of(0)});
  EXPECT_TRUE(cluster.silent(caller));
  cluster.put(b, 1, kSize);
  cluster.say(d, Erase{.request = ++cluster.requests, .id = id_of(1)});
  const auto failed = cluster.take<Failed>(caller);
  ASSERT_TRUE(failed.has_value());
  EXPECT_EQ(failed->code, Errc::kDeleted);
  EXPECT_THAT(failed->message, HasSubstr("'s1'"));
}

TEST_F(TableReduce, ASourceThatIsPutAgainIsNoLongerErased) {
  const auto erase = [&](std::uint32_t object) {
    cluster.say(d, Erase{.request = ++cluster.requests, .id = id_of(object)});
    EXPECT_TRUE(cluster.take<Deleted>(a).has_value());
  };
  reduce(caller, 3, 2);
  cluster.put(a, 0, kSize);
  erase(0);
  cluster.put(a, 0, kSize);
  erase(0);
  cluster.put(a, 0, kSize);
  EXPECT_TRUE(cluster.silent(caller)) << "two of three can still come";
  cluster.put(b, 1, kSize);
  EXPECT_TRUE(task(b).is_target);
}

TEST_F(TableReduce, TheSizeOfASourceThatIsGoneBindsNobody) {
  reduce(caller, 3, 2);
  cluster.put(a, 0, kSize);
  cluster.say(d, Erase{.request = ++cluster.requests, .id = id_of(0)});
  cluster.put(b, 1, 2 * kSize);
  cluster.put(c, 2, 2 * kSize);
  EXPECT_TRUE(cluster.silent(caller));
  EXPECT_EQ(task(c).size, 2 * kSize);
}

TEST_F(TableReduce, TheDeadlineSaysWhatIsMissing) {
  reduce(caller, 3, 3);
  cluster.put(a, 0, kSize);
  cluster.put(b, 1, kSize);
  const ReduceTask middle = task(b);
  cluster.pass(std::chrono::seconds(11), {a, b, c, d, caller});
  const auto failed = cluster.take<Failed>(caller);
  ASSERT_TRUE(failed.has_value());
  EXPECT_EQ(failed->code, Errc::kTimedOut);
  EXPECT_THAT(failed->message, HasSubstr("2 of the 3"));
  EXPECT_THAT(failed->message, HasSubstr("'s2'"));
  EXPECT_EQ(cluster.take<ReduceCancel>(b).value().attempt, middle.attempt);
  EXPECT_EQ(cluster.table.stats().timers, 0U);
}

TEST_F(TableReduce, TheCallersDeathEndsIt) {
  cluster.put(a, 0, kSize);
  cluster.put(b, 1, kSize);
  reduce(caller, 2, 2);
  task(b);
  const auto reading = cluster.fetch(d, kTarget);
  cluster.die(caller);
  EXPECT_EQ(cluster.take<Withdrawn>(d).value().generation, reading.generation);
  EXPECT_EQ(cluster.table.stats().reduces, 0U);
  cluster.put(c, kTarget, 10);
}

TEST_F(TableReduce, TheIdOfARunningTargetIsTaken) {
  reduce(caller, 2, 2);
  cluster.say(a, Put{.request = ++cluster.requests,
                     .id = id_of(kTarget),
                     .name = {},
                     .size = kSize,
                     .complete = true});
  EXPECT_EQ(cluster.take<Failed>(a).value().code, Errc::kAlreadyExists);
  reduce(b, 2, 2);
  EXPECT_EQ(cluster.take<Failed>(b).value().code, Errc::kAlreadyExists);
}

TEST_F(TableReduce, ErasingTheTargetEndsIt) {
  cluster.put(a, 0, kSize);
  cluster.put(b, 1, kSize);
  reduce(caller, 2, 2);
  const ReduceTask root = task(b);
  cluster.say(d, Erase{.request = ++cluster.requests, .id = id_of(kTarget)});
  EXPECT_EQ(cluster.take<Failed>(caller).value().code, Errc::kDeleted);
  EXPECT_TRUE(cluster.take<EraseReply>(d).value().existed);
  EXPECT_EQ(cluster.take<Deleted>(b).value().generation, root.generation);
}

TEST_F(TableReduce, ADeterministicSumDoesNotDependOnTheOrderOfArrival) {
  reduce(caller, 3, 3, /*deterministic=*/true);
  cluster.put(c, 2, kSize);
  cluster.put(a, 0, kSize);
  cluster.put(b, 1, kSize);
  ReduceTask middle = task(b);
  ReduceTask root;
  while (auto sent = cluster.take<ReduceTask>(c))
    root = *sent;
  EXPECT_THAT(ids(middle), ElementsAre(id_of(0), id_of(1)));
  EXPECT_THAT(ids(root), ElementsAre(middle.output, id_of(2)));
  EXPECT_TRUE(root.is_target);
}

TEST_F(TableReduce, AReduceOfATargetUnderWayIsCommittedAfterIt) {
  cluster.put(a, 0, kSize);
  cluster.put(b, 1, kSize);
  reduce(caller, 2, 2);
  const ReduceTask first = task(b);
  Reduce second;
  second.request = ++cluster.requests;
  second.target = id_of(kTarget + 1);
  second.sources = {{id_of(kTarget), "sum"}, {id_of(5), "other"}};
  second.count = 2;
  second.timeout = std::chrono::seconds(10);
  cluster.say(d, second);
  cluster.put(c, 5, kSize);
  const ReduceTask outer = task(c);
  EXPECT_THAT(ids(outer), ElementsAre(id_of(kTarget), id_of(5)));
  finish(c, outer);
  EXPECT_TRUE(cluster.silent(d)) << "its source may still be made anew";
  finish(b, first);
  EXPECT_TRUE(cluster.take<ReduceReply>(d).has_value());
}

TEST_F(TableReduce, BadRequestsAreRefused) {
  const auto refused = [&](Reduce message) {
    message.request = ++cluster.requests;
    message.target = id_of(kTarget);
    message.timeout = std::chrono::seconds(1);
    cluster.say(caller, message);
    const auto failed = cluster.take<Failed>(caller);
    return failed && failed->code == Errc::kInvalidArgument;
  };
  Reduce message;
  EXPECT_TRUE(refused(message)) << "no sources";
  message.sources = {{id_of(0), ""}, {id_of(0), ""}};
  message.count = 2;
  EXPECT_TRUE(refused(message)) << "the same twice";
  message.sources = {{id_of(0), ""}, {id_of(kTarget), ""}};
  EXPECT_TRUE(refused(message)) << "the target is a source";
  message.sources = {{id_of(0), ""}, {id_of(1), ""}};
  message.count = 3;
  EXPECT_TRUE(refused(message)) << "more than there are";
  message.count = 0;
  EXPECT_TRUE(refused(message)) << "none";
  message.count = 2;
  message.op = ReduceOp::kBitXor;
  EXPECT_TRUE(refused(message)) << "bits of floats";
  EXPECT_EQ(cluster.table.stats().entries, 0U);
}

}  // namespace
}  // namespace lochos::test
