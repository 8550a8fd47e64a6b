"""A validation in which the recording was stopped: it belongs to the window, and took at least that long."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flatout.measure.forward_calls import evaluation_calls
from flatout.measure.thresholds import MATERIAL_SHARE
from flatout.measure.training import Training
from flatout.probe import events as kinds
from flatout.record import Run


def with_unfinished_validation(run: Run, training: Training) -> Training:
    """The training with a window that ends where the recording was stopped, if that was in a validation.

    Otherwise a window ends with its last complete step: of a validation that takes longer than is waited for, nothing
    would be in it, though it may be most of the recorded time. Only what takes a material part of the window counts.

    Args:
        run: the record.
        training: ``find_training(run)``.
    """
    limit = run.window_end_ns
    if limit is None:
        return training
    least = MATERIAL_SHARE * (limit - training.window_begin_ns)
    events = training.events
    after = (events["start"] >= training.window_end_ns) & (events["start"] < limit)
    of_loader = (events["kind"] == kinds.BATCH_WAIT) & np.isin(events["arg"], training.other_loaders)
    begins = events["start"][after & (of_loader | evaluation_calls(events))]
    trains = after & np.isin(events["kind"], (kinds.BACKWARD, kinds.OPTIMIZER))
    if not len(begins) or np.any(trains) or limit - int(begins[0]) < least:
        return training
    return replace(training, window_end_ns=limit, closed_by_validation=True, unfinished_validation_ns=int(begins[0]))
