"""What both labs do with the ranks of one command: options, environment, output and status."""

import argparse
import functools
import os
import selectors
import shlex
import signal
import subprocess
import sys
import time

import sandbox
from sandbox import TIMED_OUT, LabError

# Time that daemons get to end by themselves before they are killed.
_GRACE_S = 3.0


def add_options(parser, timeout):
    parser.add_argument("--timeout", type=float, default=timeout, metavar="SECONDS",
                        help="kill everything and fail with status 124 after this time (default "
                             "%(default)s)")
    parser.add_argument("--output", choices=("prefix", "raw"),
                        help="prefix: each line carries its rank (default); raw: lines as they are "
                             "(default with --script)")
    parser.add_argument("--only", type=rank_list, metavar="RANKS",
                        help="show the output of these ranks alone, such as 0 or 0,2")
    parser.add_argument("--until", type=rank_list, metavar="RANKS",
                        help="end the run when these ranks have ended (for servers that never "
                             "end); the others are killed and do not count")
    parser.add_argument("--fail-fast", action="store_true",
                        help="kill the others as soon as one rank fails")
    parser.add_argument("--nice", type=int, metavar="N",
                        help="priority of all ranks, -20 (first) to 19, for figures on a busy "
                             "machine")
    parser.add_argument("--dir", metavar="DIRECTORY",
                        help="use this directory as LOCHOS_LAB_DIR and leave it (default: a fresh "
                             "one, removed at the end)")
    parser.add_argument("--keep", action="store_true",
                        help="leave the scratch directory and say where it is")
    parser.add_argument("--quiet", action="store_true", help="no report at the end")


def rank_list(text):
    try:
        return {int(word) for word in text.split(",")}
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of ranks such as 0,2") from None


def parse(parser, arguments):
    """Parses `OPTIONS -- COMMAND…`, with options before or after the positional words."""
    if "--" in arguments:
        at = arguments.index("--")
        options, command = arguments[:at], arguments[at + 1:]
    else:
        options, command = arguments, []
    parsed = parser.parse_args(options)
    parsed.command = command
    if parsed.output is None:
        parsed.output = "raw" if getattr(parsed, "script", None) else "prefix"
    return parsed


def check_ranks(option, ranks, size):
    wrong = sorted(rank for rank in ranks or () if not 0 <= rank < size)
    if wrong:
        raise LabError(f"{option}: no rank {wrong[0]}; there are 0 to {size - 1}")


def addresses(size):
    """The IPv4 and the IPv6 addresses of all ranks; both labs use the same."""
    return ([f"10.76.0.{rank + 1}" for rank in range(size)],
            [f"fd76::{rank + 1:x}" for rank in range(size)])


def environment(rank, ipv4, ipv6, directory):
    """The contract between both labs and every command that runs in them."""
    return {
        "LOCHOS_LAB_RANK": str(rank),
        "LOCHOS_LAB_SIZE": str(len(ipv4)),
        "LOCHOS_LAB_ADDRESS": ipv4[rank],
        "LOCHOS_LAB_ADDRESSES": " ".join(ipv4),
        "LOCHOS_LAB_ADDRESS6": ipv6[rank],
        "LOCHOS_LAB_ADDRESSES6": " ".join(ipv6),
        "LOCHOS_LAB_DIR": directory,
    }


