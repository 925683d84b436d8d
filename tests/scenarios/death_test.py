#!/usr/bin/env python3
"""Processes that are killed, or stopped and continued, in the middle of what they do."""
import os
import time

import tap
from cluster import ClusterTest, sha256

MIB = 1 << 20


class Death(ClusterTest):
    # Silence of this length is death. Short, so that the tests are; long against a busy machine.
    directory_options = ('--dead-after', '6s', '--heartbeat', '250ms')

    def half_broadcast(self, size=24 * MIB):
        """A source that has published half, and receivers n1 … that have that half: (writer,
        file, data, gets)."""
        data = os.urandom(size)
        path = self.file(data)
        writer = self.client(self.nodes[0])
        writer.do('create', 'x', size)
        writer.do('publish', path, size // 2)
        gets = [self.start('get', 'x', node=node, timeout='40s') for node in self.nodes[1:]]
        for node in self.nodes[1:]:
            self.until('half of it is there',
                       lambda node=node: self.node_stats(node)['received'] >= size // 3)
        return writer, path, data, gets

    def one_in_the_middle(self):
        """The index of a node that has a parent and feeds somebody; of any receiver if the
        directory found a flat tree better."""
        parents = self.parents(self.nodes[0], 'x')
        receivers = [name for name in parents if parents[name] != '-']
        feeding = [name for name in receivers if name in parents.values()]
        return int((feeding or receivers)[0][1:])

    def test_receiver_killed_at_half_of_a_broadcast(self):
        self.cluster(5)
        writer, path, data, gets = self.half_broadcast()
        index = self.one_in_the_middle()
        self.kill(self.nodes[index])
        writer.do('publish', path, len(data))
        writer.do('seal')
        for i, get in enumerate(gets, 1):
            if i != index:
                self.assert_got(get, data)
        self.assert_got_error(gets[index - 1], 'x')
        # Nobody started from the beginning.
        for i in range(1, 5):
            if i != index:
                received = self.node_stats(self.nodes[i])['received']
                self.assertLess(received, len(data) * 1.3, f'n{i}')

    def test_source_killed_at_half_without_a_complete_copy(self):
        self.cluster(4)
        _, _, data, gets = self.half_broadcast()
        killed = time.monotonic()
        self.kill(self.nodes[0])
        for get in gets:
            self.assert_got_error(get, "'x'", 'lost')
        self.assertLess(time.monotonic() - killed, 30)
        # All is well again after a new put.
        again = os.urandom(len(data))
        self.done_at(self.nodes[2], 'put', 'x', self.file(again, 'again'))
        for node in self.nodes[1:]:
            self.assertEqual(sha256(self.done_at(node, 'get', 'x')), sha256(again))

    def test_source_killed_after_one_copy_is_complete(self):
        self.cluster(4)
        data = os.urandom(8 * MIB)
        self.done_at(self.nodes[0], 'put', 'x', self.file(data))
        self.done_at(self.nodes[1], 'get', 'x', '/dev/null')
        self.kill(self.nodes[0])
        for node in self.nodes[1:]:
            self.assertEqual(sha256(self.done_at(node, 'get', 'x')), sha256(data))

    def test_client_killed_between_create_and_seal(self):
        self.cluster(2)
        for size in (100, 3 * MIB):
            name = f'draft-{size}'
            data = os.urandom(size)
            path = self.file(data)
            writer = self.client(self.nodes[0])
            writer.do('create', name, size)
            writer.do('publish', path, size // 2)
            get = None
            if size > MIB:  # a small object claims its name only with seal
                get = self.start('get', name, node=self.nodes[1])
                self.until('the reader waits',
                           lambda name=name: 'n1' in self.parents(self.nodes[0], name))
            writer.kill()
            if get is not None:
                self.assert_got_error(get, name, 'aborted')
            self.done_at(self.nodes[1], 'put', name, path)
            self.assertEqual(sha256(self.done_at(self.nodes[0], 'get', name)), sha256(data))
        self.until('the memory of the dead writers is free',
                   lambda: self.node_stats(self.nodes[0])['objects'] == 2)

    def test_node_stopped_for_less_than_the_limit_is_not_dead(self):
        self.cluster(3)
        writer, path, data, gets = self.half_broadcast()
        before = self.parents(self.nodes[0], 'x')
        self.pause(self.nodes[1])
        time.sleep(2)  # the scenario itself, not a wait for a state
        self.resume(self.nodes[1])
        self.assertEqual(before, self.parents(self.nodes[0], 'x'))
        writer.do('publish', path, len(data))
        writer.do('seal')
        for get in gets:
            self.assert_got(get, data)
        self.assertNotIn('declared dead', self.directory.errors())
        self.assertNotIn('is gone', self.directory.errors())

    def test_node_stopped_beyond_the_limit_is_replaced_and_rejoins(self):
        self.cluster(4)
        writer, path, data, gets = self.half_broadcast()
        index = self.one_in_the_middle()
        number = self.node_stats(self.nodes[index])['node']
        self.pause(self.nodes[index])
        self.until('it is declared dead',
                   lambda: f"('n{index}')" in self.directory.errors(), timeout=20)
        writer.do('publish', path, len(data))
        writer.do('seal')
        for i, get in enumerate(gets, 1):
            if i != index:
                self.assert_got(get, data)
        self.resume(self.nodes[index])
        # Its own reader ends whole: the node joins again and goes on.
        self.assert_got(gets[index - 1], data)
        self.assertNotEqual(self.node_stats(self.nodes[index])['node'], number)
        fresh = os.urandom(2 * MIB)
        self.done_at(self.nodes[index], 'put', 'fresh', self.file(fresh, 'fresh'))
        for node in self.nodes:
            self.assertEqual(sha256(self.done_at(node, 'get', 'fresh')), sha256(fresh))
            self.assertEqual(sha256(self.done_at(node, 'get', 'x')), sha256(data))

    def test_source_stopped_beyond_the_limit_then_its_object_put_by_another(self):
        """What the stopped node still holds is a former life's: it must not be served."""
        self.cluster(3)
        old = os.urandom(3 * MIB)
        new = os.urandom(3 * MIB)
        self.done_at(self.nodes[0], 'put', 'x', self.file(old, 'old'))
        self.pause(self.nodes[0])
        self.until('it is declared dead', lambda: "('n0')" in self.directory.errors(), timeout=40)
        self.until('the name is free', lambda: self.run_at(
            self.nodes[1], 'put', 'x', self.file(new, 'new')).returncode == 0, timeout=20)
        self.resume(self.nodes[0])
        self.until('it is back', lambda: self.run_at(self.nodes[0], 'ls').returncode == 0)
        for node in (self.nodes[2], self.nodes[0], self.nodes[1]):
            self.until('all have the new bytes', lambda node=node: sha256(
                self.run_at(node, 'get', 'x').stdout) == sha256(new))

    def test_directory_stopped_for_a_while(self):
        self.cluster(3)
        writer, path, data, gets = self.half_broadcast()
        self.pause(self.directory)
        writer.do('publish', path, len(data))
        # Data needs no directory.
        for node in self.nodes[1:]:
            self.until('the rest arrives', lambda node=node: self.node_stats(node)[
                'received'] >= len(data))
        time.sleep(8)  # longer than --dead-after: the scenario itself
        self.resume(self.directory)
        writer.do('seal')
        for get in gets:
            self.assert_got(get, data)
        self.assertNotIn('declared dead', self.directory.errors())

    def test_directory_killed_and_restarted_during_a_transfer(self):
        self.cluster(3)
        kept = os.urandom(2 * MIB)
        small = os.urandom(100)
        self.done_at(self.nodes[1], 'put', 'kept', self.file(kept, 'kept'))
        self.done_at(self.nodes[2], 'put', 'small', self.file(small, 'small'))
        writer, path, data, gets = self.half_broadcast()
        self.kill(self.directory)
        writer.do('publish', path, len(data))
        for node in self.nodes[1:]:
            self.until('the rest arrives without a directory', lambda node=node: self.node_stats(
                node)['received'] >= len(data))
        writer.do('seal')
        for get in gets:
            self.assert_got(get, data)
        self.directory = self.daemon('directory', '--listen', self.address).wait_ready()
        for name, expected in (('kept', kept), ('small', small), ('x', data)):
            for node in self.nodes:
                self.assertEqual(sha256(self.done_at(node, 'get', name)), sha256(expected), name)
        late = self.start_node(self.address, 'late')
        for name, expected in (('kept', kept), ('small', small), ('x', data)):
            self.assertEqual(sha256(self.done_at(late, 'get', name)), sha256(expected), name)

    def test_directory_gone_for_good(self):
        self.cluster(2)
        self.kill(self.directory)
        began = time.monotonic()
        self.fails_at(self.nodes[0], ['never', 'timed out', 'no directory'], 'get', 'never',
                      timeout='1s')
        self.fails_at(self.nodes[0], ['big', 'timed out'], 'put', 'big',
                      self.file(os.urandom(MIB)), timeout='1s')
        self.assertLess(time.monotonic() - began, 6)
        self.assertEqual(self.nodes[0].stop(), 0)


if __name__ == '__main__':
    tap.main()
