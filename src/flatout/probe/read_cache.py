"""A folder on a fast disk that keeps what was read from a slow one, up to a budget, for all processes of a training.

A training reads every file once a pass, in an order of its own: throwing out what was read longest ago throws out what
comes next. So nothing is thrown out that was read within the last two passes; when there is no room, a file is read
from where it is. Files that two passes did not ask for (of another data set, or changed since) make room.

Layout: ``xx/HASH`` is a link to ``xx/HASH-SIZE-MTIME``, the copy of one version of a file. The copy's time of change
says when it was used last: whole seconds are the training's start, nanoseconds count the files opened since. ``state``
is shared memory of all processes.
"""

import contextlib
import fcntl
import hashlib
import math
import mmap
import os
import random
import struct

_FIELDS = ("used", "clock", "bits", "hits", "misses", "hit_bytes")
_MAP_BITS = 1 << 23  # counts distinct files: linear counting (Whang et al. 1990), good to some ten millions
_HEAD = 8 * len(_FIELDS)
PASSES = 2  # that must have gone by without a file's being read before it may make room
_TRIES = 64  # files looked at for room
# As they are before anything is patched: what the cache does itself is not to be cached.
_open, _stat = os.open, os.stat


class ReadCache:
    """One folder's copies of files.

    Args:
        folder: where copies lie; made if it is not there.
        budget: bytes of all copies.
        token: whole seconds that name the training; the same in all its processes.
    """

    def __init__(self, folder, budget, token):
        self.folder, self.budget, self.token = folder, budget, token
        os.makedirs(folder, exist_ok=True)
        self._lock = _open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        with self._alone():
            fd = _open(os.path.join(folder, "state"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            fresh = os.fstat(fd).st_size == 0
            os.ftruncate(fd, _HEAD + _MAP_BITS // 8)
            self._map = mmap.mmap(fd, _HEAD + _MAP_BITS // 8)
            os.close(fd)
            if fresh:
                self._put("used", _held(folder))

    def begin(self):
        """Before a training: count what is there, forget earlier counts, remove what killed ones left half done."""
        with self._alone():
            self._map[:] = bytes(len(self._map))
            for place in _files(self.folder):
                if place.endswith(".part"):
                    _unlink(place)
            self._put("used", _held(self.folder))

    def counts(self):
        """Numbers since ``begin``: bytes used, files opened, hits, misses, bytes of hits; and distinct files."""
        found = {name: self._get(name) for name in _FIELDS}
        found["files"] = round(self._distinct())
        return found

    def open_path(self, path):
        """The path to open instead of ``path``; ``path`` itself where there is no copy, and no room for one.

        Args:
            path: absolute.
        """
        name = hashlib.blake2b(os.fsencode(path), digest_size=16).hexdigest()
        link = os.path.join(self.folder, name[:2], name)
        clock = self._tick(name)
        try:
            held = _stat(link)
            current = held.st_mtime_ns // 10**9 == self.token or self._is_current(link, path)
        except OSError:
            current = False
        if current:
            with contextlib.suppress(OSError):
                os.utime(link, ns=(self._stamp(clock), self._stamp(clock)))
            self._add("hits", 1)
            self._add("hit_bytes", held.st_size)
            return link
        self._add("misses", 1)
        return self._fill(path, link, clock) or path

    def _is_current(self, link, path):
        """Whether the copy is of the file as it is now: asked once in a training, for it costs a round trip."""
        size, mtime = os.readlink(link).split("-")[1:]
        now = _stat(path)
        if (now.st_size, now.st_mtime_ns) == (int(size, 16), int(mtime, 16)):
            return True
        self._remove(link)
        return False

    def _fill(self, path, link, clock):
        """Copy the file; gives the copy's path, or None where it has no room or another process is at it."""
        size = _stat(path).st_size
        if size > self.budget:
            return None
        part = link + ".part"
        try:
            os.makedirs(os.path.dirname(link), exist_ok=True)
            out = _open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except OSError:
            return None
        reserved = False
        try:
            reserved = self._reserve(size, clock)
            if not reserved:
                raise OSError("no room")
            source = _open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                written = _copy(source, out)
                now = os.fstat(source)
            finally:
                os.close(source)
            if written != size:
                raise OSError("it changed while it was read")
            os.utime(out, ns=(self._stamp(clock), self._stamp(clock)))
            copy = "%s-%x-%x" % (link, size, now.st_mtime_ns)
            os.rename(part, copy)
            swap = link + ".link"
            _unlink(swap)
            os.symlink(os.path.basename(copy), swap)
            os.rename(swap, link)
            return link
        except OSError:
            _unlink(part)
            if reserved:
                with self._alone():
                    self._put("used", self._get("used") - size)
            return None
        finally:
            os.close(out)

    def _reserve(self, size, clock):
        """Take room for a file, from files that two passes did not read if need be."""
        with self._alone():
            if self._get("used") + size > self.budget and clock > PASSES * self._distinct():
                self._evict(size, clock)
            if self._get("used") + size > self.budget:
                return False
            self._put("used", self._get("used") + size)
            return True

    def _evict(self, size, clock):
        """Remove files until ``size`` fits; looks at some that are drawn, not at all. The lock is held."""
        folders = [name for name in os.listdir(self.folder) if len(name) == 2]
        random.shuffle(folders)
        looked = 0
        for folder in folders:
            for name in os.listdir(os.path.join(self.folder, folder)):
                link = os.path.join(self.folder, folder, name)
                if len(name) != 32 or not os.path.islink(link):
                    continue
                looked += 1
                with contextlib.suppress(OSError):
                    token, then = divmod(_stat(link).st_mtime_ns, 10**9)
                    if clock - (then if token == self.token else 0) > PASSES * self._distinct():
                        self._remove(link, locked=True)
            if looked > _TRIES or self._get("used") + size <= self.budget:
                return

    def _remove(self, link, locked=False):
        """Remove a copy; whoever has it open goes on reading."""
        with contextlib.nullcontext() if locked else self._alone(), contextlib.suppress(OSError):
            size, copy = _stat(link).st_size, os.path.join(os.path.dirname(link), os.readlink(link))
            os.unlink(link)
            os.unlink(copy)
            self._put("used", max(self._get("used") - size, 0))

    def _stamp(self, clock):
        return self.token * 10**9 + min(clock, 10**9 - 1)

    def _tick(self, name):
        """Count an opened file, and whether it is one more."""
        bit = int(name[:16], 16) % _MAP_BITS
        place, mask = _HEAD + bit // 8, 1 << bit % 8
        if not self._map[place] & mask:
            self._map[place] |= mask
            self._add("bits", 1)
        return self._add("clock", 1)

    def _distinct(self):
        return -_MAP_BITS * math.log(max(1.0 - self._get("bits") / _MAP_BITS, 1e-9))

    def _get(self, field):
        return struct.unpack_from("<q", self._map, 8 * _FIELDS.index(field))[0]

    def _put(self, field, value):
        struct.pack_into("<q", self._map, 8 * _FIELDS.index(field), value)

    def _add(self, field, amount):
        """Without the lock: two processes at once may lose one count, which decides nothing."""
        value = self._get(field) + amount
        self._put(field, value)
        return value

    @contextlib.contextmanager
    def _alone(self):
        # A descriptor of its own: locks belong to open files, which forked processes share.
        fd = _open("/proc/self/fd/%d" % self._lock, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)


def _copy(source, out):
    written = 0
    while True:
        block = os.read(source, 1 << 20)
        if not block:
            return written
        view = memoryview(block)
        while view:
            view = view[os.write(out, view) :]
        written += len(block)


def _files(folder):
    for parent, _, names in os.walk(folder):
        for name in names:
            yield os.path.join(parent, name)


def _held(folder):
    total = 0
    for place in _files(folder):
        if "-" in os.path.basename(place) and not os.path.islink(place):
            with contextlib.suppress(OSError):
                total += os.path.getsize(place)
    return total


def _unlink(path):
    with contextlib.suppress(OSError):
        os.unlink(path)
