#!/usr/bin/env python3
"""Objects under names that others use too, at odd moments and of odd sizes."""
import os
import signal
import subprocess

import tap
from cluster import ClusterTest, sha256
from lochos_process import ENVIRONMENT, LOCHOS

MIB = 1 << 20


class Names(ClusterTest):
    def setUp(self):
        super().setUp()
        self.cluster(2)

    def test_put_twice(self):
        for size in (0, 100, 2 * MIB):
            name = f'twice-{size}'
            data = os.urandom(size)
            path = self.file(data)
            other = self.file(b'x' + data, 'other')
            self.done_at(self.nodes[0], 'put', name, path)
            for node in self.nodes:
                for again in (path, other):
                    self.fails_at(node, [name, 'already exists'], 'put', name, again)
                self.assertEqual(sha256(self.done_at(node, 'get', name)), sha256(data))

    def test_put_at_the_same_time_has_one_winner(self):
        for size in (100, 2 * MIB):
            name = f'race-{size}'
            datas = [os.urandom(size) for _ in range(6)]
            puts = [self.start('put', name, self.file(data, f'data{i}'), node=self.nodes[i % 2])
                    for i, data in enumerate(datas)]
            winners = []
            for data, put in zip(datas, puts):
                _, err = put.communicate(timeout=30)
                if put.returncode == 0:
                    winners.append(data)
                else:
                    self.assertIn('already exists', err.decode())
            self.assertEqual(len(winners), 1)
            for node in self.nodes:
                self.assertEqual(sha256(self.done_at(node, 'get', name)), sha256(winners[0]))

    def test_exists_means_readable(self):
        """A put that is refused names an object that a get can have, once its producer is done."""
        data = os.urandom(2 * MIB)
        path = self.file(data)
        writer = self.client(self.nodes[0])
        writer.do('create', 'x', len(data))
        for node in self.nodes:
            self.fails_at(node, ['already exists'], 'put', 'x', path)
        get = self.start('get', 'x', node=self.nodes[1])
        writer.do('publish', path, len(data))
        writer.do('seal')
        self.assert_got(get, data)

    def test_get_before_put(self):
        for size in (0, 100, 3 * MIB):
            name = f'early-{size}'
            data = os.urandom(size)
            gets = [self.start('get', name, node=node) for node in self.nodes for _ in range(2)]
            waiter = self.client(self.nodes[1])
            waiter.tell('wait', name, 20)
            self.done_at(self.nodes[0], 'put', name, self.file(data))
            for get in gets:
                self.assert_got(get, data)
            self.assertEqual(waiter.answer(), 'ok ')

    def test_bad_names_are_refused_with_the_limits(self):
        for name in ('', 'x' * 1025, 'x' * 4096):
            for words in (('put', name, '/dev/null'), ('get', name), ('stat', name), ('rm', name)):
                result = self.run_at(self.nodes[0], *words)
                self.assertIn(result.returncode, (1, 2), words)
                self.assertIn('1024', result.stderr.decode(), words)
        for name in (b'\xff\xfe', b'\xc0\xaf', b'\xed\xa0\x80', b'ab\x80'):
            result = subprocess.run([LOCHOS.encode(), b'put', name, b'/dev/null', b'--socket',
                                     self.nodes[0].socket.encode()], stderr=subprocess.PIPE,
                                    stdout=subprocess.PIPE, env=ENVIRONMENT, timeout=30,
                                    check=False)
            self.assertIn(result.returncode, (1, 2), name)
            self.assertIn(b'UTF-8', result.stderr, name)
        self.assertEqual(self.done_at(self.nodes[0], 'ls', '--json').strip(), b'[]')

    def test_good_names_that_look_bad(self):
        for name in ('x' * 1024, 'λόχος 🛡', 'a\nb', ' ', '/', '..', '%s%n', 'é' * 512):
            self.done_at(self.nodes[0], 'put', name, '-', stdin=name.encode())
            self.assertEqual(self.done_at(self.nodes[1], 'get', name), name.encode())
            self.done_at(self.nodes[1], 'rm', name)

    def test_a_failed_get_leaves_nothing_that_harms_the_next(self):
        for _ in range(3):
            self.fails_at(self.nodes[1], ['never', 'timed out'], 'get', 'never', timeout='200ms')
        self.done_at(self.nodes[0], 'put', 'never', '-', stdin=b'after all')
        self.assertEqual(self.done_at(self.nodes[1], 'get', 'never'), b'after all')


