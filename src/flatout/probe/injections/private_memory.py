"""Memory maps of files, turned into ordinary memory at the same addresses before the files may change.

A map of a file that is cut is gone, and a page of it that was not read yet shows what is written to the file later.
"""

import ctypes
import mmap
import os

_MAYMOVE_FIXED = 1 | 2  # MREMAP_MAYMOVE | MREMAP_FIXED
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_TRUNC | os.O_APPEND | os.O_CREAT
_FAILED = ctypes.c_void_p(-1).value


def turn_private(paths):
    """Give every private map of these files memory of its own, with what it shows now.

    Args:
        paths: real paths, as the kernel names them.

    Raises:
        OSError: there is no memory for it.
    """
    wanted = set(paths)
    for begin, end, path in _private_maps():
        if path in wanted:
            _replace(begin, end - begin)


def is_write(mode, flags):
    """True if a file that is opened like this may change: the arguments of Python's audit event."""
    return bool(isinstance(flags, int) and flags & _WRITES) or bool(isinstance(mode, str) and set(mode) & set("wax+"))


def _private_maps():
    with open("/proc/self/maps") as file:
        lines = file.read().splitlines()
    for line in lines:
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[1].startswith("rw") and fields[1].endswith("p"):
            begin, _, end = fields[0].partition("-")
            yield int(begin, 16), int(end, 16), fields[5]


def _replace(address, length):
    libc = _libc()
    own = libc.mmap(None, length, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    if own == _FAILED:
        raise OSError(ctypes.get_errno(), "no memory for a copy of a mapped file")
    ctypes.memmove(own, address, length)
    # In one step: another thread sees the one or the other.
    if libc.mremap(own, length, length, _MAYMOVE_FIXED, address) == _FAILED:
        raise OSError(ctypes.get_errno(), "a mapped file could not be replaced by its copy")


def _libc():
    libc = ctypes.CDLL(None, use_errno=True)
    sizes = ctypes.c_size_t
    libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, sizes, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.mremap.argtypes = [ctypes.c_void_p, sizes, sizes, ctypes.c_int, ctypes.c_void_p]
    return libc
