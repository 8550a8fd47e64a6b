"""Where data come from: object stores, web servers, and folders, which may be mounts."""

from __future__ import annotations

import functools
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from flatout.errors import UsageError
from flatout.stage.buffers import thread_buffer
from flatout.stage.failures import Failure, failure_of, without_secrets
from flatout.stage.folder_walk import FolderWalk
from flatout.stage.skipped import Skipped
from flatout.stage.store_facts import Facts, is_etag

S3_SCHEMES = ("s3", "s3a")
STORE_SCHEMES = (*S3_SCHEMES, "gs", "az", "azure", "abfs", "abfss", "adl", "memory")
LIST_SUFFIXES = (".txt", ".lst")  # of lists of web addresses, one a line


class Attributes(NamedTuple):
    """What a file has besides its bytes."""

    mtime_ns: int
    mode: int


class Entry(NamedTuple):
    """One object of an origin."""

    key: str  # below the origin's root, with forward slashes
    size: int
    version: str  # changes when the content does: ETag, or size and time of the last change


class Origin(ABC):
    """Objects that can be listed and read, from several threads at once.

    Attributes:
        address: for people and the manifest; never holds credentials.
        server: host and port; another server with the same address is another source. Empty: the address says all.
        unverified: what is said of a file whose bytes were compared with nothing.
        stopped: set by who lists: True ends pauses and tries of a listing.
        tell: set by who lists: called with a line about a listing that has to wait.
    """

    address: str
    server: str = ""
    unverified: str = "size only"
    stopped: Callable[[], bool] = staticmethod(lambda: False)
    tell: Callable[[str], None] = staticmethod(lambda line: None)

    @functools.cached_property
    def skipped(self) -> Skipped:
        """What listings passed over."""
        return Skipped()

    @property
    def unlisted(self) -> Sequence[str]:
        """What the listings could not read, each with the reason; empty: they were complete."""
        return tuple(self.skipped.unreadable.values())

    def nothing_found(self) -> str:
        """What to say where a listing gave nothing."""
        left = f" ({self.skipped.count:,} left out, such as {self.skipped.names[0]})" if self.skipped.count else ""
        return f"{self.address}: nothing there that is selected{left}: see that the address and the options are right"

    def tell_failure(self, failure: Failure) -> None:
        """Say that a listing is tried again."""
        self.tell(f"{failure}: trying again")

    @abstractmethod
    def entries(self, prefix: str = "") -> Iterator[Entry]:
        """All objects below ``prefix``, a page at a time."""

    @abstractmethod
    def folders(self, prefix: str = "") -> list[str]:
        """Names of the folders directly below ``prefix``, sorted."""

    @abstractmethod
    def stream(
        self, entry: Entry, buffer: memoryview, start: int = 0, length: int | None = None
    ) -> Generator[memoryview, None, None]:
        """The bytes of an object in pieces, each valid until the next is asked for.

        Args:
            entry: the object.
            buffer: pieces may lie in it; those that do begin where it begins, and all but the last fill it.
            start: of the range.
            length: of the range, which is of the version that was listed; None: the whole object.

        Raises:
            Failure: it cannot be read.
        """

    def has_ranges(self, entry: Entry) -> bool:
        """Whether a part of an object can be had without all of it."""
        return True

    def attributes(self, entry: Entry) -> Attributes | None:
        """What a copy gets of an object besides its bytes; None: nothing."""
        return None

    def facts(self, entry: Entry, part: int | None = None) -> Facts | None:
        """What a server says of an object now, or of one of the parts it was stored in; None: it cannot be asked."""
        return None

    def look_again(self, entry: Entry) -> Entry:
        """The object as it is now, where that can be asked for; raises Failure where it is gone."""
        facts = self.facts(entry)
        if facts is None or facts.size is None or not (is_etag(entry.version) and facts.etag):
            return entry
        return Entry(entry.key, facts.size, facts.etag)

    def read(self, entry: Entry, start: int = 0, length: int | None = None) -> bytes:
        """Bytes of an object, or of a range of it; raises Failure."""
        # Each piece is copied before the next takes its place: join would first collect them all.
        return b"".join(map(bytes, self.stream(entry, thread_buffer(), start, length)))


@dataclass(frozen=True)
class StoreOptions:
    """How to reach an object store; what is None comes from the environment or the instance's role."""

    endpoint: str | None = None
    region: str | None = None
    profile: str | None = None
    anonymous: bool = False


