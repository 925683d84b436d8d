#!/usr/bin/env python3
"""Nodes and callers that are killed, or stopped and continued, in the middle of a reduce."""
import time

import tap
from reduce_cluster import HALF, SIZE, ReduceTest
from cluster import sha256


class ReduceDeath(ReduceTest):
    def kill_one_after_another(self, target, victims, replace=lambda victim: None):
        """Each is killed when the sum has got as far as it can."""
        for victim in victims:
            before = self.received()
            self.kill_node(victim)
            replace(victim)
            self.held(target, before)

    def victims_and_readers(self, contributors):
        """Of a reduce that is held at half: the nodes of a leaf, an interior slot and the root."""
        self.held('t')
        victims = self.roles('t', contributors)
        self.assertEqual(len(set(victims)), 3)
        return victims, self.readers('t')

    def test_leaf_interior_slot_and_root_killed_spares_take_their_places(self):
        self.scene(nodes=8, sources=7)
        reduce = self.reduce('t', at=7, count=4)
        victims, gets = self.victims_and_readers(range(4))
        self.kill_one_after_another('t', victims)
        self.finish()
        included = self.assert_reduced(reduce, 't', 4, gets, without=[f's{i}' for i in victims])
        self.assertEqual(set(included), {f's{i}' for i in set(range(7)) - set(victims)})
        self.assert_nothing_leaked()

    def test_leaf_interior_slot_and_root_killed_their_sources_put_again(self):
        self.scene(nodes=8, sources=5)
        reduce = self.reduce('t', at=7)
        victims, gets = self.victims_and_readers(range(5))

        def put_again(victim):
            """On another node, and with other bytes: those are the ones that count."""
            self.lost(f's{victim}')
            self.produce(f's{victim}', 5 + victim % 2)
        self.kill_one_after_another('t', victims, put_again)
        self.finish()
        self.assert_reduced(reduce, 't', 5, gets)
        self.assert_nothing_leaked()

    def test_two_killed_at_once(self):
        self.scene(nodes=8, sources=7)
        reduce = self.reduce('t', at=7, count=4)
        (leaf, interior, root), gets = self.victims_and_readers(range(4))
        before = self.received()
        self.kill_node(interior)
        self.kill_node(root)
        self.held('t', before)
        self.finish()
        self.assert_reduced(reduce, 't', 4, gets, without=[f's{interior}', f's{root}'])
        self.assertIn(leaf, self.alive)
        self.assert_nothing_leaked()

    def test_killed_before_all_sources_are_there(self):
        self.scene(nodes=7, sources=3)
        self.sources = [f's{i}' for i in range(6)]
        reduce = self.reduce('t', at=6, count=4)
        self.until('the sum of some is made', lambda: any(
            received >= SIZE // 3 for received in self.received().values()))
        self.kill_node(1)
        self.produce('s3', 3)
        self.kill_node(0)
        self.produce('s4', 4)
        self.produce('s5', 5)
        self.held('t')
        self.finish()
        self.assert_reduced(reduce, 't', 4, self.start_gets(), without=['s0', 's1'])
        self.assert_nothing_leaked()

    def start_gets(self):
        return {i: self.start('get', 't', node=self.nodes[i]) for i in self.alive}

    def caller_dies(self, kill):
        """After the others; then the same reduce is asked for on another node."""
        self.scene(nodes=8, sources=7)
        reduce = self.reduce('t', at=7, count=4)
        victims, gets = self.victims_and_readers(range(4))
        self.kill_one_after_another('t', victims[:2])
        killed = time.monotonic()
        kill(reduce)
        self.assert_not_reduced(None, 't', gets=gets, reader_words=['aborted'])
        self.assertLess(time.monotonic() - killed, 30)
        again = self.reduce('t', at=max(self.alive), count=5)
        gets = self.start_gets()
        self.finish()
        self.assert_reduced(again, 't', 5, gets)
        self.assert_nothing_leaked()

    def test_caller_killed_after_a_leaf_and_an_interior_slot(self):
        self.caller_dies(lambda reduce: reduce.kill())

    def test_node_of_the_caller_killed_after_a_leaf_and_an_interior_slot(self):
        self.caller_dies(lambda reduce: self.kill_node(7))

    def test_contributors_stopped_for_less_than_the_limit_are_not_dead(self):
        self.scene(nodes=6, sources=5)
        reduce = self.reduce('t', at=5, count=4)
        victims, gets = self.victims_and_readers(range(4))
        for step, victim in enumerate(victims, 1):
            self.pause(self.nodes[victim])
            self.publish(HALF + step * SIZE // 8)
            time.sleep(2)  # the scenario itself, not a wait for a state
            self.resume(self.nodes[victim])
        self.finish()
        self.assertEqual(self.assert_reduced(reduce, 't', 4, gets), ['s0', 's1', 's2', 's3'])
        self.assertNotIn('declared dead', self.directory.errors())
        self.assertNotIn('is gone', self.directory.errors())
        self.assert_nothing_leaked()

    def stopped_beyond_the_limit(self, role):
        """Replaced; joined anew it gives its reader what the others have."""
        self.scene(nodes=6, sources=5)
        reduce = self.reduce('t', at=5, count=4)
        victims, gets = self.victims_and_readers(range(4))
        victim = victims[role]
        before = self.received()
        self.alive.discard(victim)
        self.pause(self.nodes[victim])
        self.until('it is declared dead', lambda: f"('n{victim}')" in self.directory.errors())
        self.held('t', before)
        self.finish()
        self.assert_reduced(reduce, 't', 4, gets, without=[f's{victim}'])
        self.resume(self.nodes[victim])
        self.assert_got(gets[victim], self.values['t'])
        self.assertEqual(sha256(self.done_at(self.nodes[victim], 'get', 't')),
                         sha256(self.values['t']))

    def test_leaf_stopped_beyond_the_limit_is_replaced_and_gets_the_result(self):
        self.stopped_beyond_the_limit(0)

    def test_interior_slot_stopped_beyond_the_limit_is_replaced_and_gets_the_result(self):
        self.stopped_beyond_the_limit(1)

    def test_root_stopped_beyond_the_limit_is_replaced_and_gets_the_result(self):
        self.stopped_beyond_the_limit(2)

    def test_directory_killed_and_restarted_in_the_middle(self):
        self.scene(nodes=6, sources=5)
        reduce = self.reduce('t', at=5, count=4)
        self.held('t')
        gets = self.readers('t')
        self.kill(self.directory)
        self.directory = self.daemon('directory', '--listen', self.address,
                                     *self.directory_options).wait_ready()
        self.finish()
        self.assert_reduced(reduce, 't', 4, gets)
        self.assert_nothing_leaked()


if __name__ == '__main__':
    tap.main()
