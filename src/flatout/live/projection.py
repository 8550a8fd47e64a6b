"""When a training will end, predicted from what it has done so far."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from flatout.live.history import History
from flatout.measure.pass_length import steps_of_pass

BLOCKS = 8  # of recent steps: the slowest and the fastest of them bound the prediction
LEAST_STEPS = 2 * BLOCKS


@dataclass(frozen=True)
class Plan:
    """What the user has said about the whole training.

    Attributes:
        epochs: passes over the training data; None: not said.
        deadline_s: seconds after the start of the run; None: there is none.
    """

    epochs: int | None = None
    deadline_s: float | None = None


@dataclass(frozen=True)
class End:
    """A predicted end. Times are ns of CLOCK_MONOTONIC.

    Attributes:
        what: ends: "training", "epoch" or "recording".
        at_ns: predicted; ``low_ns`` to ``high_ns`` is its interval.
        basis: what the prediction rests on, in words.
    """

    what: str
    at_ns: int
    low_ns: int
    high_ns: int
    basis: str


def epoch_steps(history: History) -> int | None:
    """Steps of a pass over the training data; None: not known."""
    if len(history.epochs) > 1:
        return history.epochs[-2][2]
    return steps_of_pass(history.loader, history.world_size or 1)


def predict_end(history: History, plan: Plan) -> End | None:
    """The end of the training where the number of epochs is known, else that of the epoch; None: not known."""
    if not history.epochs or history.ended:
        return None
    each, done = epoch_steps(history), history.epochs[-1][2]
    current = len(history.epochs) - 1
    bounds = history.info.get("bounds") or {}
    if plan.epochs is None and history.first_step_ns is not None and bounds.get("seconds"):
        at_ns = history.first_step_ns + round(bounds["seconds"] * 1e9)
        return End("recording", at_ns, at_ns, at_ns, "--seconds")
    if plan.epochs is None and bounds.get("steps"):
        return _by_steps(history, "recording", bounds["steps"] + 1 - history.steps, "--steps")
    if not each:
        return None
    left = max(each - done, 0)
    if plan.epochs is None:
        return _by_steps(history, "epoch", left, f"{each:,} steps an epoch, without validation")
    lengths = [later[0] - begin for (begin, _, _), later in pairwise(history.epochs)]
    if not lengths:
        left += each * max(plan.epochs - current - 1, 0)
        return _by_steps(history, "training", left, "no epoch is complete yet, so validation is left out")
    warm = lengths[1:] or lengths  # the first one reads cold files
    begin_ns, epochs_left = history.epochs[-1][0], max(plan.epochs - current, 0)
    mean_ns, low_ns, high_ns = (begin_ns + round(epochs_left * one) for one in (fmean(warm), min(warm), max(warm)))
    latest_ns = history.now_ns
    basis = f"{len(warm)} epoch{'s' * (len(warm) > 1)} measured"
    return End("training", max(mean_ns, latest_ns), max(low_ns, latest_ns), max(high_ns, latest_ns), basis)


def _by_steps(history: History, what: str, left: int, basis: str) -> End | None:
    """The end after ``left`` more steps at the recent speed."""
    steps = history.latest()
    if len(steps) < LEAST_STEPS:
        return None
    blocks = [steps[len(steps) * at // BLOCKS : len(steps) * (at + 1) // BLOCKS] for at in range(BLOCKS)]
    means = [fmean(step.duration_s for step in block) for block in blocks]
    from_ns = steps[-1].end_ns
    mean = fmean(step.duration_s for step in steps)
    at_ns, low_ns, high_ns = (from_ns + round(left * one * 1e9) for one in (mean, min(means), max(means)))
    return End(what, at_ns, low_ns, high_ns, basis)
