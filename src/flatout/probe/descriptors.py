"""File descriptors of the probe's own. A script may close all numbers and open files of its own under them."""

import os


def belongs(fd, prefix):
    """Whether ``fd`` is (still) open on a path that begins with ``prefix``."""
    try:
        return os.readlink("/proc/self/fd/%d" % fd).startswith(prefix)
    except OSError:
        return False


def close_own(fd, prefix):
    """Close ``fd``, unless it has become somebody else's."""
    if fd >= 0 and belongs(fd, prefix):
        os.close(fd)
