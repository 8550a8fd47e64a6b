"""Read one object, again and later where the store cannot give it at once."""

from __future__ import annotations

import random
import time

from flatout.stage.failures import Failure
from flatout.stage.origins import Entry, Origin

TRIES = 6
FIRST_PAUSE_S = 0.1


def read_patiently(origin: Origin, entry: Entry, start: int = 0, length: int | None = None) -> bytes:
    """The bytes of an object, or of a range; pauses double from try to try, with jitter.

    Raises:
        Failure: it could not be read in ``TRIES`` tries, or another try is of no use.
    """
    for left in range(TRIES - 1, -1, -1):
        try:
            return bytes(origin.read(entry, start, length))
        except Failure as error:
            if not left or error.kind not in ("busy", "again"):
                raise
        time.sleep(FIRST_PAUSE_S * 2 ** (TRIES - 1 - left) * random.uniform(0.5, 1))
    raise AssertionError("unreachable")
