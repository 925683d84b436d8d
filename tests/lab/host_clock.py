"""The frequency of this machine's time-stamp counter, which emulated guests see as their own.

A guest that finds it out by itself measures against an emulated timer; when the host is busy the
result can be wrong tenfold, and with it every time the guest measures.
"""

import ctypes
import mmap
import platform
import time

# rdtsc; shl rdx, 32; or rax, rdx; ret
_READ_COUNTER = b"\x0f\x31\x48\xc1\xe2\x20\x48\x09\xd0\xc3"


class HostClock:
    """Starts measuring when made; the longer until `tsc_khz`, the more exact."""

    def __init__(self):
        self._read = None
        if platform.machine() == "x86_64":
            self._code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE |
                                   mmap.PROT_EXEC)
            self._code.write(_READ_COUNTER)
            address = ctypes.addressof(ctypes.c_char.from_buffer(self._code))
            self._read = ctypes.CFUNCTYPE(ctypes.c_uint64)(address)
            self._start = self._sample()

    def tsc_khz(self):
        """None on a machine without such a counter. Takes at least 0.1 s from the start."""
        if self._read is None:
            return None
        time.sleep(max(0.0, 0.1 - (time.monotonic_ns() - self._start[0]) / 1e9))
        end = self._sample()
        return round((end[1] - self._start[1]) * 1e6 / (end[0] - self._start[0]))

    def _sample(self):
        """Nanoseconds and counter of one instant: of many pairs the one read fastest."""
        pairs = []
        for _ in range(20):
            before = time.monotonic_ns()
            counter = self._read()
            after = time.monotonic_ns()
            pairs.append((after - before, (before + after) // 2, counter))
        return min(pairs)[1:]
