"""The one retry policy of staging: listings, sizes, objects, their parts, packing and the loader all use it.

A transient failure is retried for ``GIVE_UP_S`` after the first one, so a store that is away for less loses nothing.
Pauses grow exponentially up to ``LONGEST_PAUSE_S`` with full jitter (drawn from zero up), so that clients turned away
together do not return together (M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015).
``Retry-After`` is honoured. Wrong bytes are read at most ``WRONG_TRIES`` times: waiting does not repair them.
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
NEVER_ANSWERED_S = 10.0  # the budget for a server that has not answered once: its address may be mistyped
WRONG_TRIES = 4
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 20.0
LONGEST_RETRY_AFTER_S = 60.0
CHECK_STOPPED_S = 0.2  # interval at which a pause checks whether to end
_TRANSIENT: tuple[Kind, ...] = ("busy", "again")
_WRONG: tuple[Kind, ...] = ("mismatch",)
Result = TypeVar("Result")


def with_retries(
    action: Callable[[], Result],
    on_failure: Callable[[Failure], None] = lambda failure: None,
    stopped: Callable[[], bool] = lambda: False,
    give_up_s: Callable[[], float] = lambda: GIVE_UP_S,
    wrong: Collection[Kind] = _WRONG,
) -> Result:
    """Call ``action`` until it succeeds, fails for good, or the time is up; returns its result.

    Args:
        action: raises Failure; the kinds ``busy`` and ``again`` are transient.
        on_failure: called with each failure that is followed by another try; may raise.
        stopped: True ends pauses and tries.
        give_up_s: seconds after the first failure; called at each failure.
        wrong: kinds that are tried at most ``WRONG_TRIES`` times, however long that takes.

    Raises:
        Failure: the last one. ``given_up`` is set when time or tries ran out, so an outer call does not start again.
    """
    tries = wrong_tries = 0
    first_failure: float | None = None
    while True:
        try:
            return action()
        except Failure as failure:
            now = time.monotonic()
            first_failure = now if first_failure is None else first_failure
            deadline = first_failure + give_up_s()
            is_wrong = failure.kind in wrong
            tries += 1
            wrong_tries += is_wrong
            if failure.given_up or stopped() or not (is_wrong or failure.kind in _TRANSIENT):
                raise
            if wrong_tries == WRONG_TRIES or (now >= deadline and not is_wrong):
                last = Failure(failure.kind, f"{failure} (tried {tries} times)", status=failure.status)
                last.given_up = True
                raise last from failure
            on_failure(failure)
            pause_ends = now + _pause_s(tries, failure)
            if not is_wrong:
                pause_ends = min(pause_ends, deadline)
        while (left := pause_ends - time.monotonic()) > 0 and not stopped():
            time.sleep(min(left, CHECK_STOPPED_S))


def retry_budget_s(has_answered: bool) -> float:
    """Seconds of retries, given whether the server has answered once."""
    return GIVE_UP_S if has_answered else NEVER_ANSWERED_S


def _pause_s(tries: int, failure: Failure) -> float:
    pause = random.uniform(0, min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(tries, 16)))
    asked = min(failure.retry_after_s or 0.0, LONGEST_RETRY_AFTER_S)
    return max(pause, asked * random.uniform(1.0, 1.25))


def read_with_retries(source: Source, obj: ObjectInfo, start: int = 0, length: int | None = None) -> bytes:
    """The bytes of an object, or of a range of it; raises Failure as :func:`with_retries` does."""
    return with_retries(lambda: source.read(obj, start, length))
