"""Validation and checkpoints within runs: of two runs of the same time, the faster one may hold one more of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flatout.measure.timeline import Accrual, Pieces, union
from flatout.measure.training import Training
from flatout.measure.validation import validation_regions
from flatout.probe import events as kinds
from flatout.record import ends

VALIDATION, CHECKPOINT = "validation", "checkpoint"  # accounts of the ledger


@dataclass(frozen=True)
class Pauses:
    """Those of one account in the part of a run that counts.

    Attributes:
        count: that ended in it.
        whole_s: seconds of these.
        cut_s: seconds of one that had not ended.
        in_steps_s: seconds of each step that lie in one.
    """

    count: int
    whole_s: float
    cut_s: float
    in_steps_s: NDArray[np.float64]

    @property
    def seconds(self) -> float:
        """Of all."""
        return self.whole_s + self.cut_s


def pauses(training: Training, first: int) -> Mapping[str, Pauses]:
    """By account.

    Args:
        training: of the run.
        first: step of the window with which the counted part begins.
    """
    steps, chosen = training.steps, training.in_window
    start = steps.start_ns[chosen][first:]
    end = start + (steps.duration_s[chosen][first:] * 1e9).astype(np.int64)
    begin_ns, finish_ns = int(start[0]) if first else training.window_begin_ns, training.window_end_ns
    saved = training.kind(kinds.CHECKPOINT)
    told, seen = training.kind(kinds.VALIDATION), validation_regions(training)
    validations = union(np.append(told["start"], seen.start), np.append(ends(told), seen.end))
    # What validation saves is a part of it.
    saved = saved[validations.at(saved["start"]) < 0]
    found = {VALIDATION: validations, CHECKPOINT: union(saved["start"], ends(saved))}
    return {name: _within(pieces, begin_ns, finish_ns, start, end) for name, pieces in found.items()}


def _within(pieces: Pieces, begin_ns: int, finish_ns: int, start: NDArray[np.int64], end: NDArray[np.int64]) -> Pauses:
    inside = union(np.clip(pieces.start, begin_ns, finish_ns), np.clip(pieces.end, begin_ns, finish_ns))
    # One that goes on at the end of the window is cut there.
    goes_on = bool(np.any((pieces.start < finish_ns) & (pieces.end > finish_ns)))
    lengths = inside.length / 1e9
    cut_s = float(lengths[-1]) if goes_on and len(lengths) else 0.0
    in_steps_s = Accrual(inside).between(start, end) / 1e9
    return Pauses(len(lengths) - goes_on, float(lengths.sum()) - cut_s, cut_s, np.asarray(in_steps_s, np.float64))
