#!/usr/bin/env python3
"""`lochos demo`, small: right, quick, and nothing left behind."""
import json
import os
import time

import tap
from lochos_process import LochosTest, run


class Demo(LochosTest):
    def test_survivors_are_right_and_nothing_is_left(self):
        started = time.monotonic()
        result = run('demo', '--size', '64M', '--json', timeout=60, env={'TMPDIR': self.folder})
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        shown = json.loads(result.stdout)
        self.assertTrue(shown['ok'])
        roles = sorted(node['role'] for node in shown['nodes'])
        self.assertEqual(roles, ['killed', 'receiver', 'receiver', 'receiver', 'source'])
        for node in shown['nodes']:
            if node['role'] != 'killed':
                self.assertTrue(node['sha256_ok'], node)
        reduce = shown['reduce']
        roles = sorted(node['role'] for node in reduce['nodes'])
        self.assertEqual(roles, ['contributor', 'contributor', 'killed', 'spare'])
        for node in reduce['nodes']:
            killed = node['role'] == 'killed'
            self.assertEqual(node['included'], not killed, node)
            self.assertEqual(node['sha256_ok'], not killed, node)
        self.assertLess(time.monotonic() - started, 60)
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_file_that_is_not(self):
        self.assert_error(run('demo', '/nonexistent'), 1, '/nonexistent')


if __name__ == '__main__':
    tap.main()
