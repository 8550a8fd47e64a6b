"""Items that a listing passed over, and folders that it could not read."""

from __future__ import annotations

import threading
from dataclasses import dataclass

NAMED_AT_MOST = 20


@dataclass(frozen=True)
class LeftOut:
    """The items that were left out for one reason."""

    count: int
    example: str  # the first one


def add_reason(reasons: dict[str, LeftOut], why: str, example: str, count: int = 1) -> None:
    """Count items under their reason."""
    known = reasons.get(why, LeftOut(0, example))
    reasons[why] = LeftOut(known.count + count, known.example)


class Skipped:
    """Filled by the thread that lists, read by others.

    Attributes:
        count: number of items that hold no data: dangling or circular links, sockets, folders that vanished.
        names: the first of them, each with the reason.
        reasons: all reasons, each with the number of items and the first one.
        unreadable: folders and keys that could not be listed, each with the reason: wanted data is missing.
    """

    def __init__(self) -> None:
        """Start empty."""
        self.count = 0
        self.names: list[str] = []
        self.reasons: dict[str, LeftOut] = {}
        self.unreadable: dict[str, str] = {}
        self._adding = threading.Lock()

    def add(self, key: str, why: str) -> None:
        """Count an item that holds no data."""
        with self._adding:
            self.count += 1
            if len(self.names) < NAMED_AT_MOST:
                self.names.append(f"{key!r}: {why}")
            add_reason(self.reasons, why, repr(key))

    def fail(self, folder: str, why: str) -> None:
        """Record a folder or a key whose data are missing from the listing."""
        with self._adding:
            self.unreadable[folder] = why

    def clear(self) -> None:
        """Reset for a new listing."""
        with self._adding:
            self.count = 0
            self.names.clear()
            self.reasons.clear()
            self.unreadable.clear()

    def hides(self, key: str) -> bool:
        """True if a key, or a folder above it, could not be listed: it may still be in the source."""
        return key in self.unreadable or any(not folder or key.startswith(f"{folder}/") for folder in self.unreadable)
