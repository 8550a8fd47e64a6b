"""The passes over the training loader, each with its own shares."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flatout.measure.account_ids import CODE, IMPORTS
from flatout.measure.accounts import Charged
from flatout.measure.loader_processes import LoaderProcesses
from flatout.measure.pass_length import declared_steps
from flatout.measure.thresholds import MATERIAL_SHARE
from flatout.measure.training import Training
from flatout.probe import events as kinds
from flatout.results import Epoch

WARMER = 1 / 3  # a pass that waits for at most a third of the first one's wait
FEW = 50  # passes that are each examined


def build_epochs(training: Training, charged: Charged, side: LoaderProcesses | None) -> tuple[Epoch, ...]:
    """One entry a pass that trained, from its beginning to the next one's; the first one begins in the start-up.

    Passes over the training loader that trained nothing (an evaluation on training data) are not epochs.
    """
    steps = training.steps
    ended = training.kind(kinds.ITER_END)
    ended = ended["start"][ended["arg"] == training.loader] if training.loader is not None else ended["start"][:0]
    trained = np.unique(steps.epoch).tolist() if len(training.pass_starts) else []
    edges = [int(training.pass_starts[number]) for number in trained] + [training.window_end_ns]
    epochs, spans = [], []
    usual = declared_steps(training) if len(trained) == 1 else None  # steps of the pass before
    for index, number in enumerate(trained):
        begin, end = edges[index], min(edges[index + 1], training.window_end_ns)
        if end <= begin:
            continue
        mine = (steps.epoch == number) & (steps.work_end_ns <= training.window_end_ns)
        last = index + 1 == len(trained) or edges[index + 1] > training.window_end_ns
        last_step = int(steps.work_end_ns[steps.epoch == number].max())
        exhausted = bool(np.any(ended >= steps.start_ns[steps.epoch == number].max()))
        # Some frameworks count the batches and never ask for one more: their last pass has no end in the record.
        as_long = usual is not None and int(np.count_nonzero(steps.epoch == number)) >= usual
        closed = exhausted or as_long or training.closed_by_validation
        whole = not last or (last_step <= training.window_end_ns and closed)
        usual = int(np.count_nonzero(mine))
        seconds = charged.seconds(begin, end)
        length = (end - begin) / 1e9
        seconds[CODE["host_other"]] += seconds[IMPORTS]
        spans.append((begin, end))
        reads_data = side is None or not side.reads_nothing(begin, end)
        epochs.append(
            Epoch(
                index=index,
                seconds=length,
                steps=int(np.count_nonzero(mine)),
                samples=int(steps.samples[mine].sum()),
                cold=side.cold(begin, end) if side and reads_data else None,
                complete=whole,
                shares={id: float(seconds[code]) / length for id, code in CODE.items() if seconds[code] > 0},
                reads_data=reads_data,
            )
        )
    reads = side is not None and side.reads_data and len(epochs) > 1
    waits_s = [side.reading_s(begin, end) if side and reads else None for begin, end in spans[:FEW]]
    return _tell_cold(epochs, waits_s)


def _tell_cold(epochs: list[Epoch], waits_s: list[float | None]) -> tuple[Epoch, ...]:
    """Call the first pass cold where later ones hardly wait for the reads that it waited for.

    The kernel's counters see neither FUSE file systems nor sockets: a set that is downloaded once, or cached by the
    mount, shows only in the time that a sample waits in reads.
    """
    later = [wait for wait in waits_s[1:] if wait is not None]
    if not epochs or epochs[0].cold or not later or waits_s[0] is None or not epochs[0].samples:
        return tuple(epochs)
    material = waits_s[0] * epochs[0].samples >= MATERIAL_SHARE * epochs[0].seconds
    if not material or float(np.median(later)) > WARMER * waits_s[0]:
        return tuple(epochs)
    return (replace(epochs[0], cold=True), *(replace(epoch, cold=False) for epoch in epochs[1:]))
