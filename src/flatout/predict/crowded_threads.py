"""Fewer intra-op threads where other processes use the cores: an operator ends with the last of its threads."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from flatout.measure.experiments import Tried
from flatout.measure.thresholds import NOISE_SHARE
from flatout.predict.context import Context
from flatout.predict.pipeline import Change
from flatout.predict.step_changes import removed

_MOST_SAVED = 0.96  # of a step: one thread beside a busy machine gave up to 24x


@dataclass(frozen=True)
class FewerThreads:
    """A step with fewer threads, beside the processes that the window met.

    Attributes:
        count: threads.
        part: of a step's own time in the window that goes; 0..1.
        least: at least.
        step_s: seconds of its own part of a step.
        tried: blocks of steps after the window; None: computed from the operators.
    """

    count: int
    part: float
    least: float
    step_s: float
    tried: Tried | None


def fewer_threads(context: Context) -> FewerThreads | None:
    """How long a step takes with fewer threads, where the training thread waits for cores that others use.

    Steps after the window may have met fewer of these processes than those in it, which are more: those with fewer
    threads are compared with the window's. Without such steps, what n threads compute in a step takes one thread n
    times as long, on its part of a core; calls of operators take as long as before.

    Returns:
        The step; None where nothing waits for cores, or a step with fewer threads would not be shorter.
    """
    run, crowding = context.run, context.run.usage.crowding
    now, waits = run.process.threads, crowding is not None and crowding.wait_share >= NOISE_SHARE
    if context.fitted is None or crowding is None or not waits or run.cores is None or not now:
        return None
    step_s = context.model.now.step_s
    if run.uses_gpu is not False or step_s <= 0:
        return None
    tried = {count: one for count, one in run.experiments.of_threads().items() if count < now}
    if tried:
        count = min(tried, key=lambda count: tried[count].changed_s)
        one = tried[count]
        # Beside it, the window's steps may have held more work than those. The training thread waits this share of the
        # time between operators, and in each of them the slowest of its threads does.
        waited = 1.0 - (1.0 - crowding.wait_share) ** (1 + now)
        part = max(min(1.0 - one.changed_s / step_s, waited), one.gain if one.proven else 0.0)
        return _found(count, part, max(one.gain, 0.0), one.changed_s, one)
    operators, left = run.operators, max(run.cores - crowding.outside_cores, 0.0)
    count = max(round(left), 1)
    if isinstance(operators, str) or count >= now or operators.on_device:
        return None
    # A process that computes has as much of a core as any other, at the least.
    share = min(max(left / count, 1.0 / (1.0 + crowding.outside_cores / run.cores)), 1.0)
    changed_s = (operators.launching_s + (now / count - 1.0) * operators.kernels_s) / share
    return _found(count, 1.0 - changed_s / step_s, 0.0, changed_s, None)


def shorter_by(context: Context, part: float) -> Change:
    """The change that takes this part of a step's own time away, and of validation, whose operators wait alike.

    Threads that wait for another one spin, on cores: the CPU time goes, too.
    """
    validation_s = context.run.seconds("validation") / context.model.batches
    return replace(removed(context, part), between_steps_removed_s=part * validation_s)


def _found(count: int, part: float, least: float, step_s: float, tried: Tried | None) -> FewerThreads | None:
    if part < NOISE_SHARE:
        return None
    part = min(part, _MOST_SAVED)
    # One thread may wait longer in the long run: the square root of the factor is certain enough.
    return FewerThreads(count, part, min(least, 1.0 - math.sqrt(1.0 - part)), step_s, tried)
