"""Workers that the DataLoader of a validation starts anew for each pass, while the training waits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flatout.measure.timeline import union
from flatout.measure.training import Training
from flatout.measure.worker_records import loader_settings, worker_count
from flatout.probe import events as kinds
from flatout.record import ends
from flatout.record.packed_fields import batch_grad


@dataclass(frozen=True)
class ValidationWorkers:
    """Starts in the window, but for the first of each loader.

    Attributes:
        passes: that started workers.
        seconds: starting and ending them takes.
        first_waits_s: for the first batch of such a pass: for new workers to be ready, and for its fetch.
        workers: of each pass, on average.
        rebuilt: the DataLoaders themselves are made anew.
        without_gradients: its passes begin so, as the setting ``validation_workers_kept`` needs.
    """

    passes: int
    seconds: float
    first_waits_s: float
    workers: float
    rebuilt: bool
    without_gradients: bool


def validation_workers(training: Training) -> ValidationWorkers | None:
    """None where the validation has no DataLoader, or one that starts no workers again."""
    events = training.events
    spans, started, rebuilt, without, first_waits_ns = [], [], [], [], 0
    for loader in training.other_loaders:
        settings, workers = loader_settings(training, loader), worker_count(training, loader)
        if not workers or settings.get("persistent_workers"):
            continue
        own = events[np.isin(events["kind"], (kinds.ITER_START, kinds.ITER_END)) & (events["arg"] == loader)]
        starts = own["start"][own["kind"] == kinds.ITER_START]
        again = own[own["start"] > starts[0]] if len(starts) else own[:0]
        inside = (again["start"] >= training.window_begin_ns) & (ends(again) <= training.window_end_ns)
        again = again[inside]
        begun = again["start"][again["kind"] == kinds.ITER_START]
        passes = len(begun)
        if passes:
            waits = events[(events["kind"] == kinds.BATCH_WAIT) & (events["arg"] == loader)]
            first = np.searchsorted(waits["start"], begun)
            without.append(not batch_grad(waits).any())
            first_waits_ns += int(waits["duration"][first[first < len(waits)]].sum())
            spans.append(again)
            started += [workers] * passes
            rebuilt.append(bool(settings.get("rebuilt")))
    if not spans:
        return None
    rows = np.concatenate(spans)
    merged = union(rows["start"], ends(rows))  # ending them is recorded by the iterator and by its workers' end
    seconds = float((merged.end - merged.start).sum() / 1e9)
    return ValidationWorkers(
        len(started), seconds, first_waits_ns / 1e9, float(np.mean(started)), all(rebuilt), all(without)
    )
