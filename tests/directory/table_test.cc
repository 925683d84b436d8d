// The directory's promises, one test each, on the state machine alone.
#include "directory/table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/directory/cluster.h"

namespace lochos::test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kLarge = 64 * 1024 * 1024;

class TableTest : public ::testing::Test {
 protected:
  void SetUp() override {
    a = c.join("a");
    b = c.join("b");
    d = c.join("d");
    e = c.join("e");
  }
  void expect_empty() {
    const TableStats stats = c.table.stats();
    EXPECT_EQ(stats.objects, 0U);
    EXPECT_EQ(stats.entries, 0U);
    EXPECT_EQ(stats.copies, 0U);
    EXPECT_EQ(stats.edges, 0U);
    EXPECT_EQ(stats.waits, 0U);
    EXPECT_EQ(stats.inline_bytes, 0U);
  }

  Cluster c;
  NodeId a, b, d, e;
};

// ---- put and get ----

TEST_F(TableTest, SmallObjectComesInline) {
  c.put(a, 1, 100);
  const auto request = c.get(b, 1);
  const auto reply = c.take<Inline>(b);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->request, request);
  EXPECT_EQ(reply->bytes, SharedBytes(Bytes(100, std::byte{7})));
}

TEST_F(TableTest, ZeroLengthObjectIsValid) {
  c.put(a, 1, 0);
  c.get(b, 1);
  const auto reply = c.take<Inline>(b);
  ASSERT_TRUE(reply);
  EXPECT_TRUE(reply->bytes.empty());
}

TEST_F(TableTest, LargeObjectIsAssignedToItsHolder) {
  const Generation generation = c.put(a, 1, kLarge);
  const Assign edge = c.fetch(b, 1);
  EXPECT_EQ(edge.parent, a);
  EXPECT_EQ(edge.size, kLarge);
  EXPECT_EQ(edge.generation, generation);
  ASSERT_EQ(edge.rails.size(), 1U);
  EXPECT_GE(edge.chunk_bytes, 16U * 1024);
}

TEST_F(TableTest, GetBeforePutWaits) {
  const auto first = c.get(b, 1);
  const auto second = c.get(d, 1);
  EXPECT_TRUE(c.silent(b));
  c.put(a, 1, kLarge);
  const auto edge_b = c.take<Assign>(b), edge_d = c.take<Assign>(d);
  ASSERT_TRUE(edge_b && edge_d);
  EXPECT_EQ(edge_b->request, first);
  EXPECT_EQ(edge_d->request, second);
  EXPECT_EQ(edge_b->parent, a) << "the first to ask is next to the source";
  EXPECT_EQ(edge_d->parent, b);
}

TEST_F(TableTest, SimultaneousReceiversFormAChain) {
  c.put(a, 1, kLarge);
  EXPECT_EQ(c.fetch(b, 1).parent, a);
  EXPECT_EQ(c.fetch(d, 1).parent, b);
  EXPECT_EQ(c.fetch(e, 1).parent, d);
}

TEST_F(TableTest, LateReceiverFindsAnIdleCompleteCopy) {
  c.put(a, 1, kLarge);
  const Assign first = c.fetch(b, 1);
  c.done(b, 1, first);
  const NodeId parent = c.fetch(d, 1).parent;
  const NodeId other = c.fetch(e, 1).parent;
  EXPECT_NE(parent, other) << "both complete copies were idle";
  EXPECT_TRUE(parent == a || parent == b);
  EXPECT_TRUE(other == a || other == b);
}

TEST_F(TableTest, UnfinishedPutFeedsReadersAtOnce) {
  const Generation generation = c.put(a, 1, kLarge, false);
  EXPECT_EQ(c.fetch(b, 1).parent, a);
  EXPECT_FALSE(c.stat(d, 1)->sealed);
  c.say(a, Seal{.id = id_of(1), .generation = generation});
  EXPECT_TRUE(c.stat(d, 1)->sealed);
}

TEST_F(TableTest, SecondPutIsRefused) {
  c.put(a, 1, kLarge);
  c.say(b, Put{.request = 77, .id = id_of(1), .name = {}, .size = kLarge, .complete = true});
  const auto reply = c.take<Failed>(b);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->request, 77U);
  EXPECT_EQ(reply->code, Errc::kAlreadyExists);
}

