"""What the scenarios about reduces share: slow sources, who does what in the tree, right sums."""
import functools
import json
import operator
import os
import time

from cluster import ClusterTest, sha256

MIB = 1 << 20
SIZE = 12 * MIB
HALF = SIZE // 2
POOL = '160M'
SMALL = int.from_bytes(b'\xff\xff\xff\x0f' * (SIZE // 4), 'little')
OPERATIONS = {'sum': operator.add, 'bxor': operator.xor}
# Nothing that goes on after a fault takes longer; bounds a whole scenario on a busy machine.
PATIENCE = '90s'


def numbers():
    """Numbers of 32 bits, so small that no sum of sixteen carries over into the next."""
    return (int.from_bytes(os.urandom(SIZE), 'little') & SMALL).to_bytes(SIZE, 'little')


def combined(op, parts):
    """All numbers at once, as one number of SIZE bytes."""
    total = functools.reduce(OPERATIONS[op], (int.from_bytes(part, 'little') for part in parts))
    return total.to_bytes(SIZE, 'little')


class ReduceTest(ClusterTest):
    """self.values: what each object should be. Source i is 's<i>', made on node i and held at half
    until finish(); a reduce of them is then held in the middle."""

    # Silence of this length is death. Short, so that the tests are; long against a busy machine.
    directory_options = ('--dead-after', '6s', '--heartbeat', '250ms')

    def scene(self, nodes, sources):
        # One after the other: sources that are there already take their places in this order.
        self.cluster(0)
        self.nodes = [self.start_node(self.address, f'n{i}', POOL) for i in range(nodes)]
        self.alive = set(range(nodes))
        self.unused = [self.node_stats(node)['used'] for node in self.nodes]
        self.values = {}
        self.writers = {}  # by name: (node, client, file)
        self.sources = [f's{i}' for i in range(sources)]
        for i in range(sources):
            self.produce(f's{i}', i)

    def survivor(self):
        return self.nodes[max(self.alive)]

    # ---- sources ----

    def produce(self, name, at, size=HALF):
        """Another value under the name, published up to `size`."""
        self.values[name] = numbers()
        path = self.file(self.values[name], f'{name}.{at}')
        writer = self.client(self.nodes[at])
        writer.do('create', name, SIZE)
        writer.do('publish', path, size)
        self.writers[name] = (at, writer, path)

    def publish(self, size):
        for at, writer, path in self.writers.values():
            if at in self.alive:
                writer.do('publish', path, size)

    def finish(self):
        self.publish(SIZE)
        for at, writer, _ in self.writers.values():
            if at in self.alive:
                writer.do('seal')
        self.writers = {}

    def erase(self, name):
        """While it is made."""
        self.done_at(self.survivor(), 'rm', name)
        self.writers.pop(name)[1].do('abandon')

    def lost(self, name):
        self.until(f'{name} is lost', lambda: not self.parents(self.survivor(), name))

    # ---- reduces ----

    def reduce(self, target, at, count=None, op='sum', sources=None, timeout=PATIENCE, options=()):
        """Begins it."""
        if count is not None:
            options = (*options, '--count', str(count))
        return self.start('reduce', target, *(sources or self.sources), '--op', op, '--dtype',
                          'u32', '--json', *options, node=self.nodes[at], timeout=timeout)

    def root(self, target):
        """The node that makes the target, if it is clear."""
        roots = [name for name, parent in self.parents(self.survivor(), target).items()
                 if parent == '-']
        index = int(roots[0][1:]) if len(roots) == 1 else None
        return index if index in self.alive else None

    def received(self):
        return {i: self.node_stats(self.nodes[i])['received'] for i in self.alive}

    def held(self, target, before=None, share=SIZE // 3):
        """Waits until the root has combined what there is: since `before` it was sent a share."""
        before = before or {i: 0 for i in self.alive}

        def root_is_held():
            root = self.root(target)
            return root is not None and \
                self.node_stats(self.nodes[root])['received'] - before[root] >= share
        try:
            self.until(f'{target} is made', root_is_held)
        except AssertionError as error:
            raise AssertionError(f'{error}; holders {self.parents(self.survivor(), target)}, '
                                 f'received {before} then {self.received()}') from None

    def roles(self, target, contributors):
        """(leaf, interior, root) of the nodes that contribute, before anybody else gets anything.
        In a flat tree there is no interior slot: another leaf, then."""
        root = self.root(target)
        received = self.received()
        others = [i for i in contributors if i != root]
        leaf = next(i for i in others if received[i] == 0)
        others.remove(leaf)
        interior = next((i for i in others if received[i] >= SIZE // 3), others[0])
        return leaf, interior, root

    def readers(self, target):
        """A get on each node that lives, by node; each has had a part when this returns."""
        before = self.received()
        root = self.root(target)
        gets = {i: self.start('get', target, node=self.nodes[i], timeout=PATIENCE)
                for i in self.alive}
        for i in self.alive - {root}:
            self.until(f'n{i} has a part', lambda i=i: self.node_stats(self.nodes[i])[
                'received'] - before[i] >= SIZE // 3)
        return gets

    def kill_node(self, index):
        self.alive.discard(index)
        self.kill(self.nodes[index])

    # ---- what comes of it ----

    def assert_reduced(self, reduce, target, count, gets=None, op='sum', without=()):
        """The answer, and that everybody has exactly the sum of what it lists."""
        began = time.monotonic()
        out, err = reduce.communicate(timeout=120)
        self.assertEqual(reduce.returncode, 0, err.decode())
        answer = json.loads(out)
        included = answer['included']
        self.assertEqual(len(included), count)
        self.assertFalse(set(included) & set(answer['left_out']), answer)
        for name in without:
            self.assertNotIn(name, included)
        expected = combined(op, [self.values[name] for name in included])
        for i, get in (gets or {}).items():
            if i in self.alive:
                self.assert_got(get, expected)
        for i in self.alive:
            self.assertEqual(sha256(self.done_at(self.nodes[i], 'get', target)), sha256(expected),
                             f'n{i}')
        self.assertLess(time.monotonic() - began, 60)
        self.values[target] = expected
        return included

    def assert_not_reduced(self, reduce, target, *words, gets=None, reader_words=()):
        """A typed error for the caller, if it lives, and for readers; there is no target."""
        if reduce is not None:
            self.assert_got_error(reduce, target, *words)
        for i, get in (gets or {}).items():
            if i in self.alive:
                self.assert_got_error(get, target, *reader_words)
        listed = self.done_at(self.survivor(), 'ls', '--json').decode()
        self.assertNotIn(target, [entry['name'] for entry in json.loads(listed)])

    def assert_nothing_leaked(self):
        """Without objects the pools are as they were."""
        for entry in json.loads(self.done_at(self.survivor(), 'ls', '--json')):
            self.done_at(self.survivor(), 'rm', entry['name'])
        for i in self.alive:
            node = self.nodes[i]
            try:
                self.until(f'the memory of n{i} is free', lambda i=i, node=node: self.node_stats(
                    node)['used'] == self.unused[i])
            except AssertionError as error:
                raise AssertionError(f'{error}: {self.node_stats(node)}, at first '
                                     f'{self.unused[i]}; {node.errors()}') from None
            self.assertEqual(self.node_stats(node)['objects'], 0)
