"""The probe's file descriptors. A script may close all descriptors and reuse their numbers for its own files."""

import os


def belongs(fd, prefix):
    """True if ``fd`` is (still) open on a path that begins with ``prefix``."""
    try:
        return os.readlink("/proc/self/fd/%d" % fd).startswith(prefix)
    except OSError:
        return False


def close_own(fd, prefix):
    """Close ``fd``, unless its number has been reused for another file."""
    if fd >= 0 and belongs(fd, prefix):
        os.close(fd)