TEST_F(TableTest, LeafIsNeverAParent) {
  c.put(a, 1, kLarge);
  const Assign leaf = c.fetch(b, 1, true);
  EXPECT_EQ(leaf.parent, a);
  EXPECT_EQ(c.fetch(d, 1).parent, a) << "the leaf does not block its parent";
  EXPECT_EQ(c.fetch(e, 1).parent, d);
  c.done(b, 1, leaf);
  for (const HolderEntry& holder : c.holders(a, 1))
    EXPECT_NE(holder.node, b);
}

TEST_F(TableTest, LeafThatIsAskedForAnewAsACopyBecomesAHolder) {
  c.put(a, 1, kLarge);
  const RequestNumber request = c.get(b, 1, true);
  ASSERT_TRUE(c.take<Assign>(b));
  c.say(b, CancelGet{.request = request, .id = id_of(1)});
  const Assign copy = c.fetch(b, 1);
  EXPECT_EQ(c.fetch(d, 1).parent, b) << "it passes on what it gets";
  c.done(b, 1, copy);
  const auto holders = c.holders(a, 1);
  const auto held = std::count_if(holders.begin(), holders.end(), [&](const HolderEntry& holder) {
    return holder.node == b && holder.complete;
  });
  EXPECT_EQ(held, 1);
}

TEST_F(TableTest, LeafThatIsDoneIsForgottenAndMayAskAgain) {
  c.put(a, 1, kLarge);
  c.done(b, 1, c.fetch(b, 1, true));
  EXPECT_EQ(c.table.stats().copies, 1U);
  EXPECT_EQ(c.table.stats().edges, 0U);
  c.done(b, 1, c.fetch(b, 1, true));
  c.say(e, Erase{.request = 9, .id = id_of(1)});
  EXPECT_TRUE(c.take<Deleted>(a));
  EXPECT_TRUE(c.silent(b)) << "a leaf keeps nothing";
}

// ---- repair ----

TEST_F(TableTest, ReceiversOfADeadRelayMoveOn) {
  c.put(a, 1, kLarge);
  c.fetch(b, 1);
  const Assign edge = c.fetch(d, 1);
  ASSERT_EQ(edge.parent, b);
  c.die(b);
  const auto revoked = c.take<EdgeRevoked>(d);
  ASSERT_TRUE(revoked);
  EXPECT_EQ(revoked->edge, edge.edge);
  c.failed(d, 1, edge, kLarge / 2);
  const auto again = c.take<Assign>(d);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->parent, a);
  EXPECT_NE(again->edge, edge.edge);
  EXPECT_EQ(again->chunk_bytes, edge.chunk_bytes) << "so that it can go on from its prefix";
}

TEST_F(TableTest, FailedParentIsNotGivenAgainWhileThereIsAnother) {
  c.put(a, 1, kLarge);
  const Assign first = c.fetch(b, 1);
  c.done(b, 1, first);
  const Assign edge = c.fetch(d, 1);
  c.failed(d, 1, edge);
  const auto again = c.take<Assign>(d);
  ASSERT_TRUE(again);
  EXPECT_NE(again->parent, edge.parent);
}

TEST_F(TableTest, OnlyParentIsGivenAgainWithPauses) {
  c.put(a, 1, kLarge);
  Assign edge = c.fetch(b, 1);
  c.failed(b, 1, edge);
  auto again = c.take<Assign>(b);
  ASSERT_TRUE(again) << "once at once";
  c.failed(b, 1, *again);
  EXPECT_TRUE(c.silent(b)) << "then after a pause";
  c.pass(2s, {a, b});
  EXPECT_TRUE(c.take<Assign>(b));
}

TEST_F(TableTest, ParentThatDoesNotHaveItIsForgotten) {
  c.put(a, 1, kLarge);
  const Assign first = c.fetch(b, 1);
  c.done(b, 1, first);
  const Assign edge = c.fetch(d, 1);
  ASSERT_EQ(edge.parent, a);
  c.failed(d, 1, edge, 0, Errc::kNotFound);
  EXPECT_EQ(c.take<Assign>(d)->parent, b);
  for (const HolderEntry& holder : c.holders(e, 1))
    EXPECT_NE(holder.node, a);
  // Should it have a copy after all, nobody would ever erase it.
  EXPECT_EQ(c.take<Withdrawn>(a)->generation, edge.generation);
}

TEST_F(TableTest, ParentIsNeverInTheChildsOwnSubtree) {
  c.put(a, 1, kLarge);
  const Assign edge_b = c.fetch(b, 1);
  c.fetch(d, 1);
  c.fetch(e, 1);  // a - b - d - e
  c.failed(b, 1, edge_b);
  EXPECT_EQ(c.take<Assign>(b)->parent, a);
}

