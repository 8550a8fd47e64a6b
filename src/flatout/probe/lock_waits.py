"""Whether the training thread waits for the interpreter lock, and which other Python thread computes meanwhile.

The stack sampler holds the lock while it looks. A thread that waits for the lock then sleeps in the kernel on an
address inside the interpreter's own data; a thread that computes without the lock runs.
"""

import os
import sys
import threading
import time
from typing import Any

from . import events
from .descriptors import close_own
from .recorder import REC

RUNNING, AT_LOCK, BLOCKED, UNKNOWN = 0, 1, 2, 3  # the training thread, in bits 0-1 of LOCK's b
RUNTIME_BYTES = 4 << 20  # more than the interpreter's global state takes, which the lock is a part of
MOST_THREADS = 64
BUSY_NS = 1_000_000  # CPU time between two looks from which a thread is worth naming


def thread_clock(native):
    """The clock id of a thread's CPU time, as glibc's pthread_getcpuclockid makes it; reading it never crashes."""
    return (~native << 3) | 6


class LockWaits:
    """Looks at the training thread each time its stack is sampled, if other Python threads exist."""

    def __init__(self):
        self.ident: Any = None  # of the training thread, once it was looked at
        self.before: Any = {}  # native id -> CPU ns at the last look
        self.last: Any = None  # time, CPU ns and run-queue ns of the training thread at the last look
        self.syscall = self.schedstat = -1
        self.pread, self.buffer, self.runtime = _reading_with_the_lock()

    def close(self):
        """Give the descriptors back."""
        for fd in (self.syscall, self.schedstat):
            close_own(fd, "/proc/")
        self.syscall = self.schedstat = -1

    def state(self):
        """What the training thread does, read before the sampler lets the lock go for the first time."""
        if self.syscall < 0 or self.pread is None:
            return UNKNOWN
        count = self.pread(self.syscall, self.buffer, len(self.buffer), 0)
        fields = self.buffer.raw[: max(count, 0)].split()
        if not fields:
            return UNKNOWN
        if fields[0] == b"running":
            return RUNNING
        try:
            inside = 0 <= int(fields[1], 16) - self.runtime < RUNTIME_BYTES
        except (ValueError, IndexError):
            return UNKNOWN
        return AT_LOCK if inside else BLOCKED

    def look(self, taken, ident, frames, state, number_of):
        """Emit what happened since the last look; ``number_of(frame, thread name)`` is the name id of a stack."""
        threads = {thread.ident: thread for thread in threading.enumerate()[:MOST_THREADS]}
        own = threads.pop(ident, None)
        threads.pop(threading.get_ident(), None)
        if own is None or own.native_id is None:
            return
        if ident != self.ident:
            self.close()
            self.ident, self.last = ident, None
            self.syscall = _open("/proc/self/task/%d/syscall" % own.native_id)
            self.schedstat = _open("/proc/self/task/%d/schedstat" % own.native_id)
        now_at = taken, _cpu_ns(own.native_id), self._runqueue_ns()
        used = self._used(threads)
        last, self.last = self.last, now_at
        if last is None or None in now_at or None in last:
            return
        wall, cpu, queued = (after - before for after, before in zip(now_at, last))
        busiest = max(used, key=lambda each: used[each], default=None)
        number = 0
        if busiest in frames and used[busiest] >= BUSY_NS:
            number = number_of(frames[busiest], threads[busiest].name)
        blocked = max(wall - cpu - queued, 0)
        REC.emit(events.LOCK, taken - wall, taken, number, blocked, state | sum(used.values()) << 2, ident)

    def _used(self, threads):
        """CPU ns of each thread since the last look, by ident."""
        before, self.before = self.before, {}
        used = {}
        for ident, thread in threads.items():
            cpu = _cpu_ns(thread.native_id) if thread.native_id else None
            if cpu is not None:
                self.before[thread.native_id] = cpu
                used[ident] = cpu - before.get(thread.native_id, cpu)
        return used

    def _runqueue_ns(self):
        try:
            return int(os.pread(self.schedstat, 96, 0).split()[1])
        except (OSError, ValueError, IndexError):
            return None


def _cpu_ns(native):
    try:
        return time.clock_gettime_ns(thread_clock(native))
    except OSError:  # it has ended
        return None


def _open(path):
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


def _reading_with_the_lock():
    """The system's pread, which here keeps the lock, a buffer for it, and the address of the interpreter's state."""
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return None, None, 0
    try:
        import ctypes

        pread = ctypes.PyDLL(None).pread
        pread.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_long)
        pread.restype = ctypes.c_ssize_t
        runtime = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime"))
        return pread, ctypes.create_string_buffer(256), runtime
    except (ImportError, OSError, AttributeError, ValueError):
        return None, None, 0
