"""The interface of a source of data: list its objects, read them, ask the server about one."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from flatout.stage.sources.buffers import thread_buffer
from flatout.stage.sources.failures import Failure
from flatout.stage.sources.skipped import Skipped
from flatout.stage.sources.store_facts import Facts, is_etag

LIST_SUFFIXES = (".txt", ".lst")  # of lists of web addresses, one a line


class Attributes(NamedTuple):
    """File attributes that a copy keeps."""

    mtime_ns: int
    mode: int


class ObjectInfo(NamedTuple):
    """One object of a source, as listed."""

    key: str  # below the source's root, with forward slashes
    size: int
    version: str  # changes when the content does: ETag, or size and time of the last change


class Source(ABC):
    """Objects that can be listed and read, from several threads at once.

    Attributes:
        address: for messages and the recorded state; never holds credentials.
        server: host and port, if the same address on another server is another source; else empty.
        unverified: how a file is described whose bytes could not be compared with a checksum.
        stopped: set by the caller that lists; True ends pauses and tries of a listing.
        tell: set by the caller that lists; called with a message when a listing has to wait.
    """

    address: str
    server: str = ""
    unverified: str = "size only"
    stopped: Callable[[], bool] = staticmethod(lambda: False)
    tell: Callable[[str], None] = staticmethod(lambda line: None)

    @functools.cached_property
    def skipped(self) -> Skipped:
        """Items that listings passed over."""
        return Skipped()

    @property
    def unlisted(self) -> Sequence[str]:
        """Folders and keys that could not be listed, each with the reason; empty: the listings were complete."""
        return tuple(self.skipped.unreadable.values())

    def nothing_found(self) -> str:
        """The error message for an empty listing."""
        left = f" ({self.skipped.count:,} left out, such as {self.skipped.names[0]})" if self.skipped.count else ""
        return f"{self.address}: nothing there that is selected{left}: see that the address and the options are right"

    def tell_failure(self, failure: Failure) -> None:
        """Report that a listing is retried."""
        self.tell(f"{failure}: trying again")

    @abstractmethod
    def objects(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield all objects below ``prefix``."""

    @abstractmethod
    def folders(self, prefix: str = "") -> list[str]:
        """Names of the folders directly below ``prefix``, sorted."""

    @abstractmethod
    def stream(
        self, obj: ObjectInfo, buffer: memoryview, start: int = 0, length: int | None = None
    ) -> Generator[memoryview, None, None]:
        """Yield the bytes of an object in pieces, each valid until the next is requested.

        Args:
            obj: the object.
            buffer: pieces may be views of it; those start at its start, and all but the last fill it.
            start: of the range.
            length: of the range, in the listed version; None: the whole object.

        Raises:
            Failure: it cannot be read.
        """

    def has_ranges(self, obj: ObjectInfo) -> bool:
        """True if the server serves ranges of an object."""
        return True

    def attributes(self, obj: ObjectInfo) -> Attributes | None:
        """Modification time and permissions for the copy; None if the source has none."""
        return None

    def facts(self, obj: ObjectInfo, part: int | None = None) -> Facts | None:
        """The server's current report about an object, or about one of its stored parts; None if it has none."""
        return None

    def look_again(self, obj: ObjectInfo) -> ObjectInfo:
        """The object's current state if the server reports it; raises Failure if the object is gone."""
        facts = self.facts(obj)
        if facts is None or facts.size is None or not (is_etag(obj.version) and facts.etag):
            return obj
        return ObjectInfo(obj.key, facts.size, facts.etag)

    def read(self, obj: ObjectInfo, start: int = 0, length: int | None = None) -> bytes:
        """Bytes of an object, or of a range of it; raises Failure."""
        # Each piece is copied before the next takes its place: join would first collect them all.
        return b"".join(map(bytes, self.stream(obj, thread_buffer(), start, length)))


@dataclass(frozen=True)
class StoreOptions:
    """Options for reaching an object store; None: from the environment or the instance's role."""

    endpoint: str | None = None
    region: str | None = None
    profile: str | None = None
    anonymous: bool = False
