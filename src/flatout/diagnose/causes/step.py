"""Causes inside a step: what keeps forward, backward and optimizer from computing."""

from __future__ import annotations

from flatout.diagnose.cause import NO_STEP, Found, Lacks, cause
from flatout.diagnose.evidence import hottest, place
from flatout.measure.thresholds import NOISE_SHARE
from flatout.predict.context import Context
from flatout.results import Cause, Evidence
from flatout.units import percent


def _waits_for_lock(context: Context, found: Cause) -> str:
    lock = context.run.lock
    if lock is None or isinstance(lock, str):
        return found.title
    at = f" ({place(lock.lines[0])})" if lock.lines else ""
    return (
        f"The training thread waits {percent(found.share)} of the time for Python's interpreter lock, "
        f"which {lock.holder} holds{at}."
    )


@cause("training", sentence=_waits_for_lock)
def interpreter_lock(context: Context) -> Found | Lacks | None:
    """Another Python thread of the training process holds the interpreter lock, and the training thread waits."""
    run, lock = context.run, context.run.lock
    if lock is None:
        return None
    if isinstance(lock, str):
        return Lacks(lock)
    if context.fitted is None:
        return Lacks(NO_STEP)
    share = lock.share
    if run.uses_gpu is not False and run.usage.device_busy_share is not None:
        share = min(share, 1.0 - run.usage.device_busy_share)  # a wait that the GPU does not notice costs nothing
    # The workers have interpreter locks of their own: their fetches take as long as before.
    share = min(share, context.fitted.now.spare_share)
    if share < NOISE_SHARE:
        return None
    return Found(
        title=f"{lock.holder} holds Python's interpreter lock, which the training thread waits for",
        share=share,
        confidence=0.8,
        evidence=(
            Evidence(
                f"the training thread waits {percent(lock.share)} of the time for the lock; "
                f"the process's other Python threads use {lock.other_cores:.2g} cores",
                {"lock_wait": lock.share, "other_threads_cores": lock.other_cores, "thread": lock.thread},
            ),
            *hottest(lock.lines, 3),
        ),
    )
