"""Files that the script may change in place, such as a database or an array on the disk."""

import os
import stat

from ..recorder import REC

_OURS = ("/dev/", "/proc/", "/sys/", "/memfd:", "/SYSV")
_DELETED = " (deleted)"


def changeable_file():
    """The name of one that is open for reading and writing, or mapped to be written; None: there is none.

    A log is only open for writing: lines that are added to it are known to be of the last steps.
    """
    ours = (*_OURS, os.path.realpath(REC.run))  # the kernel names files without links
    for path in (*_open_files(), *_mapped_files()):
        if not path.startswith(ours) and not path.endswith(_DELETED):
            return os.path.basename(path)
    return None


def _open_files():
    for number in os.listdir("/proc/self/fd"):
        try:
            with open("/proc/self/fdinfo/" + number) as file:
                flags = next((int(line.split()[1], 8) for line in file if line.startswith("flags:")), 0)
            if flags & os.O_ACCMODE == os.O_RDWR and stat.S_ISREG(os.fstat(int(number)).st_mode):
                yield os.readlink("/proc/self/fd/" + number)
        except OSError:  # closed meanwhile
            continue


def _mapped_files():
    with open("/proc/self/maps") as file:
        for line in file:
            parts = line.rstrip("\n").split(None, 5)
            if len(parts) == 6 and parts[1].startswith("rw") and parts[1].endswith("s"):
                yield parts[5]
