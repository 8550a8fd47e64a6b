"""Try again, and later, what cannot be had at once: one policy for listings, sizes and bytes.

A request that failed for a passing reason is tried again for ``GIVE_UP_S`` after its first failure, so that a store
that is away for less than that loses nothing. Pauses double up to ``LONGEST_PAUSE_S`` and are drawn from zero up ("full
jitter"): many clients that were turned away together do not come back together. ``Retry-After`` is followed. Bytes
that are not what the store said of them are asked for ``WRONG_TRIES`` times: waiting longer makes them no better.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, TypeVar

from flatout.stage.sources.failures import Failure, Kind

if TYPE_CHECKING:
    from flatout.stage.sources.base import ObjectInfo, Source

GIVE_UP_S = 120.0
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 20.0
LONGEST_ASKED_S = 60.0  # of a Retry-After
WRONG_TRIES = 4
_MISMATCH: tuple[Kind, ...] = ("mismatch",)
LOOK_S = 0.2  # how often a pause looks whether it is to end
Given = TypeVar("Given")


def _nothing(failure: Failure) -> None:
    pass


def _goes_on() -> bool:
    return False


def _usual() -> None:
    return None


def retry(
    action: Callable[[], Given],
    failed: Callable[[Failure], None] = _nothing,
    stopped: Callable[[], bool] = _goes_on,
    give_up_s: Callable[[], float | None] = _usual,
    wrong: Collection[Kind] = _MISMATCH,
) -> Given:
    """What ``action`` gives, which is called again from its beginning while it fails for a passing reason.

    Args:
        action: raises Failure; ``busy`` and ``again`` are tried again.
        failed: called with each failure that another try follows; may raise.
        stopped: True ends pauses and tries.
        give_up_s: gives the seconds after the first failure, asked for at each; it may give None: ``GIVE_UP_S``.
        wrong: kinds of failure that are tried again ``WRONG_TRIES`` times, whatever the time.

    Raises:
        Failure: the last one, when another try is of no use, time is over, or all was stopped.
    """
    tries = of_wrong = 0
    began = 0.0
    while True:
        try:
            return action()
        except Failure as failure:
            now = time.monotonic()
            began = began or now
            budget = give_up_s()
            until = began + (GIVE_UP_S if budget is None else budget)
            tries += 1
            of_wrong += failure.kind in wrong
            if failure.kind not in ("busy", "again", *wrong) or failure.given_up or stopped():
                raise
            if of_wrong == WRONG_TRIES or (now >= until and failure.kind not in wrong):
                last = Failure(failure.kind, f"{failure} (tried {tries} times)", status=failure.status)
                last.given_up = True
                raise last from failure
            failed(failure)
            ends = now + _pause(tries, failure)
            if failure.kind not in wrong:
                ends = min(ends, until)
        while (left := ends - time.monotonic()) > 0 and not stopped():
            time.sleep(min(left, LOOK_S))


def _pause(tries: int, failure: Failure) -> float:
    pause = random.uniform(0, min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(tries, 16)))
    asked = min(failure.retry_after_s or 0.0, LONGEST_ASKED_S)
    return max(pause, asked * random.uniform(1.0, 1.25))


def read_patiently(origin: Source, entry: ObjectInfo, start: int = 0, length: int | None = None) -> bytes:
    """The bytes of an object, or of a range of it; raises Failure as :func:`retry` does."""
    return retry(lambda: origin.read(entry, start, length))
