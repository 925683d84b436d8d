#!/usr/bin/env python3
"""Addresses, ports and devices as people write them, and what they are told when it cannot be."""
import os
import resource
import socket
import subprocess

import tap
from cluster import ClusterTest
from lochos_process import ENVIRONMENT, LOCHOS, run

NODE = ('node', '--pool', '16M', '--transport', 'tcp', '--interface', 'lo')


class Addresses(ClusterTest):
    def test_ipv6_directory_and_rails(self):
        directory = self.daemon('directory', '--listen', '[::1]:0').wait_ready()
        address = directory.fields['directory']
        self.assertRegex(address, r'^\[::1\]:\d+$')
        nodes = []
        for name in ('a', 'b'):
            path = self.path(f'{name}.sock')
            node = self.daemon('node', '--directory', address, '--name', name, '--pool', '64M',
                               '--socket', path, '--transport', 'tcp', '--listen',
                               '[::1]:0').wait_ready()
            node.socket = path
            self.assertRegex(node.fields['tcp'], r'^\[::1\]:\d+$')
            nodes.append(node)
        data = os.urandom(3_000_000)
        self.done_at(nodes[0], 'put', 'x', '-', stdin=data)
        self.assertEqual(self.done_at(nodes[1], 'get', 'x'), data)

    def test_bare_ipv6_with_port_is_refused_and_the_bracket_form_shown(self):
        for command in (('directory', '--listen', '::1:7777'),
                        (*NODE, '--directory', '::1:7777'),
                        (*NODE, '--directory', '127.0.0.1:1', '--listen', '::1:7777')):
            result = run(*command)
            self.assertIn(result.returncode, (1, 2), command)
            self.assertIn('[::1]:7777', result.stderr.decode(), command)

    def test_malformed_addresses(self):
        for address in ('127.0.0.1:99999', '127.0.0.1:x', '[::1', '[::1]', ':', '127.0.0.1:-1',
                        '256.0.0.1:80', '[fe80::1%nosuchdevice]:7777', ''):
            result = run('directory', '--listen', address)
            self.assertIn(result.returncode, (1, 2), address)
            self.assertTrue(result.stderr.startswith(b'lochos: '), result.stderr)

    def test_scoped_address(self):
        scoped = scoped_address()
        if scoped is None:
            self.skipTest('no interface has a link-local IPv6 address')
        directory = self.daemon('directory', '--listen', f'[{scoped}]:0').wait_ready()
        self.start_node(directory.fields['directory'])

    def test_unspecified_address_and_host_name(self):
        directory = self.daemon('directory', '--listen', '0.0.0.0:0').wait_ready()
        port = directory.fields['directory'].rsplit(':', 1)[1]
        self.start_node(f'localhost:{port}')

    def test_ports_in_use_are_named(self):
        with socket.create_server(('127.0.0.1', 0)) as taken:
            address = f'127.0.0.1:{taken.getsockname()[1]}'
            port = address.rsplit(':', 1)[1]
            self.assert_error(run('directory', '--listen', address), 1, 'address in use', port)
            self.assert_error(run(*NODE, '--directory', '127.0.0.1:1', '--listen', address,
                                  '--socket', self.path('s')), 1, 'address in use', port)

    def test_foreign_address_cannot_be_listened_on(self):
        result = run('directory', '--listen', '192.0.2.1:0')
        self.assert_error(result, 1, '192.0.2.1')

    def test_two_nodes_on_one_host(self):
        self.cluster(2)
        ports = {node.fields['tcp'] for node in self.nodes}
        self.assertEqual(len(ports), 2)
        self.assertNotIn('0', {port.rsplit(':', 1)[1] for port in ports})
        self.done_at(self.nodes[0], 'put', 'x', '-', stdin=b'x' * 100_000)
        self.assertEqual(self.done_at(self.nodes[1], 'get', 'x'), b'x' * 100_000)

    def test_node_long_before_the_directory_and_a_get_meanwhile(self):
        with socket.create_server(('127.0.0.1', 0)) as free:
            address = f'127.0.0.1:{free.getsockname()[1]}'
        node = self.node_process(address)
        self.until('its socket is there', lambda: os.path.exists(node.socket))
        get = self.start('get', 'x', node=node, timeout='30s')
        put = self.start('put', 'y', self.file(b'y' * 200_000), node=node, timeout='30s')
        self.until('it waits', lambda: 'waiting for the directory' in node.errors())
        self.fails_at(node, ['z', 'timed out', 'no directory', address], 'get', 'z',
                      timeout='500ms')
        self.start_directory(address)
        node.wait_ready()
        self.assertEqual(put.wait(20), 0)
        other = self.start_node(address, 'other')
        self.done_at(other, 'put', 'x', '-', stdin=b'at last')
        self.assert_got(get, b'at last')