class Together(ClusterTest):
    def test_two_gets_at_once_on_one_node_share_one_transfer(self):
        self.cluster(2)
        data = os.urandom(8 * MIB)
        path = self.file(data)
        writer = self.client(self.nodes[0])
        writer.do('create', 'x', len(data))
        gets = [self.start('get', 'x', node=self.nodes[1]) for _ in range(4)]
        self.until('a transfer runs', lambda: self.node_stats(self.nodes[1])['edges'])
        writer.do('publish', path, len(data))
        writer.do('seal')
        for get in gets:
            self.assert_got(get, data)
        self.assertEqual(self.node_stats(self.nodes[1])['received'], len(data))

    def test_four_nodes_four_objects_all_at_once(self):
        self.cluster(4)
        datas = [os.urandom(4 * MIB + i) for i in range(4)]
        gets = [(self.start('get', f'o{i}', node=node), data)
                for i, data in enumerate(datas) for node in self.nodes]
        puts = [self.start('put', f'o{i}', self.file(data, f'data{i}'), node=self.nodes[i])
                for i, data in enumerate(datas)]
        for get, data in gets:
            self.assert_got(get, data)
        for put in puts:
            self.assertEqual(put.wait(20), 0)

    def test_erase_during_a_slow_get(self):
        self.cluster(3)
        size = 16 * MIB
        old = os.urandom(size)
        path = self.file(old)
        writer = self.client(self.nodes[0])
        writer.do('create', 'x', size)
        writer.do('publish', path, size // 2)
        gets = [self.start('get', 'x', node=node) for node in self.nodes[1:]]
        for node in self.nodes[1:]:
            self.until('half of it is there', lambda node=node: self.node_stats(node)[
                'received'] >= size // 3)
        self.done_at(self.nodes[2], 'rm', 'x')
        for get in gets:
            self.assert_got_error(get, "'x'", 'deleted')
        self.assertIn('deleted', writer.ask('seal'))
        new = os.urandom(size)
        self.done_at(self.nodes[0], 'put', 'x', self.file(new, 'new'))
        for node in self.nodes:
            self.assertEqual(sha256(self.done_at(node, 'get', 'x')), sha256(new))

    def test_erase_and_put_again_while_many_get(self):
        """Each get ends whole, with one life's bytes, or says Deleted."""
        self.cluster(3)
        lives = [os.urandom(3 * MIB) for _ in range(6)]
        hashes = {sha256(data) for data in lives}
        gets = []
        for i, data in enumerate(lives):
            self.done_at(self.nodes[i % 3], 'put', 'x', self.file(data, f'life{i}'))
            gets += [self.start('get', 'x', node=node) for node in self.nodes]
            self.done_at(self.nodes[(i + 1) % 3], 'rm', 'x')
        self.done_at(self.nodes[0], 'put', 'x', self.file(lives[0], 'last'))
        for get in gets:
            out, err = get.communicate(timeout=30)
            if get.returncode == 0:
                self.assertIn(sha256(out), hashes)
            else:
                self.assertRegex(err.decode(), 'deleted|lost')


class Memory(ClusterTest):
    def test_reader_stopped_while_it_holds_a_view(self):
        self.cluster(2)
        size = 12 * MIB
        data = os.urandom(size)
        self.done_at(self.nodes[0], 'put', 'x', self.file(data))
        readers = [self.client(node) for node in self.nodes]
        for reader in readers:
            reader.do('get', 'x', 20)
            reader.signal(signal.SIGSTOP)
        self.done_at(self.nodes[1], 'rm', 'x')
        # Pressure: the pools are filled several times over with other bytes.
        for i in range(12):
            path = self.file(os.urandom(10 * MIB), 'other')
            self.done_at(self.nodes[0], 'put', f'o{i}', path)
            self.done_at(self.nodes[1], 'get', f'o{i}', '/dev/null')
            self.done_at(self.nodes[1], 'rm', f'o{i}')
        for node in self.nodes:
            self.assertEqual(self.node_stats(node)['pinned'], 1)
        for reader in readers:
            reader.signal(signal.SIGCONT)
            self.assertEqual(reader.do('hash'), sha256(data))
            reader.kill()
        for node in self.nodes:
            self.until('the pin goes with its reader',
                       lambda node=node: self.node_stats(node)['pinned'] == 0)

    def test_view_of_a_fetched_copy_is_not_evicted(self):
        self.cluster(2)
        data = os.urandom(20 * MIB)
        self.done_at(self.nodes[0], 'put', 'x', self.file(data))
        reader = self.client(self.nodes[1])
        reader.do('get', 'x', 20)
        for i in range(5):
            self.done_at(self.nodes[0], 'put', f'o{i}', self.file(os.urandom(15 * MIB), 'other'))
            self.done_at(self.nodes[1], 'get', f'o{i}', '/dev/null')
            self.done_at(self.nodes[0], 'rm', f'o{i}')
        self.assertEqual(reader.do('hash'), sha256(data))

    def test_pool_full_during_a_put(self):
        self.cluster(2)
        path = self.file(os.urandom(20 * MIB))
        outcomes = []
        for i in range(6):
            result = self.run_at(self.nodes[0], 'put', f'o{i}', path)
            outcomes.append(result.returncode)
            if result.returncode != 0:
                self.assert_error(result, 1, 'no space', f'o{i}')
        self.assertIn(0, outcomes)
        self.assertIn(1, outcomes)
        self.assertIsNone(self.nodes[0].process.poll())
        self.done_at(self.nodes[0], 'rm', 'o0')
        self.done_at(self.nodes[0], 'put', 'fits', path)
        self.done_at(self.nodes[1], 'get', 'fits', '/dev/null')

    def test_get_of_what_cannot_fit(self):
        self.cluster(1, pool='128M')
        small = self.start_node(self.address, 'small', pool='16M')
        self.done_at(self.nodes[0], 'put', 'x', self.file(os.urandom(40 * MIB)))
        self.fails_at(small, ['no space', "'x'"], 'get', 'x')
        self.done_at(self.nodes[0], 'put', 'y', self.file(b'y' * MIB, 'y'))
        self.assertEqual(self.done_at(small, 'get', 'y'), b'y' * MIB)


class Sizes(ClusterTest):
    # Around the chunk sizes that are chosen (powers of two), the inline limit, and primes.
    SIZES = (0, 1, 2, 65535, 65536, 65537, 262143, 262144, 262145, MIB - 1, MIB, MIB + 1,
             2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 8 * MIB - 1, 8 * MIB, 8 * MIB + 1, 99991, 1299709,
             15485863)

    def test_odd_sizes_are_bit_exact(self):
        self.cluster(3)
        for size in self.SIZES:
            data = os.urandom(size)
            self.done_at(self.nodes[0], 'put', 'x', self.file(data))
            gets = [self.start('get', 'x', node=node) for node in self.nodes]
            for get in gets:
                self.assert_got(get, data)
            self.done_at(self.nodes[1], 'rm', 'x')

    def test_sizes_beyond_two_and_four_gib(self):
        if 'LOCHOS_TEST_LARGE' not in os.environ:
            self.skipTest('needs 15 GB of memory: set LOCHOS_TEST_LARGE=1')
        self.cluster(2, pool='5G')
        block = os.urandom(MIB + 7)
        for size in (2 * 1024 * MIB - 1, 2 * 1024 * MIB, 4 * 1024 * MIB + 1):
            path = self.path('large')
            with open(path, 'wb') as file:
                for at in range(0, size, len(block)):
                    file.write(block[:min(len(block), size - at)])
            self.done_at(self.nodes[0], 'put', 'x', path, timeout='300s')
            os.unlink(path)
            reader = self.client(self.nodes[0])
            expected = reader.do('get', 'x', 300, timeout=400)
            self.assertEqual(expected.split()[0], str(size))
            other = self.client(self.nodes[1])
            self.assertEqual(other.do('get', 'x', 300, timeout=400), expected)
            other.kill()
            reader.kill()
            self.done_at(self.nodes[0], 'rm', 'x')


if __name__ == '__main__':
    tap.main()
