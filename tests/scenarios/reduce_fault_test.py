#!/usr/bin/env python3
"""Reduces that lose a source on purpose, run out of time, or meet other reduces."""
import tap
from reduce_cluster import SIZE, ReduceTest


class ReduceFaults(ReduceTest):
    def test_source_erased_in_the_middle_ends_it(self):
        self.scene(nodes=5, sources=4)
        reduce = self.reduce('t', at=4)
        self.held('t')
        gets = self.readers('t')
        self.erase('s1')
        self.assert_not_reduced(reduce, 't', "'s1'", 'was erased', gets=gets)
        # The name is free, and what was lost can be put again.
        self.produce('s1', 1)
        again = self.reduce('t', at=4)
        self.finish()
        self.assert_reduced(again, 't', 4)
        self.assert_nothing_leaked()

    def test_source_erased_in_the_middle_a_spare_takes_its_place(self):
        self.scene(nodes=6, sources=5)
        reduce = self.reduce('t', at=5, count=4)
        self.held('t')
        gets = self.readers('t')
        before = self.received()
        self.erase('s1')
        self.held('t', before)
        self.finish()
        self.assert_reduced(reduce, 't', 4, gets, without=['s1'])
        self.assert_nothing_leaked()

    def test_deadline_with_all_but_one_source(self):
        self.scene(nodes=5, sources=3)
        self.finish()
        with_sources = {i: self.node_stats(self.nodes[i])['used'] for i in self.alive}
        self.sources = ['s0', 's1', 's2', 'never', 'neither']
        get = self.start('get', 't', node=self.nodes[3])
        reduce = self.reduce('t', at=4, count=4, timeout='3s')
        self.until('the sum of those that are there is made', lambda: sum(
            self.received().values()) >= 2 * SIZE)
        self.assert_not_reduced(reduce, 't', 'timed out', "'never'", "'neither'",
                                '3 of the 4 sources needed')
        for i in self.alive:
            self.until(f'n{i} has only its source', lambda i=i: self.node_stats(
                self.nodes[i])['used'] == with_sources[i])
        # Whoever waits for the target still may.
        self.produce('never', 3, SIZE)
        again = self.reduce('t', at=0, count=4)
        self.finish()
        self.assert_reduced(again, 't', 4, {3: get}, without=['neither'])
        self.assert_nothing_leaked()

    def test_deadline_while_the_target_is_read(self):
        self.scene(nodes=5, sources=4)
        reduce = self.reduce('t', at=4, timeout='6s')
        self.held('t')
        gets = self.readers('t')
        self.assert_not_reduced(reduce, 't', 'timed out', gets=gets, reader_words=['aborted'])
        self.finish()
        self.assert_nothing_leaked()

    def test_two_reduces_of_the_same_sources_at_once(self):
        self.scene(nodes=8, sources=6)
        reduces = {op: self.reduce(op, at=at, op=op, count=4)
                   for op, at in (('sum', 6), ('bxor', 7))}
        for op in reduces:
            self.held(op)
        gets = {op: self.readers(op) for op in reduces}
        victim = self.root('sum')
        before = self.received()
        self.kill_node(victim)
        for op in reduces:
            self.held(op, before)
        self.finish()
        for op, reduce in reduces.items():
            self.assert_reduced(reduce, op, 4, gets[op], op=op, without=[f's{victim}'])
        self.assert_nothing_leaked()

    def test_reduce_of_a_reduce_whose_contributor_is_killed(self):
        self.scene(nodes=8, sources=7)
        inner = self.reduce('inner', at=7, count=3, sources=['s0', 's1', 's2', 's3', 's4'])
        outer = self.reduce('outer', at=7, sources=['inner', 's5', 's6'])
        self.held('inner')
        self.held('outer')
        gets = self.readers('outer')
        for victim in (1, self.root('inner')):
            before = self.received()
            self.kill_node(victim)
            self.held('inner', before)
            self.held('outer', before)
        self.finish()
        self.assert_reduced(inner, 'inner', 3, without=['s1'])
        self.assert_reduced(outer, 'outer', 3, gets)
        self.assert_nothing_leaked()

    def test_deterministic_reduce_with_a_contributor_killed(self):
        self.scene(nodes=6, sources=5)
        reduce = self.reduce('t', at=5, count=4, options=('--deterministic',))
        self.held('t')
        gets = self.readers('t')
        before = self.received()
        self.kill_node(1)
        self.held('t', before)
        self.finish()
        self.assert_reduced(reduce, 't', 4, gets, without=['s1'])
        self.assert_nothing_leaked()


if __name__ == '__main__':
    tap.main()