def open_origin(source: str, options: StoreOptions = StoreOptions()) -> Origin:
    """The origin that an address names.

    Args:
        source: ``s3://bucket/prefix`` (``gs``, ``az``), ``https://`` of a list or of one file, a local list of
            addresses (``.txt``), ``file:///folder``, or a folder.
        options: how to reach a store.

    Raises:
        UsageError: no such folder, or an address that no library here knows.
    """
    if not source:
        raise UsageError("the source is empty: give s3://bucket/prefix, https://…, or a folder (. for this one)")
    begins = re.match(r"([a-z][a-z0-9+.-]+)://", source)
    scheme = begins[1] if begins else ""
    if scheme in S3_SCHEMES:
        from flatout.stage.s3 import S3Origin

        return S3Origin(source, options)
    if scheme in STORE_SCHEMES:
        from flatout.stage.store import StoreOrigin

        return StoreOrigin(source, options)
    if scheme in ("http", "https") or (not scheme and source.endswith(LIST_SUFFIXES) and Path(source).is_file()):
        from flatout.stage.web import WebOrigin

        return WebOrigin(source)
    if scheme not in ("", "file"):
        known = ", ".join((*STORE_SCHEMES[:4], "file"))
        shown = without_secrets(re.sub(r"//[^/@]*@", "//…@", source))
        raise UsageError(f"{shown}: unknown kind of address {scheme!r}: known are {known}, or a folder")
    return FolderOrigin(Path(source.removeprefix("file://")))


class FolderOrigin(Origin):
    """A folder: local, or any mounted file system."""

    unverified = "size and time"  # both are the same before and after the bytes are read

    def __init__(self, root: Path) -> None:
        """Take the folder.

        Raises:
            UsageError: there is none, or it cannot be read.
        """
        self.root = root.absolute()
        self.address = str(self.root)
        if not self.root.is_dir():
            raise UsageError(f"{root}: no such folder")
        if not os.access(self.root, os.R_OK | os.X_OK):
            raise UsageError(f"{root}: not readable")

    def entries(self, prefix: str = "") -> Iterator[Entry]:
        """All files below ``prefix``; links are followed. What is no file, or cannot be listed, is in ``skipped``."""
        for key, found in self._walk().files(prefix):
            yield Entry(key, found.st_size, f"{found.st_size}:{found.st_mtime_ns}")

    def folders(self, prefix: str = "") -> list[str]:
        """Names of the folders directly below ``prefix``, sorted; links are followed."""
        return self._walk().folders(prefix)

    def _walk(self) -> FolderWalk:
        return FolderWalk(str(self.root), self.skipped, self.stopped)

    def stream(
        self, entry: Entry, buffer: memoryview, start: int = 0, length: int | None = None
    ) -> Generator[memoryview, None, None]:
        """The bytes of a file, or of a range of it, in pieces; the file stays what was listed until the last."""
        left = entry.size - start if length is None else length
        try:
            with open(self.root / entry.key, "rb", buffering=0) as file:
                _see_unchanged(file.fileno(), entry)
                while left > 0:
                    have, wanted = 0, min(left, len(buffer))
                    while have < wanted and (got := os.preadv(file.fileno(), [buffer[have:wanted]], start + have)):
                        have += got
                    if have == left:
                        _see_unchanged(file.fileno(), entry)
                    yield buffer[:have]
                    if have < wanted:
                        return  # it became shorter: who asked sees that
                    start, left = start + have, left - have
        except OSError as error:
            raise failure_of(error, str(self.root / entry.key)) from error

    def attributes(self, entry: Entry) -> Attributes | None:
        """Time of the last change, and permissions, of which the owner's to read stays."""
        try:
            found = os.stat(self.root / entry.key)
        except OSError as error:
            raise failure_of(error, str(self.root / entry.key)) from error
        return Attributes(found.st_mtime_ns, found.st_mode & 0o777 | 0o400)

    def look_again(self, entry: Entry) -> Entry:
        """The file as it is now."""
        try:
            found = os.stat(self.root / entry.key)
        except OSError as error:
            raise failure_of(error, str(self.root / entry.key)) from error
        return Entry(entry.key, found.st_size, _version(found))


def _version(found: os.stat_result) -> str:
    return f"{found.st_size}:{found.st_mtime_ns}"


def _see_unchanged(fd: int, entry: Entry) -> None:
    """Raises Failure where a file is no longer the one that was listed: what was read of it may be of two versions."""
    if entry.version != _version(os.fstat(fd)):
        raise Failure("changed", f"{entry.key}: changed at the source while it was copied")
