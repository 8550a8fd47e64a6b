"""Costs from a foreign log: its epochs and steps, and nothing of what it does not time."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from flatout.errors import UsageError
from flatout.logs.facts import EpochTime
from flatout.logs.reading import read_file
from flatout.logs.throughput import COLD, cold_start, measured_epochs, steps_of_epoch
from flatout.plans.costs import Costs
from flatout.units import duration


def costs_of_log(file: Path, steps_per_epoch: int | None = None) -> Costs:
    """Read what a log timed.

    Raises:
        UsageError: it is no log, or times no epoch and no steps; how many steps an epoch has is not known.
    """
    facts = read_file(file, file.name)
    epochs = [one for one in measured_epochs(facts) if one.of != "text"] or measured_epochs(facts)
    if not epochs:
        raise UsageError(f"{file}: times neither epochs nor steps: record the command with flatout profile")
    known, _ = steps_of_epoch(facts, epochs[0])
    steps = steps_per_epoch or (round(known) if known else None)
    whole = [one for one in epochs if one.complete and one.seconds]
    if not steps and not whole:
        raise UsageError(f"{file}: does not say how many steps an epoch has: give --steps-per-epoch")
    steps = steps or 1
    cold = cold_start(epochs)
    notes = ["start-up and the time after the last epoch: not measured, because a log does not time them"]
    if all(one.of == "text" for one in epochs):
        notes.append("validation and checkpoints: counted only as far as the log's epochs hold them")
    else:
        notes.append("validation and checkpoints: not measured, because the log times the steps alone")
    used, extra_s = whole or epochs[-1:], 0.0
    if cold is not None and cold.ratio >= COLD:
        used, extra_s = whole[1:], cold.first_s - cold.warm_s
        notes.append(f"the first epoch took {duration(extra_s)} longer than the later ones: counted once")
    elif len(whole) <= 1:
        notes.append("later epochs: not measured; each is taken to be as slow as what was seen of the first")
    blocks = [block for one in used for block in _steps_s(one, steps)]
    between = np.zeros(1) if all(one.of == "text" for one in epochs) else np.zeros(0)
    return Costs(
        startup_s=None,
        steps=steps,
        blocks_s=np.array(blocks),
        between_s=between,
        first_extra_s=extra_s,
        notes=tuple(notes),
    )


def _steps_s(one: EpochTime, steps: int) -> tuple[float, ...]:
    """Mean steps of an epoch's parts, scaled so that together they last as long as the epoch."""
    mean_s = (one.seconds or 0.0) / (one.steps or steps)
    if len(one.blocks) < 2:
        return (mean_s,)
    scale = mean_s / (sum(one.blocks) / len(one.blocks))
    return tuple(block * scale for block in one.blocks if block > 0)
