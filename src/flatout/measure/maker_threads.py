"""Threads of the training process, besides the one that trains, that make its input."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from flatout.measure.samples import Samples, frames_of, stack_samples
from flatout.measure.training import Training
from flatout.probe import events as kinds
from flatout.record import ends, of_kinds
from flatout.record.packed_fields import other_threads_ns

# A thread that waits for work, or for a place in a full queue.
_RESTS = re.compile(r"/(threading|queue|selectors|concurrent/futures/\w+|multiprocessing/\w+)\.py$")


def maker_samples(training: Training, begin_ns: int, finish_ns: int) -> list[Samples]:
    """Stack samples of the other threads of the training process at work inside [begin_ns, finish_ns).

    The probe takes them while the training thread waits for one of them.
    """
    events = training.process.events
    stacks = of_kinds(events, kinds.STACK)
    stacks = stacks[
        (stacks["thread"] != training.thread) & (stacks["start"] >= begin_ns) & (stacks["start"] < finish_ns)
    ]
    found = []
    for thread in np.unique(stacks["thread"]).tolist():
        samples = stack_samples(stacks[stacks["thread"] == thread], training.process.names)
        works = {int(id): _works(frames_of(samples.names, int(id))) for id in np.unique(samples.stack)}
        found.append(samples.take(np.array([works[id] for id in samples.stack.tolist()], bool)))
    return [samples for samples in found if len(samples)]


def holder_samples(training: Training, begin_ns: int, finish_ns: int) -> Samples:
    """Stack samples of the threads that keep the interpreter lock inside [begin_ns, finish_ns)."""
    looks = training.kind(kinds.LOCK)
    looks = looks[(looks["start"] >= begin_ns) & (ends(looks) <= finish_ns) & (looks["arg"] > 0)]
    kept_ns = other_threads_ns(looks).astype(float)
    return Samples(
        ends(looks), kept_ns, looks["arg"].astype(np.int64), np.zeros(len(looks), np.int64), training.process.names
    )


def _works(frames: Sequence[Sequence[Any]]) -> bool:
    return bool(frames) and not _RESTS.search(str(frames[0][0]).replace("\\", "/"))
