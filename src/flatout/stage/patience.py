"""Try again, and later, where a store cannot give something at once."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from flatout.stage.failures import Failure
from flatout.stage.origins import Entry, Origin

TRIES = 6
FIRST_PAUSE_S = 0.1
Given = TypeVar("Given")


def patiently(action: Callable[[], Given], failed: Callable[[Failure], None] = lambda failure: None) -> Given:
    """What ``action`` gives; pauses double from try to try, with jitter.

    Args:
        action: is called again from its beginning.
        failed: called with each failure that another try follows; may raise.

    Raises:
        Failure: ``TRIES`` tries failed, or another try is of no use.
    """
    for left in range(TRIES - 1, -1, -1):
        try:
            return action()
        except Failure as failure:
            if not left or failure.kind not in ("busy", "again"):
                raise
            failed(failure)
        time.sleep(FIRST_PAUSE_S * 2 ** (TRIES - 1 - left) * random.uniform(0.5, 1))
    raise AssertionError("unreachable")


def read_patiently(origin: Origin, entry: Entry, start: int = 0, length: int | None = None) -> bytes:
    """The bytes of an object, or of a range of it; raises Failure as :func:`patiently` does."""
    return patiently(lambda: origin.read(entry, start, length))
