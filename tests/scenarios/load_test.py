#!/usr/bin/env python3
"""Many small objects leave nothing behind; an idle cluster costs nothing."""
import os
import time

import tap
from cluster import (ClusterTest, cpu_seconds, has_address_sanitizer, limit_memory_of_sanitizer,
                     memory_kib)

limit_memory_of_sanitizer()


class Load(ClusterTest):
    def test_memory_is_back_after_many_small_objects(self):
        count = int(os.environ.get('LOCHOS_TEST_OBJECTS', '100000'))
        self.cluster(1, pool='256M')
        client = self.client(self.nodes[0])
        processes = {'node': self.nodes[0].process.pid, 'directory': self.directory.process.pid}
        # What is loaded once stays. AddressSanitizer's heap also keeps the most it ever had: a
        # second round must not add to it.
        first = count if has_address_sanitizer() else 1000
        client.do('many', first, 100, timeout=500)
        before = {name: memory_kib(pid) for name, pid in processes.items()}
        began = client.stats()
        full = client.do('many', count, 100, timeout=500)
        self.assertIn(f'objects={count} ', full)
        ended = client.stats()
        self.assertEqual(ended['used'], began['used'])
        self.assertEqual((ended['objects'], ended['pinned']), (0, 0))
        after = {}
        for name, pid in processes.items():
            # Freed pages go back in the background.
            self.until(f'memory of the {name} is back', lambda name=name, pid=pid: after.update(
                {name: memory_kib(pid)}) or after[name] < before[name] + 12 * 1024, timeout=15)
        print(f'# {count} objects of 100 B: private memory in KiB before {before}, after {after}',
              flush=True)

    def test_idle_processes_use_no_cpu(self):
        self.cluster(2)
        self.done_at(self.nodes[0], 'put', 'x', '-', stdin=b'x' * 1_000_000)
        self.done_at(self.nodes[1], 'get', 'x', '/dev/null')
        processes = {'directory': self.directory.process.pid,
                     **{f'n{i}': node.process.pid for i, node in enumerate(self.nodes)}}
        before = {name: cpu_seconds(pid) for name, pid in processes.items()}
        began = time.monotonic()
        time.sleep(10)  # what is measured
        elapsed = time.monotonic() - began
        share = {name: 100 * (cpu_seconds(pid) - before[name]) / elapsed
                 for name, pid in processes.items()}
        print(f'# idle: {", ".join(f"{name} {value:.2f} %" for name, value in share.items())}'
              ' of one core', flush=True)
        for name, value in share.items():
            self.assertLess(value, 2, name)  # 0.5 is the aim; ticks are coarse, machines are busy


if __name__ == '__main__':
    tap.main()
