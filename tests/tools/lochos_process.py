"""Starts `lochos` processes for tests and takes them down whatever happens."""
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

LOCHOS = os.environ['LOCHOS']
# An empty file: nobody's own configuration changes a test.
ENVIRONMENT = {key: value for key, value in os.environ.items() if not key.startswith('LOCHOS_')}
ENVIRONMENT['LOCHOS_CONFIG'] = '/dev/null'


def run(*arguments, stdin=b'', timeout=30, env=None):
    """Runs one command to its end."""
    return subprocess.run([LOCHOS, *arguments], input=stdin, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=timeout,
                          env={**ENVIRONMENT, **(env or {})}, check=False)


class Daemon:
    """A `lochos directory` or `lochos node`."""

    def __init__(self, *arguments, env=None):
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen([LOCHOS, *arguments], stdout=subprocess.PIPE,
                                        stderr=self.log, env={**ENVIRONMENT, **(env or {})})
        self.fields = {}

    def wait_ready(self, timeout=60):
        """Reads the ready line into `fields`."""
        deadline = time.monotonic() + timeout
        line = b''
        while not line.endswith(b'\n'):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise AssertionError(f'no ready line: {line!r} {self.errors()!r}')
            block = os.read(self.process.stdout.fileno(), 4096)
            if not block:
                raise AssertionError(f'ended before it was ready: {self.errors()!r}')
            line += block
        self.line = line.decode().rstrip('\n')
        words = self.line.split(' ')
        if words[0] != 'ready':
            raise AssertionError(f'not a ready line: {self.line!r}')
        self.fields = dict(re.findall(r'(\w+)=(\S*)', self.line))
        return self

    def errors(self):
        self.log.seek(0)
        return self.log.read().decode(errors='replace')

    def stop(self, number=signal.SIGTERM, timeout=20):
        self.process.send_signal(number)
        return self.process.wait(timeout)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.log.close()


class LochosTest(unittest.TestCase):
    """Gives each test a folder and takes down the daemons it started."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix='lochos-test-')
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.folder, name)

    def daemon(self, *arguments, env=None):
        daemon = Daemon(*arguments, env=env)
        self.addCleanup(daemon.close)
        return daemon

    def start_directory(self, listen='127.0.0.1:0'):
        return self.daemon('directory', '--listen', listen).wait_ready()

    def start_node(self, directory, name='n', pool='64M', extra=()):
        """`directory` is an address. Returns a daemon with `socket`, once it is ready."""
        node = self.node_process(directory, name, pool, extra)
        return node.wait_ready()

    def node_process(self, directory, name='n', pool='64M', extra=()):
        socket = self.path(f'{name}.sock')
        node = self.daemon('node', '--directory', directory, '--name', name, '--pool', pool,
                           '--socket', socket, '--transport', 'tcp', '--interface', 'lo',
                           '--listen', '127.0.0.1:0', *extra)
        node.socket = socket
        return node

    def assert_usage_error(self, result, *parts):
        self.assert_error(result, 2, *parts)

    def assert_error(self, result, status, *parts):
        """One line on standard error, nothing on standard output."""
        text = result.stderr.decode()
        self.assertEqual(result.returncode, status, text)
        self.assertEqual(result.stdout, b'')
        self.assertEqual(text.count('\n'), 1, text)
        self.assertTrue(text.startswith('lochos: '), text)
        for part in parts:
            self.assertIn(part, text)