TEST_F(TableTest, RevokedAndFailedAtTheSameTimeIsAnsweredOnce) {
  c.put(a, 1, kLarge);
  c.fetch(b, 1);
  const Assign edge = c.fetch(d, 1);
  c.die(b);
  ASSERT_TRUE(c.take<EdgeRevoked>(d));
  c.failed(d, 1, edge);
  c.failed(d, 1, edge);
  ASSERT_TRUE(c.take<Assign>(d));
  EXPECT_TRUE(c.silent(d));
}

TEST_F(TableTest, CancelFreesTheParentAndMovesTheChildren) {
  c.put(a, 1, kLarge);
  const Assign edge_b = c.fetch(b, 1);
  const Assign edge_d = c.fetch(d, 1);
  c.say(b, CancelGet{.request = edge_b.request, .id = id_of(1)});
  ASSERT_TRUE(c.take<EdgeRevoked>(d));
  c.failed(d, 1, edge_d);
  EXPECT_EQ(c.take<Assign>(d)->parent, a);
  EXPECT_EQ(c.table.stats().edges, 1U);
}

// ---- loss ----

TEST_F(TableTest, SourceDeadWithoutCompleteCopyIsObjectLost) {
  const Generation generation = c.put(a, 1, kLarge);
  const Assign edge_b = c.fetch(b, 1);
  c.fetch(d, 1);
  c.die(a);
  ASSERT_TRUE(c.take<EdgeRevoked>(b));
  c.failed(b, 1, edge_b, kLarge / 2);
  EXPECT_TRUE(c.silent(b)) << "the source may come back";
  c.pass(1100ms, {b, d, e});
  const auto failed = c.take<Failed>(b);
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->request, edge_b.request);
  EXPECT_EQ(failed->code, Errc::kObjectLost);
  const auto withdrawn = c.take<Withdrawn>(d);
  ASSERT_TRUE(withdrawn);
  EXPECT_EQ(withdrawn->reason, Errc::kObjectLost);
  EXPECT_EQ(withdrawn->generation, generation);
  expect_empty();
  EXPECT_GT(c.put(e, 1, kLarge), generation) << "the id is free again";
}

TEST_F(TableTest, ReceiverThatHadJustFinishedSavesTheObject) {
  c.put(a, 1, kLarge);
  const Assign edge_b = c.fetch(b, 1);
  const Assign edge_d = c.fetch(d, 1);
  c.die(a);
  ASSERT_TRUE(c.take<EdgeRevoked>(b));
  c.get(e, 1);
  EXPECT_TRUE(c.silent(e));
  c.done(b, 1, edge_b);  // had crossed with the revocation
  EXPECT_EQ(c.take<Assign>(e)->parent, d) << "the tail of the chain, which still runs";
  c.done(d, 1, edge_d);
  c.pass(3s, {b, d, e});
  EXPECT_TRUE(c.stat(b, 1));
}

TEST_F(TableTest, ObjectWithoutReadersEndsWithItsLastHolder) {
  c.put(a, 1, kLarge);
  c.die(a);
  expect_empty();
}

TEST_F(TableTest, SourceThatLeavesCleanlyIsNotWaitedFor) {
  c.put(a, 1, kLarge);
  const Assign edge = c.fetch(b, 1);
  c.say(a, Leave{});
  ASSERT_TRUE(c.take<EdgeRevoked>(b));
  c.failed(b, 1, edge);
  EXPECT_EQ(c.take<Failed>(b)->code, Errc::kObjectLost);
  expect_empty();
}

TEST_F(TableTest, SourceWhoseConnectionBrokeComesBack) {
  const Generation generation = c.put(a, 1, kLarge);
  const Assign edge = c.fetch(b, 1);
  c.die(a);
  ASSERT_TRUE(c.take<EdgeRevoked>(b));
  c.failed(b, 1, edge, 1000);
  const NodeId back = c.join("a", a);
  EXPECT_EQ(back.number, a.number);
  EXPECT_GT(back.incarnation, a.incarnation);
  c.say(back, Hold{.id = id_of(1),
                   .generation = generation,
                   .name = {},
                   .size = kLarge,
                   .complete = true,
                   .origin = true,
                   .inline_bytes = {}});
  const auto again = c.take<Assign>(b);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->parent, back);
  EXPECT_EQ(again->generation, generation);
}

