"""A lab's private world: namespaces that vanish with the process that made them.

`enter()` moves the caller into fresh mount, network, process and host-name namespaces. Nothing in
there has a name outside, so a lab cannot collide with another one, and the kernel takes everything
down (interfaces, mounts, processes) when the lab's first process ends, even by SIGKILL.

Only scratch directories have a name in the host's file system. They carry the owner's pid in their
name and a lock the owner holds for life; the next lab removes those whose owner is dead.
"""

import ctypes
import fcntl
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile

# Exit statuses of the labs themselves, as timeout(1) and env(1) use them.
TIMED_OUT = 124
LAB_FAILED = 125

_CLONE_NEWNS = 0x00020000
_CLONE_NEWUTS = 0x04000000
_CLONE_NEWIPC = 0x08000000
_CLONE_NEWPID = 0x20000000
_CLONE_NEWNET = 0x40000000
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


class LabError(Exception):
    """Something the lab needs is missing or failed; the text says what and how to mend it."""


class Interrupted(Exception):
    """A signal asked the lab to end; `status` is the exit status that says so."""

    def __init__(self, number):
        super().__init__(signal.Signals(number).name)
        self.status = 128 + number


def require(programs):
    """Raises LabError unless we are root and every program is installed.

    `programs` maps a program's name to the Debian package that has it.
    """
    if os.geteuid() != 0:
        raise LabError("needs root (network namespaces, mounts): run it with sudo")
    missing = sorted({package for program, package in programs.items() if not find(program)})
    if missing:
        raise LabError("programs are missing: apt-get install " + " ".join(missing))


def find(program):
    """The path of a program, also in the directories of root; None if there is none."""
    return shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/bin:/bin")


def run(*command, **options):
    """Runs a command of the lab itself; its error text becomes a LabError."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          check=False, **options)
    if done.returncode != 0:
        raise LabError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def enter(at_end=lambda: None, network=True):
    """Goes on in new namespaces; only the process that lives there returns from this call.

    The caller waits outside, forwards signals and runs `at_end` last. Its child makes the namespaces
    (who has made a process namespace cannot start programs any more when that has ended); the
    grandchild, first process inside, reaps orphans, and its end is the end of that world; the
    fourth returns. Each dies with its parent.
    """
    _fork_and_forward(at_end, reap=False)
    flags = _CLONE_NEWNS | _CLONE_NEWPID | (_CLONE_NEWUTS | _CLONE_NEWNET if network else 0)
    _check(_libc.unshare(flags), "unshare")
    _fork_and_forward(lambda: None, reap=False)
    run("mount", "--make-rprivate", "/")
    run("mount", "-t", "proc", "proc", "/proc")
    _fork_and_forward(lambda: None, reap=True)
    # Orphans become our children, so that their CPU time is ours to report.
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    os.setsid()  # A terminal's ^C comes to us through our parents, once.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    if network:
        run("mount", "-t", "sysfs", "sysfs", "/sys")  # the view of this network namespace
        run("ip", "link", "set", "lo", "up")


def _interrupt(number, _frame):
    # Once is enough: a second signal must not break the clean-up of the first.
    for other in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(other, signal.SIG_IGN)
    raise Interrupted(number)


def _fork_and_forward(at_end, reap):
    """Returns in a child; the parent hands signals on and exits with the child's status."""
    forwarded = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    signal.pthread_sigmask(signal.SIG_BLOCK, forwarded)
    alive_read, alive_write = os.pipe()
    child = os.fork()
    if child == 0:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os.close(alive_write)
        os.set_blocking(alive_read, False)
        try:
            if os.read(alive_read, 1) == b"":
                os._exit(LAB_FAILED)  # The parent died before prctl took hold.
        except BlockingIOError:
            pass
        os.close(alive_read)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, forwarded)
        return
    os.close(alive_read)
    for number in forwarded:
        signal.signal(number, lambda received, _frame: os.kill(child, received))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, forwarded)
    while True:
        pid, status = os.waitpid(-1 if reap else child, 0)
        if pid == child:
            at_end()
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)


def unshare_node():
    """Gives the calling process the namespaces of a host of its own inside the lab."""
    _check(_libc.unshare(_CLONE_NEWNS | _CLONE_NEWUTS | _CLONE_NEWNET | _CLONE_NEWIPC), "unshare")
    run("mount", "--make-rprivate", "/")


def others(spared):
    """Processes of the lab, without us, its first process and those in `spared`."""
    spared = spared | {1, os.getpid()}
    return {int(name) for name in os.listdir("/proc") if name.isdecimal()} - spared


def signal_quietly(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def set_priority(nice):
    """Priority of the calling process, first of its session, and of all it will start."""
    if nice is None:
        return
    os.setpriority(os.PRIO_PROCESS, 0, nice)
    try:
        # Where the kernel schedules by session, a process's own priority counts only inside its own.
        with open("/proc/self/autogroup", "w", encoding="ascii") as file:
            file.write(str(nice))
    except OSError:
        pass


def kill_all():
    """Kills every process of the lab but us and its first."""
    try:
        os.kill(-1, signal.SIGKILL)
    except ProcessLookupError:
        pass


def reap(options=os.WNOHANG):
    """Waits for all children that have ended, or with `options` 0 for all that will."""
    try:
        while os.waitpid(-1, options)[0] != 0:
            pass
    except ChildProcessError:
        pass


def _check(result, what):
    if result != 0:
        raise LabError(f"{what}: {os.strerror(ctypes.get_errno())}")


class Scratch:
    """A directory for one run. Made before `enter()`, removed by the process that made it.

    A directory given by the user is used as it is and stays.
    """

    _PREFIX = "lochos-lab."

    def __init__(self, given=None, keep=False):
        self.keep = keep or given is not None
        if given is not None:
            os.makedirs(given, exist_ok=True)
            self.path = os.path.realpath(given)
            return
        base = os.path.realpath(tempfile.gettempdir())
        self._remove_stale(base)
        self.path = tempfile.mkdtemp(prefix=f"{self._PREFIX}{os.getpid()}.", dir=base)
        os.chmod(self.path, 0o755)
        self._lock = os.open(self.path, os.O_RDONLY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def remove(self):
        if not self.keep:
            shutil.rmtree(self.path, ignore_errors=True)

    @classmethod
    def _remove_stale(cls, base):
        for name in os.listdir(base):
            owner = re.fullmatch(re.escape(cls._PREFIX) + r"(\d+)\.\w+", name)
            path = os.path.join(base, name)
            if owner is None or os.path.exists(f"/proc/{owner[1]}"):
                continue
            details = os.lstat(path)
            if not stat.S_ISDIR(details.st_mode) or details.st_uid != os.geteuid():
                continue
            directory = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            except BlockingIOError:
                pass  # Its owner lives in another process namespace.
            finally:
                os.close(directory)


def main(body, name):
    """Runs `body(arguments)` and turns what labs raise into a message and an exit status."""
    try:
        status = body(sys.argv[1:])
    except LabError as error:
        print(f"{name}: {error}", file=sys.stderr)
        status = LAB_FAILED
    except Interrupted as interrupted:
        print(f"{name}: ended by {interrupted}", file=sys.stderr)
        status = interrupted.status
    sys.exit(status)
