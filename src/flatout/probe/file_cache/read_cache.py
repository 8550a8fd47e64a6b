"""A cache on a fast disk for files read from a slow one, up to a budget, shared by all processes of a training.

A training reads every file once a pass, each pass in its own order: evicting the least recently used file would evict
the next one needed. So no file read within the last two passes is evicted; without room, a file is read from its
source. Files that two passes did not request (of another data set, or changed since) make room.

A copy's modification time encodes its last use: whole seconds are the token of the latest training that compared
it with its source, nanoseconds count the files opened since. Each training compares each file once, by size and
modification time, and the copy's bytes with their checksum; on every use of a copy its size is compared.
"""

import contextlib
import fcntl
import hashlib
import os
import random
import stat
import time
import zlib

from . import folder
from .counts import SharedCounts

PASSES = 2  # a file may be evicted once this many have gone by without a read of it
COUNTS = ("used", "clock", "bits", "hits", "misses", "hit_bytes", "files")
_TRIES = 64  # eviction candidates examined for room
_WRITTEN = "written"  # target of the link of a file that the training itself has written: it is not cached
# The unpatched functions: the cache must not cache its own file operations.
_open, _stat = os.open, os.stat


class ReadCache:
    """Copies of files in flatout's own folder below another one.

    Args:
        at: the other folder; created if missing.
        budget: bytes of all copies together.
        token: names the training, the same in all its processes; None: ``begin`` draws it.

    Raises:
        OSError: the folder cannot be made, belongs to something else, or has no room.
    """

    def __init__(self, at, budget, token=None):
        self._folder = folder.CacheFolder(at)
        self.folder, self.budget, self.token = self._folder.path, budget, token
        with self._folder.alone():
            self._counts = SharedCounts(os.path.join(self.folder, "state"))

    def begin(self):
        """Before a training: draw its token, remove leftovers of killed ones, and shrink the cache to the budget.

        If another training uses the cache, its counts continue; otherwise they start at 0.
        """
        self._using, first = self._folder.use()
        with self._folder.alone():
            counts = self._counts
            # Larger than all before it, whatever the clock says: a greater token says that a copy was compared later.
            self.token = max(int(time.time()), counts.get("token") + 1)
            counts.put("token", self.token)
            if first:
                counts.clear()
                counts.put("since", self.token)
            copies, reserved = self._folder.remove_leftovers(keep=() if first else (_WRITTEN,))
            counts.put("used", reserved + sum(size for _, size, _ in copies))
            for _, _, copy in sorted(copies):
                if self._has_room(0):
                    break
                with contextlib.suppress(OSError):
                    self._discard(copy)

    def end(self):
        """After a training: release the folder. Only in the process that called ``begin``."""
        os.close(self._using)

    def counts(self):
        """Counts since ``begin``: bytes used, files opened, hits, misses, bytes of hits; and distinct files."""
        found = {name: self._counts.get(name) for name in COUNTS[:-1]}
        found["files"] = round(self._counts.distinct())
        return found

    def open_path(self, path):
        """The path to open instead of ``path``; ``path`` itself if there is no copy and no room for one.

        Args:
            path: absolute.
        """
        name = _hash(path)
        link = self._folder.link(name)
        clock = self._counts.opened(name)
        found = self._current(link, path)
        if found is None:
            self._counts.add("misses", 1)
            return self._fill(path, name, clock) or path
        copy, _, held = found
        stamp = self._stamp(clock, held.st_mtime_ns)
        with contextlib.suppress(OSError):
            os.utime(copy, ns=(stamp, stamp))
        self._counts.add("hits", 1)
        self._counts.add("hit_bytes", held.st_size)
        return copy

    def written(self, path):
        """Note that the training itself changes a file: its copy is removed; the next training may make a new one."""
        name = _hash(path)
        with self._folder.alone():
            self._remove(self._folder.link(name))
            self._folder.make_shelf(name)
            folder.set_link(self._folder.link(name), _WRITTEN)

    def _current(self, link, path):
        """The copy of the file's current version, as ``linked`` returns it; None if there is no copy."""
        found = folder.linked(link)
        if found is None:
            return None
        copy, (_, size, checksum, mtime_ns), held = found
        right = held.st_size == size
        if right and held.st_mtime_ns // 10**9 < self.token:
            # Checked once per training: it costs a round trip to the slow storage.
            now = _stat(path)
            right = (now.st_size, now.st_mtime_ns) == (size, mtime_ns) and _checksum(copy) == checksum
        if not right:
            with self._folder.alone():
                if folder.linked_copy(link) == copy:
                    self._remove(link)
            return None
        return found

    def _fill(self, path, name, clock):
        """Copy the file; return the copy's path, or None if it has no room or another process is copying it."""
        found = _stat(path)
        size, link = found.st_size, self._folder.link(name)
        if not stat.S_ISREG(found.st_mode) or size > self.budget:
            return None
        if not self._has_room(size) and not self._may_evict(clock):
            return None
        part = "%s-%x.part" % (link, size)
        with self._folder.alone():
            if self._is_taken(link):
                return None  # another process has just made it, or the training wrote the file
            out = self._open_part(part, name, size, clock)
        if out is None:
            return None
        copy = None
        try:
            checksum, mtime_ns = _copied(path, out, size)
            stamp = self._stamp(clock)
            os.utime(out, ns=(stamp, stamp))
            with self._folder.alone():
                if not self._is_taken(link):
                    copy = folder.copy_name(link, size, checksum, mtime_ns)
                    os.rename(part, copy)
                    folder.set_link(link, os.path.basename(copy))
        except OSError:
            pass
        finally:
            try:
                if copy is None:
                    with self._folder.alone():
                        folder.unlink(part)
                        self._release(size)
            finally:
                os.close(out)
        return copy

    def _open_part(self, part, name, size, clock):
        """The file to write a copy to, with room reserved; None: another writer has it, or no room. Lock held."""
        self._folder.make_shelf(name)
        flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            out, reserved = _open(part, flags | os.O_CREAT | os.O_EXCL, 0o600), False
        except FileExistsError:  # of a killed process, with its room, unless it is locked
            out, reserved = _open(part, flags), True
        try:
            fcntl.flock(out, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(out)
            return None
        if reserved:
            os.ftruncate(out, 0)
        elif not self._reserve(size, clock):
            folder.unlink(part)
            os.close(out)
            return None
        return out

    def _is_taken(self, link):
        """True if the link leads to a copy, or says that none is to be kept; a dangling link is removed."""
        if os.path.islink(link) and os.readlink(link) != _WRITTEN and folder.linked_copy(link) is None:
            folder.unlink(link)
        return os.path.lexists(link)

    def _has_room(self, size):
        return self._counts.get("used") + size <= self.budget

    def _may_evict(self, clock):
        return clock > PASSES * self._counts.distinct()

    def _reserve(self, size, clock):
        """Reserve room for a file, evicting files that two passes did not read if necessary. The lock is held."""
        if not self._has_room(size) and self._may_evict(clock):
            self._evict(size, clock)
        if not self._has_room(size):
            return False
        self._counts.put("used", self._counts.get("used") + size)
        return True

    def _release(self, size):
        self._counts.put("used", max(self._counts.get("used") - size, 0))

    def _evict(self, size, clock):
        """Remove files until ``size`` fits; examines a random sample, not all files. The lock is held."""
        shelves, since = self._folder.shelves(), self._counts.get("since")
        random.shuffle(shelves)
        looked = 0
        for shelf in shelves:
            for name in os.listdir(shelf):
                if not folder.copy_named(name):
                    continue
                looked += 1
                copy = os.path.join(shelf, name)
                with contextlib.suppress(OSError):
                    token, then = divmod(os.lstat(copy).st_mtime_ns, 10**9)
                    if clock - (then if token >= since else 0) > PASSES * self._counts.distinct():
                        self._discard(copy)
            if looked > _TRIES or self._has_room(size):
                return

    def _remove(self, link):
        """Remove a link and its copy; a process that has the copy open can go on reading. The lock is held."""
        copy = folder.linked_copy(link)
        if copy is not None:
            self._discard(copy)
        folder.unlink(link)

    def _discard(self, copy):
        """Remove a copy, and the link if it leads to it. The lock is held."""
        known = folder.copy_named(os.path.basename(copy))
        link = os.path.join(os.path.dirname(copy), known[0])
        if folder.linked_copy(link) == copy:
            folder.unlink(link)
        os.unlink(copy)
        self._release(known[1])

    def _stamp(self, clock, before_ns=0):
        return max(self.token, before_ns // 10**9) * 10**9 + min(clock, 10**9 - 1)


def _hash(path):
    return hashlib.blake2b(os.fsencode(path), digest_size=16).hexdigest()


def _copied(path, out, size):
    """Checksum of the copied bytes, and the file's modification time; raises OSError if it changed meanwhile."""
    source = _open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        before = os.fstat(source)
        written, checksum = _copy(source, out)
        now = os.fstat(source)
    finally:
        os.close(source)
    if written != size or any(
        getattr(before, field) != getattr(now, field) for field in ("st_size", "st_mtime_ns", "st_ctime_ns")
    ):
        raise OSError("it changed while it was read")
    return checksum, now.st_mtime_ns


def _copy(source, out):
    """Copy one descriptor to another; return the number of bytes and their checksum."""
    written = checksum = 0
    while True:
        block = os.read(source, 1 << 20)
        if not block:
            return written, checksum
        checksum = zlib.crc32(block, checksum)
        view = memoryview(block)
        while view:
            view = view[os.write(out, view) :]
        written += len(block)


def _checksum(path):
    fd = _open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        checksum = 0
        while True:
            block = os.read(fd, 1 << 20)
            if not block:
                return checksum
            checksum = zlib.crc32(block, checksum)
    finally:
        os.close(fd)
