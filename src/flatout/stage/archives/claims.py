"""Detects name collisions between objects and the files of unpacked archives."""

from __future__ import annotations

import threading

from flatout.stage.destination.state import State

MARK = "!"  # between the version of an archive and its key, in the version of its files


def archive_of(version: str) -> str | None:
    """The key of the archive that a file comes from; None if it is not from an archive."""
    return version.partition(MARK)[2] or None


class Claims:
    """The names assigned by this listing.

    Attributes:
        lock: held from the look-up of a name's owner until the new owner is recorded.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self.lock = threading.Lock()

    def other(self, key: str, version: str, listing: int) -> str | None:
        """The other owner of a name in this listing, as text for a message; None if there is no other owner.

        Args:
            key: the name.
            version: of the object or archive that wants it, as recorded.
            listing: the listing's number.
        """
        known = self._state.known(key)
        if known is None:
            return None
        holder = archive_of(known.version)
        if holder == archive_of(version) or self._state.seen(key) != listing:
            return None
        return f"the file of {holder}" if holder else "an object of that name"
