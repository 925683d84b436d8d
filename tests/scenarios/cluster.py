"""What the scenarios share: clusters on loopback, scripted clients, and waiting for states."""
import hashlib
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time

from lochos_process import ENVIRONMENT, LOCHOS, LochosTest, run

CLIENT = os.environ['SCENARIO_CLIENT']
LOCAL_POOL = '64M'


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def memory_kib(pid, field='RssAnon'):
    """Private memory of a process: what a stranger could make it allocate."""
    with open(f'/proc/{pid}/status', encoding='ascii') as status:
        for line in status:
            if line.startswith(field + ':'):
                return int(line.split()[1])
    raise AssertionError(f'no {field} of {pid}')


def limit_memory_of_sanitizer():
    """For files with tests of memory, before anything starts. AddressSanitizer keeps what was freed
    and spare stacks, to notice later uses: little enough that what the program keeps is seen."""
    ENVIRONMENT['ASAN_OPTIONS'] = ':'.join(
        [os.environ.get('ASAN_OPTIONS', ''), 'quarantine_size_mb=1',
         'detect_stack_use_after_return=0', 'allocator_release_to_os_interval_ms=500'])


def has_address_sanitizer():
    with open(LOCHOS, 'rb') as binary:
        return b'__asan_init' in binary.read()


def cpu_seconds(pid):
    with open(f'/proc/{pid}/stat', encoding='ascii') as stat:
        fields = stat.read().rsplit(')', 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')


class Client:
    """client.cc in a process of its own: `ask` is one line there and its answer."""

    def __init__(self, socket):
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen([CLIENT, socket], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=self.log, env=ENVIRONMENT)
        self.answers = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.answers.put(line.decode().rstrip('\n'))
        self.answers.put(None)

    def tell(self, *words):
        self.process.stdin.write((' '.join(map(str, words)) + '\n').encode())
        self.process.stdin.flush()

    def answer(self, timeout=60):
        """The next answer: 'ok …' or 'error CODE: …'."""
        answer = self.answers.get(timeout=timeout)
        if answer is None:
            self.log.seek(0)
            raise AssertionError(f'the client ended: {self.log.read()!r}')
        return answer

    def ask(self, *words, timeout=60):
        self.tell(*words)
        return self.answer(timeout)

    def do(self, *words, timeout=60):
        """As ask, for what must succeed. Returns what follows 'ok'."""
        answer = self.ask(*words, timeout=timeout)
        if not answer.startswith('ok'):
            raise AssertionError(f'{words}: {answer}')
        return answer[3:]

    def stats(self):
        pairs = (pair.split('=') for pair in self.do('stats').split())
        return {key: int(value) for key, value in pairs}

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        self.kill()
        self.process.stdin.close()
        self.process.stdout.close()
        self.log.close()


class ClusterTest(LochosTest):
    """`cluster(n)` starts a directory and n nodes: self.directory, self.nodes."""

    directory_options = ()

    def cluster(self, count, pool=LOCAL_POOL):
        self.directory = self.daemon('directory', '--listen', '127.0.0.1:0',
                                     *self.directory_options).wait_ready()
        self.address = self.directory.fields['directory']
        started = [self.node_process(self.address, f'n{i}', pool) for i in range(count)]
        self.nodes = [node.wait_ready() for node in started]

    def client(self, node):
        client = Client(node.socket)
        self.addCleanup(client.close)
        return client

    def start(self, *arguments, node, timeout='40s'):
        """Begins a command of a local client; its output goes to pipes."""
        process = subprocess.Popen([LOCHOS, *arguments, '--socket', node.socket, '--timeout',
                                    timeout], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, env=ENVIRONMENT)

        def end():
            if process.poll() is None:
                process.kill()
            process.communicate()
        self.addCleanup(end)
        return process

    def run_at(self, node, *arguments, timeout='40s', stdin=b''):
        return run(*arguments, '--socket', node.socket, '--timeout', timeout, stdin=stdin,
                   timeout=400)

    def done_at(self, node, *arguments, timeout='40s', stdin=b''):
        result = self.run_at(node, *arguments, timeout=timeout, stdin=stdin)
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        return result.stdout

    def fails_at(self, node, words, *arguments, timeout='40s', stdin=b''):
        """The command ends with status 1 and one line that has all of `words`."""
        result = self.run_at(node, *arguments, timeout=timeout, stdin=stdin)
        self.assert_error(result, 1, *words)

    def file(self, data, name='data'):
        with open(self.path(name), 'wb') as file:
            file.write(data)
        return self.path(name)

    def watcher(self, node):
        """A client that only looks: starting a process for each look would take the time that
        is looked at."""
        if not hasattr(node, 'watcher'):
            node.watcher = self.client(node)
        return node.watcher

    def node_stats(self, node):
        return self.watcher(node).stats()

    def until(self, what, condition, timeout=40, every=0.02):
        """Waits until the condition is true, and returns its value."""
        deadline = time.monotonic() + timeout
        while True:
            value = condition()
            if value:
                return value
            if time.monotonic() > deadline:
                raise AssertionError(f'not within {timeout} s: {what}')
            time.sleep(every)

    def parents(self, node, name):
        """Each holder's name and that of its parent ('-': none); {} if there is no such object."""
        answer = self.watcher(node).ask('stat', name)
        if not answer.startswith('ok'):
            return {}
        holders = (holder.split('/') for holder in answer[3:].split())
        return {holder: parent for holder, _, parent in holders}

    def assert_got(self, process, data, timeout=60):
        out, err = process.communicate(timeout=timeout)
        self.assertEqual(process.returncode, 0, err.decode())
        self.assertEqual(sha256(out), sha256(data))

    def assert_got_error(self, process, *words, timeout=60):
        out, err = process.communicate(timeout=timeout)
        self.assertEqual(process.returncode, 1, err.decode())
        for word in words:
            self.assertIn(word, err.decode())

    def pause(self, daemon):
        daemon.process.send_signal(signal.SIGSTOP)
        self.addCleanup(daemon.process.send_signal, signal.SIGCONT)

    def resume(self, daemon):
        daemon.process.send_signal(signal.SIGCONT)

    def kill(self, daemon):
        daemon.process.kill()
        daemon.process.wait()
