"""The kernel's counters of this thread: time on a core, time waiting for one, bytes read, faults."""

import os
import resource
import threading
import time

from .descriptors import close_own

_local = threading.local()


def _open(name):
    try:
        return os.open(name, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


def _descriptors():
    """Files of /proc kept open per thread; a forked child opens its own."""
    if getattr(_local, "pid", None) != os.getpid():
        _local.pid = os.getpid()
        _local.schedstat = _open("/proc/thread-self/schedstat")
        _local.io = _open("/proc/self/io")
    return _local


def thread_times():
    """Nanoseconds this thread was on a core and ready but without one; None where not readable."""
    fd = _descriptors().schedstat
    if fd < 0:
        return None
    try:
        waiting = int(os.pread(fd, 96, 0).split()[1])
        # The file's own figure of the time on a core dates from the last tick, up to 10 ms ago.
        return time.thread_time_ns(), waiting
    except (OSError, ValueError, IndexError):  # the script has closed it, and may have opened another file there
        return None


def process_io():
    """Bytes read, read calls and bytes that came from storage, of this process; None where not readable."""
    fd = _descriptors().io
    if fd < 0:
        return None
    try:
        fields = os.pread(fd, 256, 0).split()
        return int(fields[1]), int(fields[5]), int(fields[9])
    except (OSError, ValueError, IndexError):
        return None


def major_faults():
    """Page faults of this process that had to wait for storage."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt


def reset_after_fork():
    """Forget the parent's descriptors (they refer to the parent's thread)."""
    if getattr(_local, "pid", None) is not None:
        for fd in (_local.schedstat, _local.io):
            close_own(fd, "/proc/")
        _local.pid = None