TEST_F(TableTest, PutAgainBeforeTheLossIsDeclared) {
  c.put(a, 1, kLarge);
  c.fetch(b, 1);
  c.die(a);
  ASSERT_TRUE(c.take<EdgeRevoked>(b));
  const auto waiting = c.get(d, 1);
  c.put(e, 1, kLarge);
  EXPECT_EQ(c.take<Withdrawn>(b)->reason, Errc::kObjectLost) << "it holds bytes of the old life";
  const auto edge = c.take<Assign>(d);
  ASSERT_TRUE(edge) << "it holds nothing, so it can have the new one";
  EXPECT_EQ(edge->request, waiting);
  EXPECT_EQ(edge->parent, e);
}

TEST_F(TableTest, GetAfterTheLossWaitsForANewPut) {
  c.put(a, 1, kLarge);
  c.die(a);
  c.get(b, 1);
  c.pass(3s, {b, d, e});
  EXPECT_TRUE(c.silent(b));
  c.put(d, 1, kLarge);
  EXPECT_EQ(c.take<Assign>(b)->parent, d);
}

TEST_F(TableTest, InlineObjectSurvivesItsNode) {
  c.put(a, 1, 100);
  c.die(a);
  c.get(b, 1);
  EXPECT_TRUE(c.take<Inline>(b));
}

// ---- abandon, erase, drop ----

TEST_F(TableTest, AbandonEndsReadersWithAborted) {
  const Generation generation = c.put(a, 1, kLarge, false);
  c.fetch(b, 1);
  c.fetch(d, 1);
  c.say(a, Abandon{.id = id_of(1), .generation = generation});
  EXPECT_EQ(c.take<Withdrawn>(b)->reason, Errc::kAborted);
  EXPECT_EQ(c.take<Withdrawn>(d)->reason, Errc::kAborted);
  EXPECT_TRUE(c.silent(a));
  expect_empty();
}

TEST_F(TableTest, AbandonAfterSealChangesNothing) {
  const Generation generation = c.put(a, 1, kLarge, false);
  c.say(a, Seal{.id = id_of(1), .generation = generation});
  c.say(a, Abandon{.id = id_of(1), .generation = generation});
  EXPECT_TRUE(c.stat(b, 1));
}

TEST_F(TableTest, EraseReachesHoldersAndRunningGets) {
  const Generation generation = c.put(a, 1, kLarge);
  const Assign edge = c.fetch(b, 1);
  c.done(b, 1, edge);
  c.fetch(d, 1);
  c.say(e, Erase{.request = 9, .id = id_of(1)});
  for (const NodeId& node : {a, b, d})
    EXPECT_EQ(c.take<Deleted>(node)->generation, generation);
  EXPECT_TRUE(c.take<EraseReply>(e)->existed);
  expect_empty();
  c.say(e, Erase{.request = 10, .id = id_of(1)});
  EXPECT_FALSE(c.take<EraseReply>(e)->existed);
}

TEST_F(TableTest, EraserHearsOfItsOwnCopyBeforeTheReply) {
  c.put(a, 1, kLarge);
  c.say(a, Erase{.request = 9, .id = id_of(1)});
  EXPECT_TRUE(c.take<Deleted>(a));
  EXPECT_TRUE(c.take<EraseReply>(a));
}

TEST_F(TableTest, EraseReachesReadersOfInlineObjects) {
  c.put(a, 1, 100);
  c.get(b, 1);
  ASSERT_TRUE(c.take<Inline>(b));
  c.get(d, 1, true);
  ASSERT_TRUE(c.take<Inline>(d));
  c.say(e, Erase{.request = 9, .id = id_of(1)});
  EXPECT_TRUE(c.take<Deleted>(a));
  EXPECT_TRUE(c.take<Deleted>(b));
  EXPECT_TRUE(c.silent(d)) << "a leaf keeps nothing";
  expect_empty();
}

TEST_F(TableTest, GenerationsGrowOverErase) {
  const Generation first = c.put(a, 1, kLarge);
  c.say(a, Erase{.request = 9, .id = id_of(1)});
  c.box(a).clear();
  const Generation second = c.put(b, 1, kLarge);
  EXPECT_GT(second, first);
  c.say(a, Drop{.id = id_of(1), .generation = first});
  c.say(a, Abandon{.id = id_of(1), .generation = first});
  EXPECT_TRUE(c.stat(d, 1)) << "messages about the old life have no effect";
}

