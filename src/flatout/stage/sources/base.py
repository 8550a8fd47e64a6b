"""What every source of data offers: list, read, and ask what a server says of an object."""

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
    """What a file has besides its bytes."""

    mtime_ns: int
    mode: int


class ObjectInfo(NamedTuple):
    """One object of a source."""

    key: str  # below the source's root, with forward slashes
    size: int
    version: str  # changes when the content does: ETag, or size and time of the last change


class Source(ABC):
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
    def objects(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """All objects below ``prefix``, a page at a time."""

    @abstractmethod
    def folders(self, prefix: str = "") -> list[str]:
        """Names of the folders directly below ``prefix``, sorted."""

    @abstractmethod
    def stream(
        self, obj: ObjectInfo, buffer: memoryview, start: int = 0, length: int | None = None
    ) -> Generator[memoryview, None, None]:
        """The bytes of an object in pieces, each valid until the next is asked for.

        Args:
            obj: the object.
            buffer: pieces may lie in it; those that do begin where it begins, and all but the last fill it.
            start: of the range.
            length: of the range, which is of the version that was listed; None: the whole object.

        Raises:
            Failure: it cannot be read.
        """

    def has_ranges(self, obj: ObjectInfo) -> bool:
        """Whether a part of an object can be had without all of it."""
        return True

    def attributes(self, obj: ObjectInfo) -> Attributes | None:
        """What a copy gets of an object besides its bytes; None: nothing."""
        return None

    def facts(self, obj: ObjectInfo, part: int | None = None) -> Facts | None:
        """What a server says of an object now, or of one of the parts it was stored in; None: it cannot be asked."""
        return None

    def look_again(self, obj: ObjectInfo) -> ObjectInfo:
        """The object as it is now, where that can be asked for; raises Failure where it is gone."""
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
    """How to reach an object store; what is None comes from the environment or the instance's role."""

    endpoint: str | None = None
    region: str | None = None
    profile: str | None = None
    anonymous: bool = False
