"""Counts of a staging: while it runs (``Progress``) and once it has ended (``Summary``).

Both name things alike: ``copied`` and the like are numbers of objects, ``n_X`` is a number whose first cases are in
``X_examples``; bytes end in ``_bytes``, seconds in ``_s``, rates in ``_per_s``.
"""

from __future__ import annotations

import threading
import time
from dataclasses import asdict, dataclass, field

from flatout.stage.pace import Pace, Point
from flatout.stage.sources.failures import Failure, InTheWay
from flatout.stage.sources.skipped import LeftOut, Skipped, add_reason

MAX_EXAMPLES = 20


@dataclass
class Progress:
    """Counters of a staging that is running; written by its threads, read by whoever displays them."""

    listed: int = 0
    listed_bytes: int = 0
    listing_done: bool = False
    copied: int = 0
    copied_bytes: int = 0
    kept: int = 0  # complete already
    kept_bytes: int = 0
    adopted: int = 0  # of those kept: present with the right bytes, but not staged by flatout
    changed: int = 0  # pictures that were scaled or re-encoded
    n_dropped: int = 0  # pictures that cannot be decoded; left out
    dropped_examples: list[str] = field(default_factory=list)
    n_failed: int = 0
    failed_examples: list[str] = field(default_factory=list)
    in_the_way: int = 0  # of those failed: the user's own or a changed file has the name
    n_refused: int = 0  # cannot be files at the destination; left out
    refused_examples: list[str] = field(default_factory=list)
    refused_reasons: dict[str, LeftOut] = field(default_factory=dict)
    retries: int = 0
    slow_downs: int = 0
    concurrency: int = 0  # transfers that may run now
    pace: Pace = field(default_factory=Pace)
    began: float = field(default_factory=time.monotonic)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def copy(self, size: int) -> int:
        """Count a transferred object of ``size`` bytes; returns how many there are now."""
        with self._lock:
            self.copied += 1
            self.copied_bytes += size
            # Here, since the threads that transfer may leave whoever watches waiting for seconds.
            if self.pace.due(at_s := self.duration_s):
                counts = self.copied, self.copied_bytes, self.concurrency, self.retries, self.n_failed
                self.pace.add(Point(at_s, *counts))
            return self.copied

    def keep(self, size: int) -> None:
        """Count an object of ``size`` bytes that was complete already."""
        with self._lock:
            self.kept += 1
            self.kept_bytes += size

    def adopt(self) -> None:
        """Count a file that flatout did not stage and that has the right bytes."""
        with self._lock:
            self.adopted += 1

    def change(self) -> None:
        """Count a picture that was scaled or re-encoded."""
        with self._lock:
            self.changed += 1

    def fail(self, failure: Failure | str) -> None:
        """Count a failed object."""
        with self._lock:
            self.n_failed += 1
            self.in_the_way += isinstance(failure, InTheWay)
            _add_example(self.failed_examples, str(failure))

    def refuse(self, name: str, why: str) -> None:
        """Count a key that cannot be a file at the destination."""
        with self._lock:
            self.n_refused += 1
            _add_example(self.refused_examples, f"{name}: {why}")
            add_reason(self.refused_reasons, why, name)

    def refuse_all(self, skipped: Skipped) -> None:
        """Count the items that a listing skipped."""
        with self._lock:
            self.n_refused += skipped.count
            for text in skipped.names:
                _add_example(self.refused_examples, text)
            for why, left_out in skipped.reasons.items():
                add_reason(self.refused_reasons, why, left_out.example, left_out.count)

    def drop(self, text: str) -> None:
        """Count a picture that cannot be decoded."""
        with self._lock:
            self.n_dropped += 1
            _add_example(self.dropped_examples, text)

    @property
    def duration_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.began


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The result of one staging; ``total_files`` and ``total_bytes`` are of the whole destination."""

    source: str
    destination: str
    copied: int
    copied_bytes: int  # read from the source
    kept: int
    adopted: int
    changed: int
    n_dropped: int
    dropped_examples: tuple[str, ...]
    n_failed: int
    failed_examples: tuple[str, ...]
    in_the_way: int
    n_refused: int
    refused_examples: tuple[str, ...]
    refused_reasons: dict[str, LeftOut]  # all of them, by the reason
    n_gone: int  # staged earlier, no longer in the source
    gone_examples: tuple[str, ...]
    pruned: int  # of those gone: removed at the destination, as asked for
    gone_changed: int  # of those gone: kept, because they were changed at the destination
    gone_yours: int  # of those gone: kept, because staging did not write them
    not_pruned: str  # why nothing was removed although that was requested; empty: there is no reason
    verified: dict[str, int]  # files at the destination by what of the store's they were compared with
    duration_s: float
    files_per_s: float
    bytes_per_s: float
    retries: int
    slow_downs: int
    peak_concurrency: int
    total_files: int
    total_bytes: int
    classes: int | None
    manifest: str

    def as_json(self) -> dict[str, object]:
        """Plain values for ``--json``."""
        return asdict(self)


def _add_example(examples: list[str], text: str) -> None:
    if len(examples) < MAX_EXAMPLES:
        examples.append(text)