def export_lines(variables):
    """Shell text that sets the variables; names a shell cannot hold are left out."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items()
                   if name.isidentifier() and name.isascii())


class Output:
    """Merges the streams of all ranks into ours, whole lines at a time."""

    def __init__(self, style, only):
        self._style = style
        self._only = only
        self._partial = {}

    def write(self, rank, is_error, data):
        if self._only is not None and rank not in self._only:
            return
        *lines, rest = (self._partial.get((rank, is_error), b"") + data).split(b"\n")
        self._partial[rank, is_error] = rest
        if lines:
            self._emit(rank, is_error, b"".join(self._mark(rank) + line + b"\n" for line in lines))

    def finish(self, rank):
        """Shows what a rank wrote after its last newline."""
        for is_error in (False, True):
            rest = self._partial.pop((rank, is_error), b"")
            if rest:
                newline = b"" if self._style == "raw" else b"\n"
                self._emit(rank, is_error, self._mark(rank) + rest + newline)

    def _mark(self, rank):
        return b"" if self._style == "raw" else b"[%d] " % rank

    def _emit(self, rank, is_error, data):
        stream = sys.stderr.buffer if is_error else sys.stdout.buffer
        stream.write(data)
        stream.flush()


class Run:
    """One command on all ranks, from its start to the status of the whole.

    The lab registers streams with `watch` and reports ends with `end`; `wait` serves them until
    every rank that counts has ended, or the time is up.
    """

    def __init__(self, name, options, size):
        self.statuses = [None] * size
        self._name = name
        self._options = options
        self._output = Output(options.output, options.only)
        self._selector = selectors.DefaultSelector()
        self._deadline = time.monotonic() + options.timeout
        self._awaited = options.until if options.until is not None else set(range(size))

    def watch(self, stream, action, urgent=False):
        """Calls `action(data)` for what arrives; b"" is the end, after which it is forgotten.

        Streams that are not urgent are served first, so that what a rank wrote precedes the news
        of its end.
        """
        os.set_blocking(stream.fileno(), False)
        self._selector.register(stream, selectors.EVENT_READ, (urgent, action))

    def watch_output(self, rank, stream, is_error):
        self.watch(stream, lambda data: self._output.write(rank, is_error, data))

    def watch_end(self, descriptor, action):
        """Calls `action()` once when a pidfd says that its process has ended."""
        def ended():
            self._selector.unregister(descriptor)
            action()
        self._selector.register(descriptor, selectors.EVENT_READ, (True, ended))

    def spawn(self, rank, command, variables):
        """Starts a rank as a process of this machine."""
        process = subprocess.Popen(
            command, env={**os.environ, **variables}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
            preexec_fn=functools.partial(sandbox.set_priority, self._options.nice))
        self.watch_output(rank, process.stdout, is_error=False)
        self.watch_output(rank, process.stderr, is_error=True)

        def ended():
            code = process.wait()
            self.end(rank, code if code >= 0 else 128 - code)
        self.watch_end(os.pidfd_open(process.pid), ended)

    def end_everything(self, spared=frozenset()):
        """Ends and reaps all processes of the lab, politely first, and shows their last words."""
        left = sandbox.others(spared)
        for pid in left:
            sandbox.signal_quietly(pid, signal.SIGTERM)
        deadline = time.monotonic() + _GRACE_S
        while left and time.monotonic() < deadline:
            self.turn(0.02)
            sandbox.reap()
            left = sandbox.others(spared)
        self.drain()
        sandbox.kill_all()
        sandbox.reap(0)

    def end(self, rank, status):
        self.statuses[rank] = status

    def wait(self):
        """Returns the worst status of the ranks that count."""
        while any(self.statuses[rank] is None for rank in self._awaited):
            left = self._deadline - time.monotonic()
            if left <= 0:
                self.drain()
                still = [str(rank) for rank, status in enumerate(self.statuses) if status is None]
                print(f"{self._name}: time limit of {self._options.timeout:g} s; still running: "
                      f"ranks {' '.join(still)}", file=sys.stderr)
                return TIMED_OUT
            self.turn(left)
            if self._options.fail_fast and any(self.statuses):
                break
        counted = range(len(self.statuses)) if self._options.fail_fast else self._awaited
        return max(self.statuses[rank] or 0 for rank in counted)

    def turn(self, timeout):
        """Serves what is there, or the next thing to come; says whether there was anything."""
        events = self._selector.select(timeout)
        for key, _ in sorted(events, key=lambda event: event[0].data[0]):
            _, action = key.data
            if isinstance(key.fileobj, int):
                action()
                continue
            data = os.read(key.fd, 65536)
            if not data:
                self._selector.unregister(key.fileobj)
            action(data)
        return bool(events)

    def drain(self):
        """Shows what is still in the streams, and lines without an end."""
        while self.turn(0):
            pass
        for rank in range(len(self.statuses)):
            self._output.finish(rank)
