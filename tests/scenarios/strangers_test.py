#!/usr/bin/env python3
"""Bytes from whoever finds a port: refused within a second, at no cost, and service goes on."""
import contextlib
import os
import re
import socket
import struct
import subprocess
import time

import tap
from cluster import ClusterTest, limit_memory_of_sanitizer, memory_kib
from lochos_process import ENVIRONMENT, LOCHOS

limit_memory_of_sanitizer()

MAGIC = 0x484F434C  # transport/hello.cc
REFUSAL = b'LCON'
DATA, DIRECTORY, PERF, LOCAL = 1, 2, 3, 4


def spoken_here(constant):
    """The version of the protocol that the code names."""
    path = os.path.join(os.path.dirname(__file__), '..', '..', 'transport', 'hello.h')
    with open(path, encoding='ascii') as header:
        text = header.read()
    named = re.search(constant + r' =\s*(\w+);', text).group(1)
    return int(named) if named.isdigit() else spoken_here(named)


VERSION = spoken_here('kProtocolVersion')
OLDEST = spoken_here('kOldestProtocolVersion')


def hello(version, purpose, oldest=None):
    return struct.pack('<IHHHHIIIQQ8x', MAGIC, version, version if oldest is None else oldest,
                       purpose, 0, 0, 4096, 0, 0, 0)


STRANGERS = {
    'random bytes': os.urandom(4096),
    'an HTTP request': b'GET / HTTP/1.1\r\nHost: lochos\r\n\r\n',
    'a TLS greeting': bytes.fromhex('16030100c8010000c40303') + os.urandom(196),
    'a length prefix of 4 GiB': b'\xff\xff\xff\xff' * 4,
    'a large length, little-endian': struct.pack('<Q', 1 << 40) * 8,
    'zeros': bytes(4096),
    'one byte': b'L',
    'silence': b'',
    'a megabyte': os.urandom(1 << 20),
}