TEST_F(TableTest, DroppedCopyIsNotOffered) {
  const Generation generation = c.put(a, 1, kLarge);
  const Assign edge = c.fetch(b, 1);
  c.done(b, 1, edge);
  c.say(b, Drop{.id = id_of(1), .generation = generation});
  EXPECT_EQ(c.fetch(d, 1).parent, a);
}

TEST_F(TableTest, NodeThatAsksForWhatItHadIsServedAgain) {
  c.put(a, 1, kLarge);
  const Assign edge = c.fetch(b, 1);
  c.done(b, 1, edge);
  EXPECT_EQ(c.fetch(b, 1).parent, a);
}

// ---- asked twice ----

TEST_F(TableTest, GetAskedAgainKeepsItsEdge) {
  c.put(a, 1, kLarge);
  const Assign first = c.fetch(b, 1);
  const Assign second = c.fetch(b, 1);
  EXPECT_EQ(first.edge, second.edge);
  EXPECT_NE(first.request, second.request);
  EXPECT_EQ(c.table.stats().edges, 1U);
}

TEST_F(TableTest, WaitingGetAskedAgainIsAnsweredOnce) {
  c.get(b, 1);
  const auto second = c.get(b, 1);
  c.put(a, 1, kLarge);
  EXPECT_EQ(c.take<Assign>(b)->request, second);
  EXPECT_TRUE(c.silent(b));
}

TEST_F(TableTest, PutSentAgainAfterTheReplyWasLost) {
  const Put put{.request = 5,
                .id = id_of(1),
                .name = "x",
                .size = 3,
                .complete = true,
                .inline_bytes = bytes_of("abc")};
  c.say(a, put);
  const auto first = c.take<PutReply>(a);
  c.die(a);
  const NodeId back = c.join("a", a);
  c.say(back, put);
  const auto second = c.take<PutReply>(back);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->generation, second->generation);
  Put other = put;
  other.inline_bytes = bytes_of("abd");
  c.say(back, other);
  EXPECT_EQ(c.take<Failed>(back)->code, Errc::kAlreadyExists);
}

TEST_F(TableTest, PutByANodeThatWaitsForIt) {
  c.get(a, 1);
  c.put(a, 1, kLarge);
  EXPECT_TRUE(c.silent(a)) << "it serves itself";
  EXPECT_EQ(c.fetch(b, 1).parent, a);
}

// ---- membership ----

TEST_F(TableTest, SilentNodeIsDeclaredDeadAndFenced) {
  c.put(a, 1, kLarge);
  const Assign edge = c.fetch(b, 1);
  c.pass(5500ms, {b, d, e});
  EXPECT_TRUE(c.take<Fenced>(a));
  EXPECT_FALSE(c.table.alive(a));
  EXPECT_TRUE(c.take<EdgeRevoked>(b));
  c.failed(b, 1, edge);
  c.say(a, Heartbeat{});
  EXPECT_TRUE(c.take<Fenced>(a)) << "on return it is told";
}

TEST_F(TableTest, PausedNodeIsNotDead) {
  c.pass(2s, {b, d, e});
  EXPECT_TRUE(c.table.alive(a));
  EXPECT_TRUE(c.silent(a));
}

TEST_F(TableTest, DirectoryThatWasPausedJudgesNobody) {
  c.now += 60s;  // no call came: this process was stopped
  Actions out;
  c.table.tick(c.now, out);
  EXPECT_TRUE(out.empty());
  for (const NodeId& node : {a, b, d, e})
    EXPECT_TRUE(c.table.alive(node));
  c.pass(1s, {b, d, e});
  EXPECT_FALSE(c.table.alive(a)) << "one that is silent still is found out, soon";
  EXPECT_TRUE(c.table.alive(b));
}

TEST_F(TableTest, JoinAgainWhileTheOldConnectionStillSeemsAlive) {
  const NodeId back = c.join("a", a);
  EXPECT_TRUE(c.take<Fenced>(a));
  EXPECT_EQ(back.number, a.number);
  EXPECT_FALSE(c.table.alive(a));
}

TEST_F(TableTest, NumbersOfOthersAreNotGivenAway) {
  const NodeId stranger = c.join("x", NodeId{a.number, a.incarnation + 100});
  EXPECT_NE(stranger.number, a.number);
  EXPECT_TRUE(c.table.alive(a));
}

