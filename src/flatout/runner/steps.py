"""Training steps counted during a recording, from the events of one process, as the report counts them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np

from flatout.measure.training import PAIRED_SHARE, are_updates, only_evaluates
from flatout.probe import events as kinds
from flatout.record.events import Events, ends
from flatout.record.growing import EventsTail
from flatout.record.names import read_names

_MARKS = (kinds.BATCH_WAIT, kinds.BACKWARD, kinds.OPTIMIZER)


class StepCounter:
    """Follows one events file.

    A step is a batch of the training loader that a backward pass followed. Without a loader, or where it gave its one
    batch at the beginning, it is an optimizer step, the first one after a backward pass; without an optimizer a
    backward pass.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._tail = EventsTail(path)
        self._waiting: dict[int, bool] = {}  # loader: no backward pass yet since its last batch
        self._followed: Counter[int] = Counter()
        self._votes: Counter[int] = Counter()
        self._latest: int | None = None  # loader of the last batch that no backward pass has followed
        self._last: int | None = None  # loader of the last batch
        self._behind: Counter[int] = Counter()  # backward passes by the loader of the last batch before them
        self._thread: int | None = None
        self._backwards = self._updates = 0
        self._turn = False
        # The window, as in the report: from the end of the first step to the end of the latest one.
        self._begin_ns = self._end_ns = 0
        self._in_first_step = False  # its optimizer step may come
        self._batches: Counter[int] = Counter()  # by loader
        self._passes: dict[int, object] = {}  # loader: batches of a pass, where they were asked for
        self._waited_ns: Counter[int] = Counter()
        self._pending_ns: Counter[int] = Counter()  # waits that no backward pass has followed yet

    def read(self) -> int:
        """Take in what is new; the steps so far, 0 when the file cannot be read."""
        new = self._tail.read()
        self._count(new[np.isin(new["kind"], _MARKS)])
        return self.steps

    @property
    def steps(self) -> int:
        """The steps seen so far."""
        updates = self._updates or self._backwards
        votes = {loader: count for loader, count in self._votes.items() if not self._only_evaluates(loader)}
        if votes:
            loader = max(votes, key=lambda loader: votes[loader])
            batches = self._followed[loader]
            # The names are read only where the number may matter.
            if are_updates(0, batches, updates) and are_updates(self._batches_of_pass(loader), batches, updates):
                return updates
            return batches
        return updates

    def _only_evaluates(self, loader: int) -> bool:
        return only_evaluates(self._batches[loader], self._followed[loader], self._behind[loader])

    def _batches_of_pass(self, loader: int) -> object:
        if loader not in self._passes:
            self._passes[loader] = read_names(self.path.with_suffix(".names")).get(loader, "loader").get("batches")
        return self._passes[loader]

    @property
    def window_s(self) -> float:
        """From the end of the first step to the end of the latest one."""
        return (self._end_ns - self._begin_ns) / 1e9

    @property
    def wait_s(self) -> float:
        """Waiting for the batches of the training in that window."""
        fed = self.steps
        trains = [
            loader
            for loader, followed in self._followed.items()
            if followed >= PAIRED_SHARE * max(fed, self._batches[loader])
        ]
        return sum(self._waited_ns[loader] for loader in trains) / 1e9

    def _count(self, marks: Events) -> None:
        columns = (marks[name].tolist() for name in ("kind", "thread", "arg", "duration"))
        for kind, thread, loader, duration, end in zip(*columns, ends(marks).tolist(), strict=True):
            if kind == kinds.BATCH_WAIT:
                self._waiting[loader] = True
                self._latest = self._last = loader
                self._batches[loader] += 1
                self._in_first_step = False
                if thread == self._thread:
                    self._pending_ns[loader] += duration
                continue
            if self._thread is None and kind == kinds.BACKWARD:
                self._thread = thread
            if thread != self._thread:
                continue
            self._end_ns = max(self._end_ns, end)
            if kind == kinds.OPTIMIZER:
                if self._in_first_step:
                    self._begin_ns = end
                # Clipping counts as an update too, and several optimizers may step: one a turn.
                self._updates += self._turn
                self._turn = False
                continue
            self._in_first_step = not self._backwards
            if self._in_first_step:
                self._begin_ns = end
            self._waited_ns.update(self._pending_ns)
            self._pending_ns.clear()
            self._backwards += 1
            self._turn = True
            self._followed.update(loader for loader, waiting in self._waiting.items() if waiting)
            self._waiting = dict.fromkeys(self._waiting, False)
            if self._last is not None:
                self._behind[self._last] += 1
            if self._latest is not None:
                self._votes[self._latest] += 1
                self._latest = None