class Strangers(ClusterTest):
    def setUp(self):
        super().setUp()
        self.cluster(1)
        self.node = self.nodes[0]

    def connect(self, target):
        if isinstance(target, str) and '/' in target:
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(target)
        else:
            host, port = target.rsplit(':', 1)
            connection = socket.create_connection((host, int(port)), timeout=5)
        connection.settimeout(5)
        return connection

    def answer(self, target, data):
        """What the other side says until it hangs up, and how long that took."""
        began = time.monotonic()
        said = b''
        with self.connect(target) as connection:
            # It may hang up while we still talk.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(data)
            with contextlib.suppress(ConnectionResetError):
                while block := connection.recv(65536):
                    said += block
        return said, time.monotonic() - began

    def check_port(self, target, process, purpose):
        for data in STRANGERS.values():  # the first time may load code
            self.answer(target, data[:64])
        before = memory_kib(process.pid)
        for what, data in STRANGERS.items():
            said, seconds = self.answer(target, data)
            self.assertLess(seconds, 1.6, what)  # a second, and a margin for a busy machine
            self.assertLess(len(said), 256, what)
            self.assertIsNone(process.poll(), what)
        for _ in range(50):
            self.answer(target, STRANGERS['a length prefix of 4 GiB'])
        self.assertLess(memory_kib(process.pid) - before, 2048)
        # Another version: named, in the refusal, together with the one spoken here.
        said, seconds = self.answer(target, hello(99, purpose))
        self.assertLess(seconds, 1.6)
        self.assertEqual(said[:4], REFUSAL)
        self.assertEqual(struct.unpack('<HH', said[4:8]), (VERSION, OLDEST))

    def test_directory(self):
        self.check_port(self.address, self.directory.process, DIRECTORY)
        self.done_at(self.node, 'put', 'x', '-', stdin=b'still here')

    def test_directory_garbage_after_a_good_greeting(self):
        good = hello(VERSION, DIRECTORY)
        before = memory_kib(self.directory.process.pid)
        for tail in (b'\xff' * 64, struct.pack('<I', 0xFFFFFFFF) + b'x' * 1000,
                     struct.pack('<I', 0x7FFFFFFF), struct.pack('<I', 64) + os.urandom(64),
                     struct.pack('<I', 0)):
            with self.connect(self.address) as connection:
                connection.sendall(good)
                self.assertEqual(connection.recv(4), b'LCOH')
                connection.sendall(tail)
                if len(tail) > 4:
                    with contextlib.suppress(ConnectionResetError):
                        while connection.recv(4096):
                            pass
        self.assertLess(memory_kib(self.directory.process.pid) - before, 2048)
        self.done_at(self.node, 'put', 'x', '-', stdin=b'still here')

    def test_data_rail(self):
        self.check_port(self.node.fields['tcp'], self.node.process, DATA)
        other = self.start_node(self.address, 'other')
        self.done_at(self.node, 'put', 'x', '-', stdin=b'x' * 200_000)
        self.assertEqual(self.done_at(other, 'get', 'x'), b'x' * 200_000)

    def test_unix_socket(self):
        self.check_port(self.node.socket, self.node.process, LOCAL)
        self.done_at(self.node, 'put', 'x', '-', stdin=b'still here')

    def test_unix_socket_garbage_after_a_good_greeting(self):
        for tail in (b'\xff' * 64, struct.pack('<I', 0xFFFFFFFF) + b'x' * 1000,
                     struct.pack('<I', 64) + os.urandom(64)):
            with self.connect(self.node.socket) as connection:
                connection.sendall(hello(VERSION, LOCAL))
                self.assertEqual(connection.recv(4), b'LCOH')
                connection.sendall(tail)
                with contextlib.suppress(ConnectionResetError):
                    while connection.recv(4096):
                        pass
        self.done_at(self.node, 'put', 'x', '-', stdin=b'still here')

    def test_many_silent_strangers_keep_nobody_out(self):
        with contextlib.ExitStack() as stack:
            for target in (self.address, self.node.socket, self.node.fields['tcp']):
                for _ in range(60):
                    stack.enter_context(self.connect(target))
            began = time.monotonic()
            self.done_at(self.node, 'put', 'x', '-', stdin=b'in between')
            late = self.start_node(self.address, 'late')
            self.assertEqual(self.done_at(late, 'get', 'x'), b'in between')
            self.assertLess(time.monotonic() - began, 10)

    def test_a_wrong_service_behind_an_address_is_named(self):
        """A node pointed at something that is no directory, a client at no node."""
        with socket.create_server(('127.0.0.1', 0)) as wrong:
            lost = self.node_process(f'127.0.0.1:{wrong.getsockname()[1]}', 'lost', '16M')
            connection, _ = wrong.accept()
            connection.sendall(b'HTTP/1.1 400 Bad Request\r\n\r\n' + b'x' * 100)
            self.until('the log says so', lambda: 'no lochos' in lost.errors())
            connection.close()
            self.assertEqual(lost.stop(), 0)

    def test_another_version_of_the_directory_names_both(self):
        with socket.create_server(('127.0.0.1', 0)) as other:
            lost = self.node_process(f'127.0.0.1:{other.getsockname()[1]}', 'lost', '16M')
            connection, _ = other.accept()
            connection.sendall(hello(99, DIRECTORY))
            self.until('the log names both', lambda: 'version 99' in lost.errors()
                       and f'version {VERSION} ' in lost.errors())
            connection.close()
            self.assertEqual(lost.stop(), 0)

    def test_another_version_of_the_node_names_both(self):
        path = self.path('old.sock')
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(path)
            other.listen()
            get = subprocess.Popen([LOCHOS, 'get', 'x', '--socket', path, '--timeout', '5s'],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env=ENVIRONMENT)
            connection, _ = other.accept()
            connection.recv(48)
            connection.sendall(struct.pack('<IHHB15x', 0x4E4F434C, 99, 99, 11))
            connection.close()
            self.assert_got_error(get, 'version 99', f'version {VERSION} ', timeout=10)


if __name__ == '__main__':
    tap.main()