TEST_F(TableTest, OversizedJoinIsRefused) {
  Actions out;
  Join join;
  join.name = std::string(kMaxNameBytes + 1, 'x');
  EXPECT_EQ(c.table.join(c.now, join, out).error().code(), Errc::kInvalidArgument);
  join.name = "";
  join.rails.resize(kMaxRails + 1);
  EXPECT_EQ(c.table.join(c.now, join, out).error().code(), Errc::kInvalidArgument);
}

TEST_F(TableTest, MembersAreListed) {
  c.say(a, Members{.request = 3});
  const auto reply = c.take<MembersReply>(a);
  ASSERT_TRUE(reply);
  ASSERT_EQ(reply->members.size(), 4U);
  EXPECT_EQ(reply->members[0].name, "a");
}

// ---- a new directory ----

TEST_F(TableTest, HoldsRebuildANewDirectory) {
  const Generation inline_generation = c.put(a, 1, 3);
  const Generation large_generation = c.put(a, 2, kLarge);
  Cluster fresh(TableOptions{.epoch = 1'000'000});
  const NodeId back = fresh.join("a", a);
  EXPECT_EQ(back.number, a.number) << "the number is kept";
  EXPECT_GT(back.incarnation, a.incarnation);
  const NodeId reader = fresh.join("b", b);
  fresh.get(reader, 1);
  fresh.get(reader, 2);
  fresh.say(back, Hold{.id = id_of(1),
                       .generation = inline_generation,
                       .name = "small",
                       .size = 3,
                       .complete = true,
                       .origin = true,
                       .inline_bytes = bytes_of("abc")});
  fresh.say(back, Hold{.id = id_of(2),
                       .generation = large_generation,
                       .name = "large",
                       .size = kLarge,
                       .complete = true,
                       .origin = true,
                       .inline_bytes = {}});
  EXPECT_EQ(fresh.take<Inline>(reader)->bytes, SharedBytes(bytes_of("abc")));
  const auto edge = fresh.take<Assign>(reader);
  EXPECT_EQ(edge->parent, back);
  EXPECT_EQ(edge->generation, large_generation);
  EXPECT_EQ(edge->name, "large");
  EXPECT_GT(fresh.put(reader, 3, 10), large_generation);
}

TEST_F(TableTest, ReceiverThatFinishedUnderAnOlderDirectoryIsBelieved) {
  const Generation generation = c.put(a, 1, kLarge);
  c.get(b, 1);
  c.take<Assign>(b);
  c.say(b, EdgeDone{.edge = 987654, .id = id_of(1), .generation = generation, .bytes = kLarge});
  std::size_t complete = 0;
  for (const HolderEntry& holder : c.holders(d, 1))
    complete += holder.complete;
  EXPECT_EQ(complete, 2U);
}

TEST_F(TableTest, OlderHoldIsWithdrawn) {
  const Generation old = c.put(a, 1, kLarge);
  c.die(a);
  const Generation young = c.put(b, 1, kLarge);
  const NodeId back = c.join("a", a);
  c.say(back, Hold{.id = id_of(1),
                   .generation = old,
                   .name = {},
                   .size = kLarge,
                   .complete = true,
                   .inline_bytes = {}});
  const auto withdrawn = c.take<Withdrawn>(back);
  ASSERT_TRUE(withdrawn);
  EXPECT_EQ(withdrawn->generation, old);
  EXPECT_EQ(c.stat(d, 1)->generation, young);
}

TEST_F(TableTest, WhatWasErasedWhileItsHolderWasAwayStaysErased) {
  const Generation generation = c.put(a, 1, kLarge);
  const Assign edge = c.fetch(b, 1);
  c.done(b, 1, edge);
  c.die(a);
  c.say(d, Erase{.request = 9, .id = id_of(1)});
  const NodeId back = c.join("a", a);
  c.say(back, Hold{.id = id_of(1),
                   .generation = generation,
                   .name = {},
                   .size = kLarge,
                   .complete = true,
                   .origin = true,
                   .inline_bytes = {}});
  EXPECT_EQ(c.take<Withdrawn>(back)->generation, generation);
  expect_empty();
  c.pass(61s, {back, b, d, e});
  EXPECT_EQ(c.table.stats().timers, 0U) << "the memory of it fades";
}

// ---- wait, barrier, list ----

