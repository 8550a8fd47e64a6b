"""Numbers of a read cache that all processes of a training share: a small mapped file."""

import errno
import math
import mmap
import os
import struct

FIELDS = ("used", "clock", "bits", "hits", "misses", "hit_bytes", "since", "token")
_MAP_BITS = 1 << 23  # counts distinct files: linear counting (Whang et al. 1990), good to some ten millions
_HEAD = 8 * len(FIELDS)
_SIZE = _HEAD + _MAP_BITS // 8
_open = os.open


class SharedCounts:
    """Counters by name, and how many distinct files were opened.

    Raises:
        OSError: the file cannot be made, or the disk has no room for it.
    """

    def __init__(self, path):
        fd = _open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            _allocate(fd)
            self._map = mmap.mmap(fd, _SIZE)
        finally:
            os.close(fd)

    def clear(self):
        """Set all to 0 but the token, which only grows."""
        token = self.get("token")
        self._map[:] = bytes(_SIZE)
        self.put("token", token)

    def get(self, field):
        """The value of a counter."""
        return struct.unpack_from("<q", self._map, 8 * FIELDS.index(field))[0]

    def put(self, field, value):
        """Set a counter."""
        struct.pack_into("<q", self._map, 8 * FIELDS.index(field), value)

    def add(self, field, amount):
        """Add without a lock and return the sum: concurrent updates may lose one count, which is harmless."""
        value = self.get(field) + amount
        self.put(field, value)
        return value

    def opened(self, name):
        """Count an opened file by its hash, and whether it is a new one; return the number of files opened."""
        bit = int(name[:16], 16) % _MAP_BITS
        place, mask = _HEAD + bit // 8, 1 << bit % 8
        if not self._map[place] & mask:
            self._map[place] |= mask
            self.add("bits", 1)
        return self.add("clock", 1)

    def distinct(self):
        """Distinct files that were opened."""
        return -_MAP_BITS * math.log(max(1.0 - self.get("bits") / _MAP_BITS, 1e-9))


def _allocate(fd):
    """Give the file all its blocks: writing to a mapped file without them ends the process on a full disk (SIGBUS)."""
    try:
        os.posix_fallocate(fd, 0, _SIZE)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.ENODEV):
            raise
        if os.fstat(fd).st_size < _SIZE:
            os.pwrite(fd, bytes(_SIZE), 0)
