"""Writes files at a destination; each gets its name only when it is complete."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from flatout.stage.checksums import CRC_OF_PARTS, PART_BYTES, Checksum, checksum_of
from flatout.stage.destination.large_files import BeforeRequest, LargeFiles, Stream, no_check, write_all
from flatout.stage.destination.own_folder import PARTIAL, open_folder
from flatout.stage.destination.state import Complete, Identity, State, identity, identity_of, is_untouched
from flatout.stage.sources.base import Attributes
from flatout.stage.sources.failures import Failure, InTheWay

_numbers = itertools.count()
_OF_ONE_PLACE = {
    errno.EBUSY: "a mount point is there, which cannot be replaced: unmount it, or leave the file out (--exclude)",
    errno.EXDEV: "another disk is mounted there: unmount it, or remove the file there before staging again",
}


class _New:
    """A file being written; it gets its name when the ``with`` block ends."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.checksum = ""  # of its bytes, once they are all written
        self.mtime_ns = 0  # of the file that has the name at the end
        self.adopted = 0  # 1: that file is not this one, but one of the same bytes that lay there


class Target:
    """Writes files and folders; replaces only files that staging wrote and that are unchanged."""

    def __init__(self, destination: Path, state: State | None = None, overwrite: bool = False) -> None:
        """Write nothing yet; the destination exists.

        Args:
            destination: the folder.
            state: knows which files staging made; None: none.
            overwrite: replace any file.
        """
        self.destination = destination
        self.partial = open_folder(destination) / PARTIAL
        self.partial.mkdir(exist_ok=True)
        self._state, self._overwrite = state, overwrite
        self._root = f"{destination}/"  # a string: making a Path takes as long as opening a file
        self._made: set[str] = set()
        self._large = LargeFiles()
        self._nameless = hasattr(os, "O_TMPFILE") and os.path.exists("/proc/self/fd")

    def path(self, key: str) -> Path:
        """The file of a key."""
        return self.destination / key

    def make_folder(self, key: str) -> None:
        """Create the parent folder of a key's file.

        Raises:
            Failure: a file of that name is in the way, or a link leads out of the destination.
        """
        folder = key.rpartition("/")[0]
        if folder in self._made or not folder:
            return
        path = self.destination
        for part in folder.split("/"):
            path = path / part
            try:
                path.mkdir()
                if self._state is not None:
                    self._state.made_folder(str(path.relative_to(self.destination)))
            except FileExistsError:
                if path.is_symlink():
                    raise Failure(
                        "never",
                        f"{key}: {path} is a link that staging did not make: move it away, or choose another DEST",
                    ) from None
                if not path.is_dir():
                    raise Failure("never", f"{key}: {path} is no folder: another object has that name") from None
        self._made.add(folder)

    def write(
        self,
        key: str,
        parts: Iterable[Any],
        version: str,
        size: int = 0,
        checksum: Callable[[], str] | None = None,
        attributes: Attributes | None = None,
        ended: Callable[[int], None] = lambda fd: None,
    ) -> Complete:
        """Write a file that gets its name when it is complete; an exception from ``parts`` leaves nothing behind.

        Where the file system supports it, the file is unnamed until then: it vanishes even after ``kill -9``,
        and no folder is shared by all that write. Elsewhere it has one in the folder of partial files.
        A file with other bytes that staging did not make, or that was changed since, is in the way; one with the same
        bytes is kept.

        Args:
            key: of the file.
            parts: its bytes.
            version: of the object it is made from.
            size: in bytes, where it is known before.
            checksum: returns the checksum of the bytes at the end if ``parts`` compute it; None: it is computed here.
            attributes: modification time and permissions of the file; None: the current time.
            ended: called with the descriptor when all bytes are written; what it raises leaves no file.

        Raises:
            Failure: a folder is in the way, or a file that may not be replaced.
            OSError: it cannot be written.
        """
        with self._file(key, attributes) as new:
            if size > PART_BYTES:
                _see_room(new.fd, key, size)
            written = crc = 0
            for part in parts:
                view = memoryview(part)
                written += len(view)
                if checksum is None:
                    crc = zlib.crc32(view, crc)
                write_all(new.fd, view)
            new.checksum = checksum() if checksum else f"crc32:{crc:08x}"
            ended(new.fd)
        return Complete(key, written, version, new.checksum, new.mtime_ns, adopted=new.adopted)

    def write_parts(
        self,
        key: str,
        stream: Stream,
        version: str,
        size: int,
        before_request: BeforeRequest = no_check,
        attributes: Attributes | None = None,
        checksum: Checksum = CRC_OF_PARTS,
        ended: Callable[[int, str], None] = lambda fd, checksum: None,
    ) -> Complete:
        """Write a large file from parts that are read and written several at once, in any order.

        Args:
            key: of the file.
            stream: ``stream(start, length)`` yields a range in pieces; it is called in other threads.
            version: of the object it is made from.
            size: in bytes.
            before_request: called in them before each part with None, and with each failure that another try follows.
            attributes: modification time and permissions of the file; None: the current time.
            checksum: to compute and note.
            ended: called with the descriptor and the checksum when all is written; what it raises leaves no file.

        Raises:
            Failure: a part could not be read, or is not as long as it should be, or something is in the way.
            OSError: it cannot be written.
        """
        with self._file(key, attributes) as new:
            _see_room(new.fd, key, size)
            new.checksum = self._large.write(new.fd, key, size, stream, before_request, checksum)
            ended(new.fd, new.checksum)
        return Complete(key, size, version, new.checksum, new.mtime_ns, adopted=new.adopted)

    def place(self, file: Path, key: str, version: str, size: int, checksum: str, verified: str) -> Complete:
        """Move a complete file of the same disk to its name here; an existing file is treated as by ``write``.

        Args:
            file: is moved.
            key: of the file.
            version: of the object it is made from.
            size: in bytes.
            checksum: of the bytes.
            verified: what they were compared with.

        Raises:
            Failure: a folder is in the way, or a file that may not be replaced.
            OSError: it cannot be moved.
        """
        self.make_folder(key)
        path = f"{self._root}{key}"
        new = _New(-1)
        new.checksum, new.mtime_ns = checksum, os.lstat(file).st_mtime_ns
        try:
            seen = self._judge(key, path, new)
            if not new.adopted:
                self._replace(str(file), key, path, seen)
        except IsADirectoryError:
            raise Failure("never", f"{key}: a folder of that name is in the way") from None
        return Complete(key, size, version, checksum, new.mtime_ns, verified, new.adopted)

    @contextlib.contextmanager
    def _file(self, key: str, attributes: Attributes | None) -> Iterator[_New]:
        """A new file, which gets its name at the end; an exception leaves nothing."""
        self.make_folder(key)
        path = f"{self._root}{key}"
        fd = self._open_nameless(path.rpartition("/")[0])
        temporary, seen = None, None
        if fd is None:
            temporary = self._partial_name()
            fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        new = _New(fd)
        try:
            try:
                yield new
                if attributes is not None:
                    os.fchmod(fd, attributes.mode)
                    os.utime(fd, ns=(attributes.mtime_ns, attributes.mtime_ns))
                new.mtime_ns = os.fstat(fd).st_mtime_ns
                if temporary is None and self._name(fd, path):
                    return
                seen = self._judge(key, path, new)
                if new.adopted:
                    return
                if temporary is None:
                    temporary = self._name_partially(fd, path)
            finally:
                os.close(fd)
            self._replace(temporary, key, path, seen)
        except IsADirectoryError:
            raise Failure("never", f"{key}: a folder of that name is in the way") from None
        finally:
            if temporary is not None:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary)

    def _replace(self, file: str, key: str, path: str, seen: Identity | None) -> None:
        """Move a file to its name; raises Failure if the file there is no longer the one that was checked."""
        if not self._overwrite and identity(path) != seen:
            raise InTheWay(f"{key}: was changed here just now: it is kept; --overwrite replaces it")
        try:
            os.replace(file, path)
        except OSError as error:
            if error.errno not in _OF_ONE_PLACE:
                raise
            raise Failure("never", f"{key}: {_OF_ONE_PLACE[error.errno]}") from None

    def _judge(self, key: str, path: str, new: _New) -> Identity | None:
        """The existing file that may be replaced; None: there is none, or any may be. Adopts one with the new bytes."""
        if self._overwrite:
            return None
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            return None
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(path)
        known = self._state.known(key) if self._state is not None else None
        own = known is not None and not known.adopted
        if known is not None and own and is_recognised(known, path):
            return identity_of(found)
        if stat.S_ISREG(found.st_mode) and checksum_of(path, new.checksum) == new.checksum:
            new.mtime_ns, new.adopted = found.st_mtime_ns, 1
            return identity_of(found)
        raise InTheWay(in_the_way(key, own))

    def _partial_name(self) -> str:
        return f"{self.partial}/{os.getpid()}-{next(_numbers)}"

    def _open_nameless(self, folder: str) -> int | None:
        """A new unnamed file in the folder; None if the file system does not support them."""
        if not self._nameless:
            return None
        try:
            return os.open(folder, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o644)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
                raise
            self._nameless = False
            return None

    def _name(self, fd: int, path: str) -> bool:
        """Link an unnamed file to its name; returns False if the name is taken."""
        try:
            # Python asks to follow the link only if a folder's descriptor is passed; the descriptor itself is unused.
            os.link(f"/proc/self/fd/{fd}", path, src_dir_fd=fd, follow_symlinks=True)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO):
                raise
            if error.errno in _OF_ONE_PLACE:
                raise Failure("never", f"{path}: {_OF_ONE_PLACE[error.errno]}") from None
            self._nameless = False  # a file system that can create unnamed files but not link them
            raise Failure("again", f"{path}: {error.strerror}") from None
        return True

    def _name_partially(self, fd: int, path: str) -> str:
        name = self._partial_name()
        if not self._name(fd, name):
            raise Failure("again", f"{path}: no name for it")
        return name


def is_recognised(done: Complete, path: str) -> bool:
    """True if a file is what staging wrote, by size, modification time and checksum."""
    return is_untouched(done, Path(path)) and checksum_of(path, done.checksum) == done.checksum


def in_the_way(key: str, staged: bool) -> str:
    """Message that a file may not be replaced."""
    what = "was changed here since it was staged" if staged else "a file that staging did not make is there"
    return f"{key}: {what}: it is kept; --overwrite replaces it"


def _see_room(fd: int, key: str, size: int) -> None:
    """Fail a file larger than the free space before its bytes are fetched; others may fit.

    Not by preallocation: writing into allocated space took ext4 twice the time here (0.33 against 0.6 GiB/s).
    """
    disk = os.fstatvfs(fd)
    room = disk.f_bavail * disk.f_frsize
    if room < size:
        raise Failure(
            "never", f"{key}: has {size:,} bytes, and {room:,} are free: make room, or leave it out (--exclude)"
        )