TEST_F(TableTest, WaitForTwoOfThree) {
  c.say(d, Wait{.request = 5, .ids = {id_of(1), id_of(2), id_of(3)}, .count = 2});
  c.put(a, 1, 10);
  EXPECT_TRUE(c.silent(d));
  c.put(b, 3, kLarge);
  const auto reply = c.take<WaitReply>(d);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->ready, (std::vector{id_of(1), id_of(3)}));
  EXPECT_EQ(c.table.stats().waits, 0U);
}

TEST_F(TableTest, WaitDoesNotCountWhatWasErasedMeanwhile) {
  c.say(d, Wait{.request = 5, .ids = {id_of(1), id_of(2)}, .count = 2});
  c.put(a, 1, 10);
  c.say(a, Erase{.request = 9, .id = id_of(1)});
  c.put(b, 2, 10);
  EXPECT_TRUE(c.silent(d));
}

TEST_F(TableTest, CancelledWaitLeavesNothing) {
  c.say(d, Wait{.request = 5, .ids = {id_of(1), id_of(2)}, .count = 2});
  c.say(d, CancelWait{.request = 5});
  expect_empty();
  c.put(a, 1, 10);
  c.put(a, 2, 10);
  EXPECT_TRUE(c.silent(d));
}

TEST_F(TableTest, WaitBeyondTheLimitsIsRefused) {
  c.say(d, Wait{.request = 5, .ids = {id_of(1), id_of(1)}, .count = 2});
  EXPECT_EQ(c.take<Failed>(d)->code, Errc::kInvalidArgument);
  c.say(d, Wait{.request = 6, .ids = std::vector<ObjectId>(kMaxWaitIds + 1), .count = 1});
  EXPECT_EQ(c.take<Failed>(d)->code, Errc::kInvalidArgument);
  expect_empty();
}

TEST_F(TableTest, BarrierOpensForAllAndCanBeUsedAgain) {
  for (int round = 0; round < 3; ++round) {
    c.say(a, Barrier{.request = 1, .name = "x", .members = 3});
    c.say(b, Barrier{.request = 1, .name = "x", .members = 3});
    c.say(b, Barrier{.request = 1, .name = "x", .members = 3});  // sent again
    EXPECT_TRUE(c.silent(a));
    c.say(d, Barrier{.request = 1, .name = "x", .members = 3});
    for (const NodeId& node : {a, b, d})
      EXPECT_TRUE(c.take<BarrierReply>(node));
  }
  EXPECT_EQ(c.table.stats().barriers, 0U);
}

TEST_F(TableTest, BarrierOfEmbeddedRanksOnOneNode) {
  c.say(a, Barrier{.request = 1, .name = "x", .members = 2});
  c.say(a, Barrier{.request = 2, .name = "x", .members = 2});
  EXPECT_TRUE(c.take<BarrierReply>(a));
  EXPECT_TRUE(c.take<BarrierReply>(a));
}

TEST_F(TableTest, BarrierFailsWhenAMemberDies) {
  c.say(a, Barrier{.request = 1, .name = "x", .members = 3});
  c.say(b, Barrier{.request = 2, .name = "x", .members = 3});
  c.die(b);
  const auto failed = c.take<Failed>(a);
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->code, Errc::kAborted);
  EXPECT_EQ(c.table.stats().barriers, 0U);
}

TEST_F(TableTest, BarrierFailsWhenTooFewAreLeft) {
  for (const NodeId& node : {a, b, d})
    c.say(node, Barrier{.request = 1, .name = "x", .members = 4});
  c.die(e);
  for (const NodeId& node : {a, b, d})
    EXPECT_EQ(c.take<Failed>(node)->code, Errc::kAborted);
}

TEST_F(TableTest, BarrierWithAnotherCountIsRefused) {
  c.say(a, Barrier{.request = 1, .name = "x", .members = 3});
  c.say(b, Barrier{.request = 1, .name = "x", .members = 4});
  EXPECT_EQ(c.take<Failed>(b)->code, Errc::kInvalidArgument);
}

TEST_F(TableTest, ListIsPagedInOrder) {
  for (const std::uint32_t object : {5U, 3U, 9U, 1U, 7U})
    c.put(a, object, 10);
  c.get(b, 4);  // wanted, but does not exist
  c.say(b, List{.request = 1, .after = {}, .limit = 3});
  const auto first = c.take<ListReply>(b);
  ASSERT_TRUE(first);
  ASSERT_EQ(first->entries.size(), 3U);
  EXPECT_TRUE(first->more);
  EXPECT_EQ(first->entries[0].id, id_of(1));
  c.say(b, List{.request = 2, .after = first->entries[2].id, .limit = 3});
  const auto second = c.take<ListReply>(b);
  ASSERT_EQ(second->entries.size(), 2U);
  EXPECT_FALSE(second->more);
  EXPECT_EQ(second->entries[1].id, id_of(9));
}

