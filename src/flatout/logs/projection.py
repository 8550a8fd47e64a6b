"""When a run will end, from the epochs or steps that a log has measured so far."""

from __future__ import annotations

import math
import re
import statistics
from dataclasses import dataclass

from flatout.logs.claims.rates import reached
from flatout.logs.facts import EpochTime, FileFacts
from flatout.logs.observations import Source
from flatout.logs.throughput import COLD, measured_epochs
from flatout.units import counted, short

# Student's t, two-sided 90%, by degrees of freedom; beyond the last the normal value serves.
_T90 = (6.31, 2.92, 2.35, 2.13, 2.02, 1.94, 1.89, 1.86, 1.83, 1.81, 1.80, 1.78, 1.77, 1.76, 1.75)
_NORMAL90 = 1.645
_AFTER = re.compile(r"(?i)\bafter (\d{1,6}) epochs\b")
WARM = 4  # times as long as later ones, as first epochs from remote storage took (1 to 4)
LEAST_SPREAD = 0.02  # of a mean: clocks of whole seconds and what a log leaves out (saving, starting)


@dataclass(frozen=True)
class Projection:
    """A predicted time to the end.

    Attributes:
        remaining_s: Predicted time left when the log ends.
        low_s: Lower end of the 90% interval.
        high_s: Its upper end.
        total_s: Time of all, from the start of the first epoch.
        basis: What it rests on.
        source: Where the log says how much there is to do.
    """

    remaining_s: float
    low_s: float
    high_s: float
    total_s: float
    basis: str
    source: Source


def project(facts: FileFacts) -> Projection | None:
    """Predict the end; None: the run is over, or the log does not say how much there is to do."""
    planned = _planned(facts)
    told = next((found for one in facts.statements if (found := reached(one)) is not None), None)
    if told is not None and planned is not None:
        line, seconds, done = told
        return _from_mean(
            seconds / done, done, planned[0], seconds, f"{seconds:.0f} s for {done:.0f} epochs", line.source
        )
    epochs = [one for one in measured_epochs(facts) if one.of != "text"] or measured_epochs(facts)
    if not epochs:
        return None
    whole = [one for one in epochs if one.complete]
    open_one = epochs[-1] if not epochs[-1].complete else None
    if open_one is None and planned is None:
        return None
    if not whole and len(epochs) > 1:
        return None  # several epochs, none seen to its end
    if not whole:
        return _from_steps(open_one or epochs[-1], planned)
    if planned is None or planned[0] <= _told_done(facts):
        return None
    return _from_epochs(whole, open_one, _validation(facts, whole), *planned)


def _validation(facts: FileFacts, whole: list[EpochTime]) -> float:
    """Mean seconds of validation that come with an epoch and are not in its time; 0.0: not seen after most."""
    if whole[0].of != "progress bar" or len(facts.validation_s) < max(len(whole) - 1, 1):
        return 0.0
    return statistics.fmean(facts.validation_s) * min(len(facts.validation_s) / len(whole), 1.0)


def _planned(facts: FileFacts) -> tuple[float, Source] | None:
    """Epochs of all folds, and the line that says so."""
    epochs = facts.setting("epochs")
    if epochs is None or any(one.labels.get("of") == "over" for one in facts.totals):
        return None
    folds = max((one.value for one in facts.settings.get("folds", ())), default=1.0)
    return epochs.value * folds, epochs.source


def _told_done(facts: FileFacts) -> float:
    """Of "After 10 epochs: ...": as many are over, whether or not the text shows them all."""
    told = [float(found[1]) for one in facts.statements if (found := _AFTER.search(one.said))]
    return max(told, default=0.0)


