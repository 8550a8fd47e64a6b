"""Decoded samples in memory that all processes of a training share: each is written once, and never moved or dropped.

An anonymous file (``memfd_create``) holds them: the kernel frees it with the last process, however that one ends.
Workers that are forked inherit its mapping; others open it below ``/proc``, by the number in an environment variable.

Samples lie one after the other, and an open-addressed table finds them. An entry is reserved, its bytes are copied
without the lock, then it is published. What a killed worker left unpublished is never read.
"""

import fcntl
import mmap
import os
import struct
import threading

from . import memory_room
from .contract import SAMPLES_VARIABLE

_MAGIC = b"flatout1"
_HEADER = struct.Struct("<8s8sQQQQQ")  # magic, token, slots, end of the samples, entries, agreed, off
_SLOTS_AT, _END_AT, _ENTRIES_AT, _AGREED_AT, _OFF_AT = 16, 24, 32, 40, 48
_NUMBER = struct.Struct("<Q")
_ENTRY = struct.Struct("<16sQQQ")  # key, offset, length, published
_TABLE_AT = 64
KEY_BYTES = 16
_SAMPLE_BYTES = 1 << 14  # the table has an entry for so many bytes of the room
_MOST_FULL = 0.75  # of the table
_LOOK_EVERY = 64 << 20  # bytes stored between looks at the memory that is left
_LEAST_LEFT = 0.1  # of the machine's memory: trials are ended at half of it
CHECKED = 32  # samples of a training that are computed as well, and compared, before stored ones are relied on


class SampleMemory:
    """The samples of one training.

    Raises:
        OSError: there is no memory of this kind here.
    """

    def __init__(self, room):
        """Join the memory of the process that began the training, or make it: the first process does.

        Args:
            room: bytes for the samples.
        """
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._after_fork)
        if not self._join(os.environ.get(SAMPLES_VARIABLE, "")):
            self._make(room)

    def _after_fork(self):
        self._lock = threading.Lock()  # a thread that does not exist here may have held the other one

    def _make(self, room):
        slots = 1 << max(room // _SAMPLE_BYTES, 64).bit_length()
        start = _TABLE_AT + slots * _ENTRY.size
        self._fd = os.memfd_create("flatout-samples", os.MFD_CLOEXEC)
        os.ftruncate(self._fd, start + room)
        self._bytes = memoryview(mmap.mmap(self._fd, start + room))
        token = os.urandom(8)
        _HEADER.pack_into(self._bytes, 0, _MAGIC, token, slots, start, 0, 0, 0)
        self._slots = slots
        os.environ[SAMPLES_VARIABLE] = "%d:%d:%s" % (os.getpid(), self._fd, token.hex())

    def _join(self, place):
        """True if the memory was found whose place is ``PROCESS:DESCRIPTOR:TOKEN``."""
        process, _, rest = place.partition(":")
        number, _, token = rest.partition(":")
        if not (process.isdigit() and number.isdigit()):
            return False
        try:
            fd = os.open("/proc/%s/fd/%s" % (process, number), os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            if os.pread(fd, 16, 0) != _MAGIC + bytes.fromhex(token):
                raise ValueError(place)
            shared = memoryview(mmap.mmap(fd, os.fstat(fd).st_size))
        except (OSError, ValueError):
            os.close(fd)
            return False
        self._fd, self._bytes = fd, shared
        self._slots = self._number(_SLOTS_AT)
        return True

    def find(self, key):
        """The bytes of a sample, which must not be changed; None: it is not stored, or not to be relied on."""
        with self._alone(fcntl.LOCK_SH):
            if self._number(_OFF_AT):
                return None
            _, offset, length, published = self._entry(key)[1]
        return self._bytes[offset : offset + length].toreadonly() if published else None

    def keep(self, key, data):
        """Store a sample as far as there is room.

        Args:
            key: of 16 bytes.
            data: bytes-like, contiguous.

        Returns:
            True if it was stored.
        """
        data = memoryview(data).cast("B")
        with self._alone(fcntl.LOCK_EX):
            place, entry = self._entry(key)
            end, entries = self._number(_END_AT), self._number(_ENTRIES_AT)
            if self._number(_OFF_AT) or entry[1] or not self._fits(end, len(data), entries):
                return False
            # Bytes before the key: a process killed in between leaves an empty slot.
            self._set(_END_AT, end + len(data))
            self._set(_ENTRIES_AT, entries + 1)
            _ENTRY.pack_into(self._bytes, place, key, end, len(data), 0)
        self._bytes[end : end + len(data)] = data
        with self._alone(fcntl.LOCK_EX):
            _ENTRY.pack_into(self._bytes, place, key, end, len(data), 1)
        return True

    def _fits(self, end, size, entries):
        if end + size > len(self._bytes) or entries > _MOST_FULL * self._slots:
            return False
        if end // _LOOK_EVERY == (end + size) // _LOOK_EVERY and entries:
            return True
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return memory_room.available_bytes() - max(size, _LOOK_EVERY) >= _LEAST_LEFT * machine

    def unchecked(self):
        """True while samples are still to be computed and compared."""
        return self._number(_AGREED_AT) < CHECKED

    def compared(self, same):
        """Note that a stored sample was the computed one; or that it was not: nothing is relied on from then on."""
        with self._alone(fcntl.LOCK_EX):
            if same:
                self._set(_AGREED_AT, self._number(_AGREED_AT) + 1)
            else:
                self._set(_OFF_AT, 1)

    def close(self):
        """Free the memory, unless other processes hold it."""
        self._bytes.release()
        os.close(self._fd)

    @property
    def entries(self):
        """The number of samples that are stored, or were begun."""
        return self._number(_ENTRIES_AT)

    @property
    def fullness(self):
        """Part of the room, or of the table, that is taken, 0..1."""
        start = _TABLE_AT + self._slots * _ENTRY.size
        room = max(len(self._bytes) - start, 1)
        return max((self._number(_END_AT) - start) / room, self.entries / (_MOST_FULL * self._slots))

    def _entry(self, key):
        """Place and content of a key's entry; of the empty one in which it belongs if it is not stored."""
        slot = int.from_bytes(key[:8], "little") & (self._slots - 1)
        while True:
            place = _TABLE_AT + slot * _ENTRY.size
            entry = _ENTRY.unpack_from(self._bytes, place)
            if entry[0] == key or not entry[1]:
                return place, entry
            slot = (slot + 1) & (self._slots - 1)

    def _number(self, at):
        return _NUMBER.unpack_from(self._bytes, at)[0]

    def _set(self, at, value):
        _NUMBER.pack_into(self._bytes, at, value)

    def _alone(self, kind):
        return _Alone(self._lock, self._fd, kind)


class _Alone:
    """Threads exclude each other by a lock of Python, processes by one of the kernel, which ends with its process."""

    __slots__ = ("_fd", "_kind", "_lock")

    def __init__(self, lock, fd, kind):
        self._lock, self._fd, self._kind = lock, fd, kind

    def __enter__(self):
        self._lock.acquire()
        try:
            fcntl.lockf(self._fd, self._kind)
        except BaseException:
            self._lock.release()
            raise

    def __exit__(self, *error):
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_UN)
        finally:
            self._lock.release()