TEST_F(TableTest, ListOfLongNamesFitsIntoAFrame) {
  for (std::uint32_t object = 0; object < 2000; ++object) {
    c.say(a, Put{.request = object + 1,
                 .id = id_of(object + 1),
                 .name = std::string(kMaxNameBytes, 'n'),
                 .size = 0,
                 .complete = true});
  }
  c.say(b, List{.request = 1, .after = {}, .limit = 0xffffffff});
  const auto reply = c.take<ListReply>(b);
  EXPECT_TRUE(reply->more);
  EXPECT_LT(reply->entries.size() * kMaxNameBytes, kMaxFrameBytes);
}

TEST_F(TableTest, StatShowsTheTree) {
  c.put(a, 1, kLarge);
  c.fetch(b, 1);
  const auto reply = c.stat(d, 1);
  ASSERT_TRUE(reply);
  ASSERT_EQ(reply->holders.size(), 2U);
  EXPECT_EQ(reply->holders[0].node, a);
  EXPECT_TRUE(reply->holders[0].complete);
  EXPECT_EQ(reply->holders[1].node, b);
  EXPECT_FALSE(reply->holders[1].complete);
  EXPECT_EQ(reply->holders[1].parent, a);
  c.say(d, Stat{.request = 8, .id = id_of(2)});
  EXPECT_EQ(c.take<Failed>(d)->code, Errc::kNotFound);
}

// ---- nonsense ----

TEST_F(TableTest, MalformedPutsAreRefused) {
  Put put{.request = 1, .id = id_of(1), .name = {}, .size = 10, .complete = true};
  c.say(a, put);  // no bytes
  put.inline_bytes = Bytes(10);
  put.complete = false;
  c.say(a, put);
  put.complete = true;
  put.name = std::string(kMaxNameBytes + 1, 'x');
  c.say(a, put);
  put.name = {};
  put.size = ~std::uint64_t{0};
  c.say(a, put);
  put.size = kInlineObjectBytes + 1;
  c.say(a, put);
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(c.take<Failed>(a)->code, Errc::kInvalidArgument) << i;
  expect_empty();
}

TEST_F(TableTest, UnknownIdsAndEdgesAreHarmless) {
  c.say(a, Seal{.id = id_of(1), .generation = 4});
  c.say(a, Abandon{.id = id_of(1), .generation = 4});
  c.say(a, CancelGet{.request = 1, .id = id_of(1)});
  c.say(a, EdgeDone{.edge = 1, .id = id_of(1), .generation = 4});
  c.say(a, Drop{.id = id_of(1), .generation = 4});
  c.say(a, CancelWait{.request = 1});
  c.say(a, Join{});
  EXPECT_TRUE(c.silent(a));
  c.say(a, EdgeFailed{.request = 1, .edge = 1, .id = id_of(1), .generation = 4});
  EXPECT_TRUE(c.take<Failed>(a)) << "who waits for an answer gets one";
  expect_empty();
}

// ---- scale ----

TEST_F(TableTest, HundredThousandSmallObjectsLeaveNothing) {
  const TableStats before = c.table.stats();
  for (std::uint32_t n = 1; n <= 100'000; ++n)
    c.put(a, n, 100);
  for (std::uint32_t n = 1; n <= 100'000; ++n)
    c.get(b, n);
  EXPECT_EQ(c.table.stats().objects, 100'000U);
  for (std::uint32_t n = 1; n <= 100'000; ++n)
    c.say(d, Erase{.request = n, .id = id_of(n)});
  const TableStats after = c.table.stats();
  EXPECT_EQ(after.entries, before.entries);
  EXPECT_EQ(after.inline_bytes, 0U);
  EXPECT_EQ(after.timers, before.timers);
}

TEST_F(TableTest, DeathOfAHolderOfManyObjects) {
  for (std::uint32_t n = 1; n <= 10'000; ++n)
    c.put(a, n, kLarge);
  for (std::uint32_t n = 1; n <= 5'000; ++n)
    c.done(b, n, c.fetch(b, n));
  c.die(a);
  EXPECT_EQ(c.table.stats().objects, 5'000U);
}

}  // namespace
}  // namespace lochos::test
