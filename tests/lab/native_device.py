"""A Soft-RoCE device on this machine's own kernel, for rxe --native.

It sits on a dummy interface made for the run, never on a real one. Interface and device belong to
the machine (rxe knows no network namespaces in Linux 6.1), so their names carry the owner's pid, and
those of a dead owner are removed by the next run.
"""

import os
import re
import subprocess

from sandbox import LabError, run

PROGRAMS = {"ip": "iproute2", "rdma": "iproute2", "modprobe": "kmod"}

_PREFIX = "lochos"


class NativeDevice:
    """Made and removed by the process that owns it, outside of the lab's namespaces."""

    def __init__(self, addresses, addresses6):
        self._addresses = addresses
        self._addresses6 = addresses6
        self.interface = f"{_PREFIX}{os.getpid()}"
        self.rdma = f"rxe_{self.interface}"

    def make(self):
        self._remove_stale()
        for module in ("rdma_rxe", "ib_uverbs", "rdma_ucm", "dummy"):
            done = subprocess.run(["modprobe", module], stderr=subprocess.DEVNULL, check=False)
            if done.returncode != 0 and not os.path.isdir("/sys/module/" + module):
                raise LabError(f"this kernel ({os.uname().release}) has no module {module}; leave "
                               f"--native out")
        try:
            run("ip", "link", "add", self.interface, "mtu", "4200", "type", "dummy")
            run("ip", "link", "set", self.interface, "up")
            for address in self._addresses:
                run("ip", "address", "add", address + "/24", "dev", self.interface)
            for address in self._addresses6:
                run("ip", "address", "add", address + "/64", "dev", self.interface, "nodad")
            run("rdma", "link", "add", self.rdma, "type", "rxe", "netdev", self.interface)
        except LabError:
            self.remove()
            raise

    def remove(self):
        """The rxe device goes with its interface."""
        subprocess.run(["ip", "link", "delete", self.interface], stderr=subprocess.DEVNULL,
                       check=False)

    @staticmethod
    def _remove_stale():
        for name in os.listdir("/sys/class/net"):
            owner = re.fullmatch(_PREFIX + r"(\d+)", name)
            if owner and not os.path.exists(f"/proc/{owner[1]}"):
                run("ip", "link", "delete", name)
