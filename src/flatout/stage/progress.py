"""How far a staging is, and how it ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from flatout.stage.sources.failures import Failure, InTheWay

NAMED_AT_MOST = 20  # failures and the like that are named; all are counted


def _name(names: list[str], text: str) -> None:
    if len(names) < NAMED_AT_MOST:
        names.append(text)


@dataclass
class Progress:
    """Counters of a staging that goes on; written by its threads, read by whoever shows them."""

    listed: int = 0
    listed_bytes: int = 0
    listing_done: bool = False
    copied: int = 0
    copied_bytes: int = 0
    changed: int = 0  # pictures that were written anew on the way
    dropped: int = 0  # pictures that cannot be decoded, left out
    dropped_names: list[str] = field(default_factory=list)
    kept: int = 0  # complete already
    kept_bytes: int = 0
    adopted: int = 0  # of those: lay there already, and were not noted
    retries: int = 0
    slow_downs: int = 0
    width: int = 0
    failed: list[str] = field(default_factory=list)
    failures: int = 0
    in_the_way: int = 0  # of those: a file of the user's, or one that was changed, has the name
    refused: list[str] = field(default_factory=list)
    refusals: int = 0
    began: float = field(default_factory=time.monotonic)
    _count: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def copy(self, size: int) -> int:
        """Count an object that was brought; gives how many those are."""
        with self._count:
            self.copied += 1
            self.copied_bytes += size
            return self.copied

    def keep(self, size: int) -> None:
        """Count an object that was there."""
        with self._count:
            self.kept += 1
            self.kept_bytes += size

    def adopt(self) -> None:
        """Count a file that lay there already, and has the right bytes."""
        with self._count:
            self.adopted += 1

    def change(self) -> None:
        """Count a picture that was changed."""
        with self._count:
            self.changed += 1

    def fail(self, failure: Failure | str) -> None:
        """Count a failure, and name it if there is room."""
        with self._count:
            self.failures += 1
            self.in_the_way += isinstance(failure, InTheWay)
            _name(self.failed, str(failure))

    def refuse(self, text: str) -> None:
        """Count what cannot be a file there."""
        with self._count:
            self.refusals += 1
            _name(self.refused, text)

    def leave_out(self, count: int, names: Sequence[str]) -> None:
        """Count what a listing passed over, and name what there is room for."""
        with self._count:
            self.refusals += count
            for name in names:
                _name(self.refused, name)

    def drop(self, text: str) -> None:
        """Count a picture that cannot be decoded."""
        with self._count:
            self.dropped += 1
            _name(self.dropped_names, text)

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self.began


@dataclass(frozen=True, kw_only=True)
class Summary:
    """How a staging ended; figures are of this staging, ``total_*`` of the destination."""

    source: str
    destination: str
    copied: int
    copied_bytes: int  # read from the source
    changed: int  # pictures among them that were made smaller, or encoded again
    dropped: int  # pictures that cannot be decoded; they were left out
    dropped_names: tuple[str, ...]
    kept: int
    failed: int
    failures: tuple[str, ...]
    in_the_way: int  # of those failed: a file of the user's, or one that was changed, is kept
    refused: int
    refusals: tuple[str, ...]
    gone: int  # staged earlier, no longer in the source
    gone_names: tuple[str, ...]
    pruned: int  # of those: removed at the destination, as asked for
    gone_changed: int  # of those: kept, since they were changed at the destination
    gone_yours: int  # of those: kept, since staging did not write them
    not_pruned: str  # why nothing was removed although that was asked for; empty: there is no reason
    adopted: int  # of those kept: they lay there already with the right bytes, not noted
    verified: dict[str, int]  # files of the destination by what of the store's they were compared with
    seconds: float
    files_per_s: float
    bytes_per_s: float
    retries: int
    slow_downs: int
    most_at_once: int
    total_files: int
    total_bytes: int
    classes: int | None
    manifest: str

    def as_json(self) -> dict[str, object]:
        """As plain values."""
        return asdict(self)
