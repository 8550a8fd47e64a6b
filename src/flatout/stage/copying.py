"""Copy one object to its file: never a partial file under the final name, and never one that was not checked."""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import re
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from flatout.stage.failures import Failure
from flatout.stage.names import state_folder
from flatout.stage.origins import Entry, Origin
from flatout.stage.pictures import PictureChange
from flatout.stage.state import Complete

PART_BYTES = 16 << 20
PARTS_AT_ONCE = 8  # of one large object
_MD5 = re.compile(r'"?([0-9a-f]{32})"?')
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
        self._made: set[str] = set()
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
        self.make_folder(key)
        path = self.path(key)
        fd = self._open_nameless(path.parent)
        temporary = None
        if fd is None:
            temporary = self._partial_name()
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            try:
                if size > PART_BYTES:
                    # Space is taken at once: a disk that is too small shows before the bytes are fetched.
                    os.posix_fallocate(fd, 0, size)
                written = checksum = 0
                for part in parts:
                    view = memoryview(part)
                    written += len(view)
                    if not known_checksum:
                        checksum = zlib.crc32(view, checksum)
                    while view:
                        view = view[os.write(fd, view) :]
                changed_ns = os.fstat(fd).st_mtime_ns
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
                temporary.unlink(missing_ok=True)
        return Complete(key, written, version, known_checksum or f"crc32:{checksum:08x}", changed_ns)

    def _partial_name(self) -> Path:
        return self.partial / f"{os.getpid()}-{next(_numbers)}"

    def _open_nameless(self, folder: Path) -> int | None:
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

    def _name(self, fd: int, path: Path) -> Path | None:
        """Give a file without a name its own; the name of a partial file where there is one of that name already."""
        source = f"/proc/self/fd/{fd}"
        for target in (path, self._partial_name()):
            try:
                # Only with a folder's descriptor does Python ask for the link to be followed; it is not used.
                os.link(source, target, src_dir_fd=fd, follow_symlinks=True)
                return None if target == path else target
            except FileExistsError:
                continue
        raise Failure("again", f"{path}: no name for it")


def copy(entry: Entry, origin: Origin, target: Target, change: PictureChange | None = None) -> Complete:
    """Copy an object: read, check, write under a temporary name, rename.

    The check: the size that was listed; the MD5 that the store gives as ETag of an object stored in one piece.
    Larger objects are read in ranges of the version listed, so that no two versions mix.

    Args:
        entry: the object.
        origin: where it is.
        target: where it goes.
        change: what is done to pictures on the way; they are changed after the check.

    Raises:
        Failure: the object could not be read, or is not what was listed.
        Corrupt: a picture that cannot be decoded.
        OSError: the destination cannot be written.
    """
    version = version_of(entry, change)
    if change is not None and change.applies(entry.key):
        data = b"".join(_checked(entry, origin))
        return target.write(entry.key, [change.apply(entry.key, data)], version)
    # What was compared with the store's own checksum needs no other one.
    expected = _expected_md5(entry)
    return target.write(
        entry.key, _checked(entry, origin), version, entry.size, f"md5:{expected[0]}" if expected else ""
    )


def version_of(entry: Entry, change: PictureChange | None) -> str:
    """What the file at the destination is made from: the object's version, and what was changed."""
    return f"{entry.version}+{change.name}" if change is not None and change.applies(entry.key) else entry.version


def _checked(entry: Entry, origin: Origin) -> Iterator[Any]:
    """The bytes of an object; raises at the end if they are not what was listed."""
    digest = _expected_md5(entry)
    received = 0
    for part in [origin.read(entry)] if entry.size <= PART_BYTES else _parts(entry, origin):
        received += len(memoryview(part))
        if digest is not None:
            digest[1].update(part)
        yield part
    if received != entry.size:
        raise Failure("changed", f"{entry.key}: {received} bytes came where {entry.size} were listed")
    if digest is not None and digest[1].hexdigest() != digest[0]:
        raise Failure("again", f"{entry.key}: the bytes do not match the store's checksum")


def _parts(entry: Entry, origin: Origin) -> Iterator[Any]:
    """The parts of a large object in order, several of them on their way at once."""
    starts = iter(range(0, entry.size, PART_BYTES))
    with ThreadPoolExecutor(PARTS_AT_ONCE, "flatout-parts") as pool:
        coming = deque(
            pool.submit(origin.read, entry, start, min(PART_BYTES, entry.size - start))
            for start in itertools.islice(starts, PARTS_AT_ONCE)
        )
        try:
            while coming:
                part = coming.popleft().result()
                if (start := next(starts, None)) is not None:
                    coming.append(pool.submit(origin.read, entry, start, min(PART_BYTES, entry.size - start)))
                yield part
        finally:
            for waiting in coming:
                waiting.cancel()


def _expected_md5(entry: Entry) -> tuple[str, Any] | None:
    """The MD5 in an ETag and a fresh digest; None where the ETag is none (several parts, encryption)."""
    found = _MD5.fullmatch(entry.version)
    return (found[1], hashlib.md5(usedforsecurity=False)) if found else None


def checksum_of(path: Path, like: str) -> str:
    """Checksum of a file as :class:`Complete` holds it, of the kind that ``like`` is."""
    checksum, digest = 0, hashlib.md5(usedforsecurity=False)
    md5 = like.startswith("md5:")
    with open(path, "rb", buffering=0) as file:
        while block := file.read(1 << 20):
            if md5:
                digest.update(block)
            else:
                checksum = zlib.crc32(block, checksum)
    return f"md5:{digest.hexdigest()}" if md5 else f"crc32:{checksum:08x}"


def remove_partial(destination: Path) -> int:
    """Remove what an interrupted staging left; gives the number of files."""
    left = list(temporary_folder(destination).glob("*"))
    for path in left:
        path.unlink()
    return len(left)
