"""What the parts of a training cost, as one recording measured them; None stands for what it did not measure."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from flatout.compare.steady import warm_up
from flatout.errors import UsageError
from flatout.measure.thresholds import LEAST_STEPS, MATERIAL_SHARE, NOISE_SHARE
from flatout.measure.timeline import Floats
from flatout.plans.timeline import Timeline
from flatout.units import duration, percent

MOST_BLOCKS = 20


@dataclass(frozen=True)
class Costs:
    """Seconds of the parts of a training.

    Attributes:
        startup_s: of the command, up to the end of its first step.
        steps: of one epoch.
        blocks_s: mean step of consecutive parts of the recording, their waits included; warm steps only.
        between_s: what each recorded epoch took beside its steps: validation, checkpoint, the next pass's start.
        first_extra_s: what the first epoch took longer, once: cold files, warming up.
        ending_s: after the last step, its validation and checkpoint included.
        fold_start_s: what each further fold takes before its first step ends.
        queued: share of the recording in which the training waited for a core; None: not measured.
        notes: what was not measured, and what was assumed instead.
    """

    startup_s: float | None
    steps: int
    blocks_s: Floats
    between_s: Floats = field(default_factory=lambda: np.zeros(0))
    first_extra_s: float = 0.0
    ending_s: float | None = None
    fold_start_s: float | None = None
    queued: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def step_s(self) -> float:
        """Mean of a warm step."""
        return float(self.blocks_s.mean())


def measure_costs(timeline: Timeline, steps_per_epoch: int | None = None, *, source: str = "the record") -> Costs:
    """Divide a recorded training into the parts that a plan repeats.

    The first step of a pass also waits for its loader to start: what it takes longer than the usual step belongs
    between the epochs.

    Args:
        timeline: of the recording.
        steps_per_epoch: None: those of the first whole epoch, or what the loader's settings say.
        source: what is planned from, for messages.

    Raises:
        UsageError: how many steps an epoch has is not known, or fewer than LEAST_STEPS steps were recorded.
    """
    counted = np.bincount(timeline.epoch)
    whole = counted[:-1] if timeline.finish_s is None else counted
    notes = []
    if timeline.by_validation and steps_per_epoch is None:
        notes.append("epochs: no DataLoader fed the steps, so each is taken to last from one validation to the next")
    if steps_per_epoch is not None and (len(counted) <= 1 or timeline.by_validation):
        timeline = timeline.in_epochs_of(steps_per_epoch)
        counted = np.bincount(timeline.epoch)
    known = int(np.median(whole)) if len(whole) else timeline.steps_per_epoch
    steps = steps_per_epoch or known
    if not steps:
        raise UsageError(
            f"{source} holds no whole epoch, so how many steps one has is not known: give --steps-per-epoch, "
            "or record for longer"
        )
    if len(timeline) < LEAST_STEPS:
        raise UsageError(f"{source} holds {len(timeline)} steps, and {LEAST_STEPS} are needed: record for longer")
    begins = np.concatenate(([True], np.diff(timeline.epoch) > 0))
    closes = np.append(begins[1:], True)
    following = np.append(timeline.start_s[1:], timeline.end_s[-1:])
    lasted = np.where(closes, timeline.end_s, following) - timeline.start_s
    inner = ~begins if np.count_nonzero(~begins) >= LEAST_STEPS else np.arange(len(timeline)) > 0
    warm = inner & (timeline.epoch > 0)
    extra_s, chosen = 0.0, lasted[inner]
    if np.count_nonzero(warm) >= max(LEAST_STEPS, min(steps // 2, 50)):
        later_s = float(lasted[warm].mean())
        extra_s = _first_extra(timeline, lasted, later_s)
        if extra_s > NOISE_SHARE * later_s * steps:
            chosen = lasted[warm]
            notes.append(f"the first epoch took {duration(extra_s)} longer than the later ones: counted once")
        else:
            extra_s = 0.0
    else:
        chosen = chosen[warm_up(chosen) :]
        notes.append("later epochs: not measured; each is taken to be as slow as what was seen of the first")
    opens = np.flatnonzero(begins)[1:]
    gaps = timeline.start_s[opens] - timeline.end_s[opens - 1]
    between_s = gaps + np.maximum(lasted[opens] - float(np.median(chosen)), 0.0)
    if not len(between_s):
        notes.append("validation and checkpoints: not measured, because no epoch ended in the recording")
    if timeline.finish_s is None:
        notes.append("the time after the last step: not measured, because the recording ended before")
    if timeline.queued is not None and timeline.queued >= MATERIAL_SHARE:
        notes.append(
            f"other work: the training waited for a core {percent(timeline.queued)} of the time; as much is assumed "
            "later, and the interval is wider"
        )
    return Costs(
        startup_s=float(timeline.end_s[0]),
        steps=steps,
        blocks_s=_blocks(chosen),
        between_s=between_s,
        first_extra_s=extra_s,
        ending_s=None if timeline.finish_s is None else float(timeline.finish_s - timeline.end_s[-1]),
        fold_start_s=timeline.fold_start_s,
        queued=timeline.queued,
        notes=tuple(notes),
    )


def _first_extra(timeline: Timeline, lasted: Floats, usual_s: float) -> float:
    """Seconds that the steps of the first epoch took beyond the usual ones; its first step is of the start-up."""
    first = lasted[1:][timeline.epoch[1:] == 0]
    return float(first.sum()) - len(first) * usual_s


def _blocks(seconds: Floats) -> Floats:
    """Means of at most MOST_BLOCKS consecutive parts."""
    parts = min(len(seconds), MOST_BLOCKS)
    return np.array([part.mean() for part in np.array_split(seconds, parts)])