class Devices(ClusterTest):
    def test_gid_index_asked_for_without_rdma(self):
        if os.path.isdir('/sys/class/infiniband') and os.listdir('/sys/class/infiniband'):
            self.skipTest('this host has an RDMA device')
        arguments = ('node', '--directory', '127.0.0.1:1', '--pool', '16M', '--socket',
                     self.path('s'), '--gid-index', '3')
        self.assert_error(run(*arguments), 1, 'GID index 3', '--gid-index')
        self.assert_error(run(*arguments, '--transport', 'verbs'), 1, 'transport=verbs')

    def test_verbs_asked_for_without_rdma(self):
        if os.path.isdir('/sys/class/infiniband') and os.listdir('/sys/class/infiniband'):
            self.skipTest('this host has an RDMA device')
        result = run('node', '--directory', '127.0.0.1:1', '--pool', '16M', '--socket',
                     self.path('s'), '--transport', 'verbs')
        self.assert_error(result, 1, 'verbs', 'to fix')

    def test_no_such_interface(self):
        result = run('node', '--directory', '127.0.0.1:1', '--pool', '16M', '--socket',
                     self.path('s'), '--interface', 'nosuch0')
        self.assert_usage_error(result, "'nosuch0'", 'there are: ')

    def test_locked_memory_limit_is_diagnosed(self):
        """TCP needs no locked memory: the node runs, and the doctor says what verbs would need."""
        def limit():
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
            drop_ipc_lock()

        doctor = subprocess.run([LOCHOS, 'doctor', '--pool', '64M'], preexec_fn=limit,
                                env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                timeout=30, check=False)
        text = doctor.stdout.decode()
        self.assertIn('64 KiB', text)
        self.assertRegex(text, 'ulimit -l|LimitMEMLOCK|memlock')
        self.directory = self.start_directory()
        path = self.path('n.sock')
        node = subprocess.Popen([LOCHOS, *NODE, '--directory', self.directory.fields['directory'],
                                 '--socket', path], preexec_fn=limit, env=ENVIRONMENT,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            self.assertTrue(node.stdout.readline().startswith(b'ready'))
            put = run('put', 'x', '-', '--socket', path, stdin=b'x' * 1_000_000)
            self.assertEqual(put.returncode, 0, put.stderr)
        finally:
            node.kill()
            node.communicate()

    def test_pool_larger_than_memory(self):
        result = run('node', '--directory', '127.0.0.1:1', '--pool', '40T', '--socket',
                     self.path('s'), '--transport', 'tcp', '--interface', 'lo')
        self.assert_error(result, 1, 'no space', 'TiB', '--pool')


def scoped_address():
    with open('/proc/net/if_inet6', encoding='ascii') as table:
        for line in table:
            digits, _, _, scope, _, name = line.split()
            if scope == '20':
                groups = ':'.join(digits[i:i + 4] for i in range(0, 32, 4))
                return f'{groups}%{name}'
    return None


def drop_ipc_lock():
    """Root may lock without limit; take that away from this process and what it becomes."""
    import ctypes
    cap_ipc_lock, pr_capbset_drop = 14, 24
    ctypes.CDLL(None).prctl(pr_capbset_drop, cap_ipc_lock, 0, 0, 0)


if __name__ == '__main__':
    tap.main()
