#!/usr/bin/env python3
"""Daemons and local clients through the command line, over TCP on loopback."""
import array
import hashlib
import json
import os
import pty
import signal
import socket
import stat
import subprocess
import threading
import time

import tap
from lochos_process import ENVIRONMENT, LOCHOS, LochosTest, run


class Daemons(LochosTest):
    def test_port_zero_is_printed_and_sigterm_is_clean(self):
        directory = self.start_directory()
        host, port = directory.fields['directory'].rsplit(':', 1)
        self.assertEqual(host, '127.0.0.1')
        self.assertNotEqual(int(port), 0)
        socket.create_connection((host, int(port)), timeout=5).close()
        self.assertEqual(directory.stop(), 0)

    def test_ipv6_and_sigint(self):
        directory = self.start_directory('[::1]:0')
        self.assertRegex(directory.fields['directory'], r'^\[::1\]:\d+$')
        node = self.start_node(directory.fields['directory'])
        self.assertEqual(node.stop(signal.SIGINT), 0)
        self.assertEqual(directory.stop(signal.SIGINT), 0)

    def test_port_in_use_is_named(self):
        directory = self.start_directory()
        address = directory.fields['directory']
        result = run('directory', '--listen', address)
        self.assert_error(result, 1, 'address in use', address.rsplit(':', 1)[1])

    def test_ready_line_of_a_node(self):
        directory = self.start_directory()
        node = self.start_node(directory.fields['directory'], 'alpha')
        self.assertRegex(node.line, r'^ready node=n\d+ name=alpha socket=\S+ .*tcp=127\.0\.0\.1:\d+')
        self.assertEqual(node.fields['socket'], node.socket)
        self.assertEqual(node.stop(), 0)
        self.assertFalse(os.path.exists(node.socket))

    def test_two_nodes_on_one_socket(self):
        directory = self.start_directory()
        node = self.start_node(directory.fields['directory'], 'alpha')
        second = run('node', '--directory', directory.fields['directory'], '--socket', node.socket,
                     '--pool', '16M', '--interface', 'lo', '--transport', 'tcp')
        self.assert_error(second, 1, node.socket)

    def test_node_listen_port_in_use_is_named(self):
        directory = self.start_directory()
        with socket.create_server(('127.0.0.1', 0)) as taken:
            port = taken.getsockname()[1]
            result = run('node', '--directory', directory.fields['directory'], '--pool', '16M',
                         '--interface', 'lo', '--transport', 'tcp', '--listen',
                         f'127.0.0.1:{port}', '--socket', self.path('s'))
        self.assertEqual(result.returncode, 1)
        self.assertIn(str(port), result.stderr.decode())

    def test_node_before_directory(self):
        with socket.create_server(('127.0.0.1', 0)) as free:
            address = f'127.0.0.1:{free.getsockname()[1]}'
        node = self.node_process(address)
        deadline = time.monotonic() + 10
        while 'waiting for the directory' not in node.errors():
            self.assertLess(time.monotonic(), deadline, node.errors())
            self.assertIsNone(node.process.poll(), node.errors())
            time.sleep(0.02)
        self.start_directory(address)
        node.wait_ready()

    def test_command_before_its_node(self):
        directory = self.start_directory()
        list_ = subprocess.Popen([LOCHOS, 'ls', '--socket', self.path('early.sock')],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT)
        self.assertIsNone(list_.poll())
        self.start_node(directory.fields['directory'], 'early')
        _, errors = list_.communicate(timeout=20)
        self.assertEqual(list_.returncode, 0, errors)

    def test_node_that_waits_for_the_directory_ends_on_sigterm(self):
        node = self.node_process('127.0.0.1:1')
        deadline = time.monotonic() + 10
        while not os.path.exists(node.socket):
            self.assertLess(time.monotonic(), deadline, node.errors())
            time.sleep(0.02)
        self.assertEqual(node.stop(), 0)


