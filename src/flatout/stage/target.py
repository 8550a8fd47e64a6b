"""Files of a destination: each gets its name when it is whole, with a checksum of what was written."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import os
import stat
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from flatout.stage.failures import Failure
from flatout.stage.large_files import PART_BYTES, Attend, LargeFiles, Stream, nobody, write_all
from flatout.stage.names import state_folder
from flatout.stage.state import Complete

_PARTS = "crc32-of-16MiB-parts"
_numbers = itertools.count()


def temporary_folder(destination: Path) -> Path:
    """Where files lie until they are whole: on the file system of the destination, so that a rename moves them."""
    return state_folder(destination) / "partial"


class Target:
    """The destination's folders; each is made once."""

    def __init__(self, destination: Path) -> None:
        """Take the destination, which exists."""
        self.destination = destination
        self.partial = temporary_folder(destination)
        self.partial.mkdir(parents=True, exist_ok=True)
        self._root = f"{destination}/"  # strings: a Path takes as long to make as a file to open
        self._made: set[str] = set()
        self._large = LargeFiles()
        self._nameless = hasattr(os, "O_TMPFILE") and os.path.exists("/proc/self/fd")

    def path(self, key: str) -> Path:
        """The file of a key."""
        return self.destination / key

    def make_folder(self, key: str) -> None:
        """Make the folder that a key's file lies in.

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
            except FileExistsError:
                if path.is_symlink() or not path.is_dir():
                    raise Failure("never", f"{key}: {path} is no folder: another object has that name") from None
        self._made.add(folder)

    def write(self, key: str, parts: Iterable[Any], version: str, size: int = 0, known_checksum: str = "") -> Complete:
        """Write a file that gets its name when it is whole; an exception of ``parts`` leaves nothing.

        Where the file system can, the file has no name at all until then: nothing is left of it even after ``kill -9``,
        and no folder is shared by all that write. Elsewhere it has one in the folder of partial files.

        Args:
            key: of the file.
            parts: its bytes.
            version: of the object it is made from.
            size: in bytes, where it is known before.
            known_checksum: of the bytes, where ``parts`` compares it; empty: it is computed here.

        Raises:
            Failure: a folder is in the way.
            OSError: it cannot be written.
        """
        with self._file(key) as fd:
            if size > PART_BYTES:
                _see_room(fd, size)
            written = checksum = 0
            for part in parts:
                view = memoryview(part)
                written += len(view)
                if not known_checksum:
                    checksum = zlib.crc32(view, checksum)
                write_all(fd, view)
            changed_ns = os.fstat(fd).st_mtime_ns
        return Complete(key, written, version, known_checksum or f"crc32:{checksum:08x}", changed_ns)

    def write_parts(self, key: str, stream: Stream, version: str, size: int, attend: Attend = nobody) -> Complete:
        """Write a large file from parts that are read and written several at once, in any order.

        Args:
            key: of the file.
            stream: ``stream(start, length)`` gives a range in pieces; it is called in other threads.
            version: of the object it is made from.
            size: in bytes.
            attend: called in them before each part with None, and with each failure that another try follows.

        Raises:
            Failure: a part could not be read, or is not as long as it should be, or a folder is in the way.
            OSError: it cannot be written.
        """
        with self._file(key) as fd:
            _see_room(fd, size)
            sums = self._large.write(fd, key, size, stream, attend)
            changed_ns = os.fstat(fd).st_mtime_ns
        return Complete(key, size, version, _of_parts(sums), changed_ns)

    def place(
        self, file: Path, key: str, version: str, size: int, checksum: str, known: Complete | None = None
    ) -> Complete:
        """Give a whole file, which lies on the same disk, its name here.

        Args:
            file: is moved.
            key: of the file.
            version: of the object it is made from.
            size: in bytes.
            checksum: of the bytes.
            known: what staging noted of the key before; None: it made no such file.

        Raises:
            Failure: a folder is in the way, or a file of other bytes that staging did not make.
            OSError: it cannot be moved.
        """
        self.make_folder(key)
        path = self.path(key)
        changed_ns = os.lstat(file).st_mtime_ns
        if known is None and os.path.lexists(path):
            found = os.lstat(path)
            if not stat.S_ISREG(found.st_mode) or found.st_size != size or checksum_of(path, checksum) != checksum:
                raise Failure("never", f"{key}: a file that staging did not make is there: it is kept")
            return Complete(key, size, version, checksum, found.st_mtime_ns)
        try:
            os.replace(file, path)
        except IsADirectoryError:
            raise Failure("never", f"{key}: a folder of that name is in the way") from None
        return Complete(key, size, version, checksum, changed_ns)

    @contextlib.contextmanager
    def _file(self, key: str) -> Iterator[int]:
        """The descriptor of a new file, which gets its name at the end; an exception leaves nothing."""
        self.make_folder(key)
        path = f"{self._root}{key}"
        fd = self._open_nameless(path.rpartition("/")[0])
        temporary = None
        if fd is None:
            temporary = self._partial_name()
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            try:
                yield fd
                if temporary is None:
                    temporary = self._name(fd, path)
            finally:
                os.close(fd)
            if temporary is not None:
                os.replace(temporary, path)
        except IsADirectoryError:
            raise Failure("never", f"{key}: a folder of that name is in the way") from None
        finally:
            if temporary is not None:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary)

    def _partial_name(self) -> str:
        return f"{self.partial}/{os.getpid()}-{next(_numbers)}"

    def _open_nameless(self, folder: str) -> int | None:
        """A new file without a name in the folder; None where the file system knows none."""
        if not self._nameless:
            return None
        try:
            return os.open(folder, os.O_WRONLY | os.O_TMPFILE | os.O_CLOEXEC, 0o644)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
                raise
            self._nameless = False
            return None

    def _name(self, fd: int, path: str) -> str | None:
        """Give a file without a name its own; the name of a partial file where there is one of that name already."""
        source = f"/proc/self/fd/{fd}"
        for target in (path, None):
            try:
                # Only with a folder's descriptor does Python ask for the link to be followed; it is not used.
                name = target or self._partial_name()
                os.link(source, name, src_dir_fd=fd, follow_symlinks=True)
                return None if name is target else name
            except FileExistsError:
                continue
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO):
                    raise
                self._nameless = False  # a file system that makes such files, and cannot name them
                raise Failure("again", f"{path}: {error.strerror}") from None
        raise Failure("again", f"{path}: no name for it")


def checksum_of(path: Path, like: str) -> str:
    """Checksum of a file as :class:`Complete` holds it, of the kind that ``like`` is."""
    kind = like.partition(":")[0]
    checksum, digest = 0, hashlib.md5(usedforsecurity=False)
    sums = []
    with open(path, "rb", buffering=0) as file:
        # A raw file may give less than was asked for, though only at its end.
        while block := file.read(PART_BYTES if kind == _PARTS else 1 << 20):
            if kind == "md5":
                digest.update(block)
            elif kind == _PARTS:
                sums.append(zlib.crc32(block))
            else:
                checksum = zlib.crc32(block, checksum)
    if kind == _PARTS:
        return _of_parts(sums)
    return f"md5:{digest.hexdigest()}" if kind == "md5" else f"crc32:{checksum:08x}"


def _of_parts(sums: list[int]) -> str:
    """The CRC of the CRCs of parts of PART_BYTES."""
    return f"{_PARTS}:{zlib.crc32(b''.join(value.to_bytes(4, 'big') for value in sums)):08x}"


def _see_room(fd: int, size: int) -> None:
    """A disk that is too small shows before the bytes are fetched.

    Not by allocating them: writing into allocated space took ext4 twice the time here (0.33 against 0.6 GiB/s).
    """
    disk = os.fstatvfs(fd)
    if disk.f_bavail * disk.f_frsize < size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def remove_partial(destination: Path) -> int:
    """Remove what an interrupted staging left; gives the number of files."""
    left = list(temporary_folder(destination).glob("*"))
    for path in left:
        path.unlink()
    return len(left)
