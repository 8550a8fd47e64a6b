"""The steps of a training that goes on, as the report tells them, a row each as soon as it is over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from flatout.measure.step_phases import PHASES, step_phases
from flatout.measure.timeline import Floats, Ints
from flatout.measure.training import StepTable, marked
from flatout.probe import events as kinds
from flatout.record import ProcessRecord, ends, no_events, of_kinds

_SIGNS = (kinds.BACKWARD, kinds.OPTIMIZER)  # a batch alone may be followed by a backward pass later
_KINDS = (kinds.BATCH_WAIT, kinds.ITER_START, kinds.FORWARD, kinds.BACKWARD, kinds.OPTIMIZER)
MOST_PENDING = 200_000  # events without a complete step, such as of a long validation


@dataclass(frozen=True)
class StepRows:
    """One row a step, in order of time."""

    start_ns: Ints
    duration_s: Floats
    samples: Ints  # 0: unknown
    epoch: Ints  # from 0 on
    parts: Mapping[str, Floats]  # seconds, by the names of ``PHASES``

    def __len__(self) -> int:
        return len(self.start_ns)


class GrowingSteps:
    """Finds the steps of one process in its events, given a part at a time."""

    def __init__(self) -> None:
        self._pending = no_events()
        self._sign: int | None = None
        self._finished_ns = 0  # end of the work of the last row that was given
        self._epoch = 0  # of it
        self.loader: int | None = None  # name id of the loader that feeds the training

    @property
    def trains(self) -> bool:
        """True once a backward pass or an optimizer step was seen."""
        return self._sign is not None

    def take(self, process: ProcessRecord, *, last: bool = False) -> StepRows:
        """Take in new events of the process; the steps that are complete by now and were not given before.

        A step is complete when the next one has begun, or, with ``last``, when nothing comes any more: then the very
        last one is counted as the report counts it.
        """
        events = np.concatenate((self._pending, of_kinds(process.events, *_KINDS)))
        self._pending = events[-MOST_PENDING:]
        self._sign = next((sign for sign in _SIGNS if sign == self._sign or np.any(events["kind"] == sign)), None)
        if self._sign is None or not np.any(self._pending["kind"] == self._sign):
            return _no_rows()
        found = marked(replace(process, events=self._pending), self._sign)
        steps = found.steps
        over_ns = steps.work_end_ns if last else steps.work_end_ns[:-1]
        fresh = np.flatnonzero(over_ns > self._finished_ns)
        self.loader = found.loaders[0] if found.loaders else self.loader
        if not len(fresh):
            return _no_rows()
        rows = _rows(steps, step_phases(steps, found.events), fresh, self._epoch)
        newest = int(fresh[-1])
        self._finished_ns, self._epoch = int(steps.work_end_ns[newest]), int(rows.epoch[-1])
        # The last row stays, and is found again and left out: without it the next one's begin would not be known.
        kept = self._pending["thread"] == found.thread
        self._pending = self._pending[kept & (ends(self._pending) > steps.start_ns[newest])]
        return rows


def _rows(steps: StepTable, parts: Mapping[str, Floats], chosen: Ints, epoch: int) -> StepRows:
    # The first step in the table is one that was given before, or the very first.
    return StepRows(
        start_ns=steps.start_ns[chosen],
        duration_s=steps.duration_s[chosen],
        samples=steps.samples[chosen],
        epoch=epoch + (steps.epoch[chosen] - steps.epoch[0]),
        parts={name: values[chosen] for name, values in parts.items()},
    )


def _no_rows() -> StepRows:
    none = np.zeros(0)
    counts = none.astype(np.int64)
    return StepRows(counts, none, counts, counts, dict.fromkeys(PHASES, none))
