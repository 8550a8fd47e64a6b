"""Files that a worker inherits open from the training process, opened anew.

Processes share the position in a file that one of them inherited from the other: where a data set keeps a file, a zip
or a tar archive open, workers that seek and read would get each other's bytes.
"""

import contextlib
import fcntl
import os
import stat


class OwnFiles:
    """A ``worker_init_fn`` that opens inherited files anew, then runs the user's."""

    def __init__(self, then):
        self._then = then

    def __call__(self, worker):
        reopen_inherited()
        if self._then is not None:
            self._then(worker)


def reopen_inherited():
    """Give this process a position of its own in every ordinary file that is open for reading only.

    Descriptors keep their numbers and positions, so all that uses them goes on.
    """
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # closed meanwhile, or no longer allowed
            _reopen(int(name))


def _reopen(fd):
    if not stat.S_ISREG(os.fstat(fd).st_mode) or fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY:
        return
    own = os.open("/proc/self/fd/%d" % fd, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.lseek(own, os.lseek(fd, 0, os.SEEK_CUR), os.SEEK_SET)
        os.dup2(own, fd, os.get_inheritable(fd))
    finally:
        os.close(own)