def _from_epochs(
    whole: list[EpochTime], open_one: EpochTime | None, validation_s: float, planned: float, source: Source
) -> Projection | None:
    """The later epochs are like those so far; a cold first one is left out of the mean."""
    seconds = [one.whole_s for one in whole]
    numbers = [one.epoch for one in whole if one.epoch is not None]
    counted_to = numbers[-1] + (min(numbers) == 0) if numbers else 0.0
    left = planned - max(len(whole), counted_to)
    spent = sum(seconds) + validation_s * len(whole)
    if open_one is not None and open_one.steps and open_one.total:
        left -= open_one.done / open_one.total
        spent += open_one.whole_s
    if left <= 0:
        return None
    cold = len(seconds) > 1 and seconds[0] > COLD * statistics.median(seconds[1:])
    used = seconds[1:] if cold else seconds
    mean = statistics.fmean(used)
    basis = f"{counted(len(used), 'epoch')} of {short(mean)} s"
    basis += ", the cold first one left out" if cold else ""
    basis += f", and {short(validation_s)} s of validation after each" if validation_s else ""
    if len(used) >= 2:
        spread = statistics.stdev(used)
        half = _t90(len(used) - 1) * spread * math.sqrt(left + left**2 / len(used))
    else:
        blocks = whole[-1].blocks
        relative = _block_error(blocks) if len(blocks) >= 4 else 0.1
        half = max(relative, 0.05) * mean * left
        basis += "; one epoch alone says little of the next"
    remaining = (mean + validation_s) * left
    half = max(half, LEAST_SPREAD * remaining, 0.5 * math.sqrt(left))
    return Projection(
        remaining, max(remaining - half, 0.5 * remaining), remaining + half, spent + remaining, basis, source
    )


def _from_steps(one: EpochTime, planned: tuple[float, Source] | None) -> Projection | None:
    """Within the first epoch, or a bar over all steps: from the parts measured so far."""
    if not (one.total and one.steps and one.seconds) or one.total > 1e12:
        return None
    if planned is None and one.epoch is not None and one.of == "step lines":
        return None  # the end of this epoch need not be the end
    by_epoch = planned is not None and (one.epoch is not None or one.of == "step lines")
    steps = one.total * (planned[0] if planned is not None and by_epoch else 1.0)
    left = steps - one.done
    if left <= 0:
        return None
    blocks = one.blocks
    if len(blocks) > 4 and blocks[0] > COLD * statistics.median(blocks):
        blocks = blocks[1:]
    mean = statistics.fmean(blocks) if len(blocks) >= 3 else one.seconds / one.steps
    relative = max(_block_error(blocks) if len(blocks) >= 3 else 0.1, LEAST_SPREAD)
    remaining = mean * left
    basis = f"{one.done:,.0f} of {steps:,.0f} steps so far, {short(mean)} s each"
    basis += f"; the first {one.begin:,.0f} have no time" if one.begin else ""
    source = planned[1] if planned else one.source
    low = remaining * max(1 - relative, 0.5)
    if steps > one.total:
        # The first epoch alone: with warm caches the later ones may be several times as fast.
        later = steps - one.total
        low = min(low, mean * (one.total - one.done + later / WARM))
        basis += f"; the later epochs may be up to {WARM} times as fast, if this one is cold"
    return Projection(remaining, low, remaining * (1 + relative), remaining + one.whole_s, basis, source)


def _from_mean(
    epoch_s: float, done: float, planned: float, spent: float, basis: str, source: Source
) -> Projection | None:
    left = planned - done
    if left <= 0:
        return None
    remaining = epoch_s * left
    # One mean of n epochs with no scatter known: 10% for one, less by the root of n.
    half = remaining * max(0.1 / math.sqrt(done), LEAST_SPREAD)
    return Projection(remaining, remaining - half, remaining + half, spent + remaining, basis, source)


def _block_error(blocks: tuple[float, ...]) -> float:
    """Relative half width of the 90% interval of what comes, from parts that may drift: no root of n is taken."""
    mean = statistics.fmean(blocks)
    return _t90(len(blocks) - 1) * statistics.stdev(blocks) / mean / math.sqrt(min(len(blocks), 4))


def _t90(freedom: int) -> float:
    return _T90[freedom - 1] if freedom <= len(_T90) else _NORMAL90