class Objects(LochosTest):
    def setUp(self):
        super().setUp()
        self.directory = self.start_directory()
        address = self.directory.fields['directory']
        self.a = self.start_node(address, 'a')
        self.b = self.start_node(address, 'b')

    def do(self, node, *arguments, **options):
        return run(*arguments, '--socket', node.socket, '--timeout', '10s', **options)

    def done(self, node, *arguments, **options):
        result = self.do(node, *arguments, **options)
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        return result.stdout

    def write(self, name, data):
        with open(self.path(name), 'wb') as file:
            file.write(data)
        return self.path(name)

    def test_round_trip_of_many_sizes(self):
        for size in (0, 1, 4095, 65535, 65536, 65537, 1048577, 5000003):
            data = os.urandom(size)
            path = self.write('in', data)
            name = f'size-{size}'
            self.assertEqual(self.done(self.a, 'put', name, path), b'')
            self.done(self.b, 'get', name, self.path('out'))
            with open(self.path('out'), 'rb') as file:
                self.assertEqual(hashlib.sha256(file.read()).digest(),
                                 hashlib.sha256(data).digest(), size)

    def test_pipes(self):
        data = os.urandom(3_000_000)
        self.done(self.a, 'put', 'piped', '-', stdin=data)
        self.assertEqual(self.done(self.b, 'get', 'piped'), data)
        self.assertEqual(self.done(self.b, 'get', 'piped', '-'), data)

    def test_a_slow_writer_of_a_pipe_is_no_time_out(self):
        putter = subprocess.Popen([LOCHOS, 'put', 'slow', '-', '--socket', self.a.socket,
                                   '--timeout', '1s'], stdin=subprocess.PIPE, env=ENVIRONMENT)
        putter.stdin.write(b'first ')
        putter.stdin.flush()
        with self.assertRaises(subprocess.TimeoutExpired):
            putter.wait(1.5)
        putter.communicate(b'second', timeout=30)
        self.assertEqual(putter.returncode, 0)
        self.assertEqual(self.done(self.b, 'get', 'slow'), b'first second')

    def test_get_before_put(self):
        data = os.urandom(200_000)
        getter = subprocess.Popen([LOCHOS, 'get', 'later', '--socket', self.b.socket, '--timeout',
                                   '20s'], stdout=subprocess.PIPE, env=ENVIRONMENT)
        self.done(self.a, 'put', 'later', '-', stdin=data)
        self.assertEqual(getter.communicate(timeout=30)[0], data)
        self.assertEqual(getter.returncode, 0)

    def test_put_twice(self):
        self.done(self.a, 'put', 'once', '-', stdin=b'first')
        self.assert_error(self.do(self.b, 'put', 'once', '-', stdin=b'second'), 1, 'once',
                          'already exists')
        self.assertEqual(self.done(self.b, 'get', 'once'), b'first')

    def test_time_out_names_operation_and_object(self):
        result = run('get', 'never', '--socket', self.a.socket, '--timeout', '300ms')
        self.assert_error(result, 1, 'never', 'timed out')

    def test_ls_and_stat(self):
        self.done(self.a, 'put', 'λόχος', '-', stdin=b'x' * 100_000)
        self.done(self.b, 'get', 'λόχος', '/dev/null')
        listed = json.loads(self.done(self.b, 'ls', '--json'))
        self.assertEqual([(o['name'], o['size'], o['sealed']) for o in listed],
                         [('λόχος', 100_000, True)])
        self.assertIn('λόχος', self.done(self.b, 'ls').decode())
        shown = json.loads(self.done(self.a, 'stat', 'λόχος', '--json'))
        self.assertEqual(shown['size'], 100_000)
        self.assertEqual(sorted(holder['name'] for holder in shown['holders']), ['a', 'b'])
        self.assertIn('100000 bytes', self.done(self.a, 'stat', 'λόχος').decode())
        self.assert_error(self.do(self.a, 'stat', 'other'), 1, 'not found', 'other')

    def test_rm_reaches_every_copy(self):
        self.done(self.a, 'put', 'gone', '-', stdin=b'x' * 100_000)
        self.done(self.b, 'get', 'gone', '/dev/null')
        self.done(self.b, 'rm', 'gone')
        self.assertEqual(json.loads(self.done(self.a, 'ls', '--json')), [])
        self.assert_error(self.do(self.a, 'rm', 'gone'), 1, 'not found')
        self.done(self.a, 'put', 'gone', '-', stdin=b'again')
        self.assertEqual(self.done(self.b, 'get', 'gone'), b'again')

    def test_wait(self):
        self.done(self.a, 'put', 'one', '-', stdin=b'1')
        self.assertEqual(self.done(self.b, 'wait', 'zero', 'one', '--count', '1'), b'one\n')
        shown = json.loads(self.done(self.b, 'wait', 'one', '--json'))
        self.assertEqual(shown, {'ready': ['one']})
        result = run('wait', 'zero', 'one', '--socket', self.b.socket, '--timeout', '300ms')
        self.assert_error(result, 1, 'timed out')

    def test_reduce(self):
        for count in (5, 300_000):  # travels with the directory's messages; does not
            parts = [array.array('i', (value * factor for value in range(count)))
                     for factor in (1, 10, 100)]
            names = [f'part-{count}-{i}' for i in range(3)]
            self.done(self.a, 'put', names[0], '-', stdin=parts[0].tobytes())
            reducer = subprocess.Popen(
                [LOCHOS, 'reduce', f'sum-{count}', *names, '--dtype', 'i32', '--socket',
                 self.b.socket, '--timeout', '30s'], stdout=subprocess.PIPE, env=ENVIRONMENT)
            self.done(self.b, 'put', names[1], '-', stdin=parts[1].tobytes())
            self.done(self.b, 'put', names[2], '-', stdin=parts[2].tobytes())
            text = reducer.communicate(timeout=60)[0].decode()
            self.assertEqual(reducer.returncode, 0)
            self.assertIn('3 of 3 sources', text)
            self.assertEqual(text.splitlines()[1:], [f'included  {name}' for name in names])
            total = array.array('i', (value * 111 for value in range(count)))
            for node in (self.a, self.b):
                self.assertEqual(self.done(node, 'get', f'sum-{count}'), total.tobytes())

    def test_reduce_of_the_first_to_turn_up(self):
        self.done(self.a, 'put', 'x', '-', stdin=bytes([1, 7]))
        self.done(self.b, 'put', 'z', '-', stdin=bytes([5, 3]))
        shown = json.loads(self.done(self.a, 'reduce', 'most', 'x', 'y', 'z', '--count', '2', '--op',
                                     'max', '--dtype', 'u8', '--json'))
        self.assertEqual((shown['name'], shown['size'], shown['op'], shown['dtype']),
                         ('most', 2, 'max', 'u8'))
        self.assertEqual((shown['included'], shown['left_out']), (['x', 'z'], ['y']))
        self.assertEqual(self.done(self.b, 'get', 'most'), bytes([5, 7]))
        self.assert_error(self.do(self.b, 'reduce', 'most', 'x', 'z'), 1, 'already exists', 'most')

    def test_reduces_that_fail_leave_nothing(self):
        self.done(self.a, 'put', 'eight', '-', stdin=b'x' * 8)
        self.done(self.b, 'put', 'twelve', '-', stdin=b'x' * 12)
        self.assert_error(self.do(self.b, 'reduce', 't', 'eight', 'twelve'), 2, 'eight', 'twelve')
        self.assert_error(self.do(self.b, 'reduce', 't', 'twelve', '--dtype', 'f64'), 2, 'twelve')
        late = run('reduce', 't', 'eight', 'missing', '--socket', self.a.socket, '--timeout',
                   '300ms')
        self.assert_error(late, 1, 'timed out', 'missing')
        self.assert_error(self.do(self.a, 'stat', 't'), 1, 'not found')
        self.done(self.b, 'put', 't', '-', stdin=b'free')

    def test_put_and_get_json(self):
        put = json.loads(self.done(self.a, 'put', 'j', '-', '--json', stdin=b'abc'))
        self.assertEqual((put['name'], put['size']), ('j', 3))
        got = json.loads(self.done(self.b, 'get', 'j', self.path('j'), '--json'))
        self.assertEqual((got['size'], got['id']), (3, put['id']))
        self.assert_usage_error(self.do(self.b, 'get', 'j', '--json'), 'FILE')

    def test_a_failed_get_leaves_the_old_file(self):
        path = self.write('kept', b'old')
        run('get', 'never', path, '--socket', self.a.socket, '--timeout', '200ms')
        with open(path, 'rb') as file:
            self.assertEqual(file.read(), b'old')
        self.assertEqual(os.listdir(self.folder).count('kept'), 1)

    def test_get_to_a_full_device_fails(self):
        self.done(self.a, 'put', 'big', '-', stdin=b'x' * 100_000)
        self.assert_error(self.do(self.a, 'get', 'big', '/dev/full'), 1, '/dev/full')

    def test_get_to_a_closed_pipe_fails(self):
        self.done(self.a, 'put', 'big', '-', stdin=b'x' * 5_000_000)
        read_end, write_end = os.pipe()
        os.close(read_end)
        result = subprocess.run([LOCHOS, 'get', 'big', '--socket', self.a.socket],
                                stdout=write_end, stderr=subprocess.PIPE, env=ENVIRONMENT,
                                timeout=30, check=False)
        os.close(write_end)
        self.assertEqual(result.returncode, 1)
        self.assertIn(b'standard output', result.stderr)

    def test_new_files_have_the_usual_mode(self):
        self.done(self.a, 'put', 'm', '-', stdin=b'x')
        self.done(self.a, 'get', 'm', self.path('m'))
        mask = os.umask(0)
        os.umask(mask)
        self.assertEqual(stat.S_IMODE(os.stat(self.path('m')).st_mode), 0o666 & ~mask)

    def test_no_space_is_said(self):
        path = self.path('large')
        with open(path, 'wb') as file:
            file.truncate(200 << 20)
        self.assert_error(self.do(self.a, 'put', 'large', path), 1, 'no space')

    def test_put_killed_half_way_frees_the_name(self):
        path = self.path('half')
        with open(path, 'wb') as file:
            file.truncate(48 << 20)
        putter = subprocess.Popen([LOCHOS, 'put', 'half', path, '--socket', self.a.socket],
                                  env=ENVIRONMENT)
        putter.kill()
        putter.wait()
        deadline = time.monotonic() + 10
        while True:
            result = self.do(self.b, 'put', 'half', '-', stdin=b'whole')
            if result.returncode == 0:
                break
            listed = json.loads(self.done(self.b, 'ls', '--json'))
            if any(o['name'] == 'half' and o['sealed'] for o in listed):
                return  # it was quicker than the kill
            self.assertLess(time.monotonic(), deadline, result.stderr)
        self.assertEqual(self.done(self.a, 'get', 'half'), b'whole')

    def test_many_clients_at_once(self):
        data = {f'm{i}': os.urandom(300_000) for i in range(8)}
        wrong = []

        def one(name):
            if self.do(self.a, 'put', name, '-', stdin=data[name]).returncode != 0:
                wrong.append(name)
            if self.do(self.b, 'get', name).stdout != data[name]:
                wrong.append(name)

        threads = [threading.Thread(target=one, args=(name,)) for name in data]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_info_and_doctor_see_the_node(self):
        self.done(self.a, 'put', 'seen', '-', stdin=b'x' * 100_000)
        shown = json.loads(run('info', '--json', '--socket', self.a.socket).stdout)
        self.assertEqual(shown['node']['name'], 'a')
        self.assertEqual(shown['node']['objects'], 1)
        self.assertTrue(shown['node']['rails'])
        doctor = json.loads(run('doctor', '--json', '--pool', '16M', '--socket',
                                self.a.socket).stdout)
        verdicts = {check['check']: check['verdict'] for check in doctor['checks']}
        self.assertEqual(verdicts['node'], 'ok')
        self.assertEqual(verdicts['directory'], 'ok')

    def test_progress_only_on_a_terminal(self):
        """A get that takes over a second draws a bar on a terminal, and erases it."""
        main, worker = pty.openpty()
        self.addCleanup(os.close, main)
        getter = subprocess.Popen([LOCHOS, 'get', 'slow', '/dev/null', '--socket', self.b.socket,
                                   '--timeout', '20s'], stderr=worker, env=ENVIRONMENT)
        os.close(worker)
        seen = b''
        while b'get slow' not in seen:
            seen += os.read(main, 4096)
        self.done(self.a, 'put', 'slow', '-', stdin=b'x' * 100_000)
        self.assertEqual(getter.wait(30), 0)


if __name__ == '__main__':
    tap.main()
