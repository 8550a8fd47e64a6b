"""How long the training thread waits for the interpreter lock, and which thread holds it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flatout.measure.account_ids import CODE
from flatout.measure.accounts import Charged
from flatout.measure.samples import Samples, top_lines, weigh_lines
from flatout.measure.timeline import GAP, Accrual, Flags, Ints, Pieces, intervals
from flatout.measure.training import Training
from flatout.probe import events as kinds
from flatout.record import Names, ends
from flatout.record.packed_fields import lock_state, other_threads_ns
from flatout.results import Line

LEAST_LOOKS = 20  # one second
_PINNING, _RECEIVING = "/torch/utils/data/_utils/pin_memory.py", "/torch/multiprocessing/reductions.py"
_AT_LOCK, _BLOCKED, _UNKNOWN = 1, 2, 3
# A backward pass leaves the lock alone; on a GPU the thread that calls it sleeps until another one has finished it.
_COMPUTING = (kinds.FORWARD, kinds.BACKWARD, kinds.OPTIMIZER, kinds.ZERO_GRAD)
_ON_GPU = (kinds.FORWARD, kinds.OPTIMIZER, kinds.ZERO_GRAD)


@dataclass(frozen=True)
class LockWaits:
    """Waits of the training thread for the interpreter lock while another Python thread computes."""

    share: float  # of the window
    thread: str  # name of the other thread that computed most meanwhile; empty: unknown
    other_cores: float  # mean cores that the process's other Python threads used
    lines: tuple[Line, ...]  # of those threads, hottest first

    @property
    def of_loader(self) -> bool:
        """It is the thread in which torch's DataLoader pins batches: that work has no better place."""
        # Any thread may receive tensors; what it does besides shows which one it is.
        hottest = next((line for line in self.lines if not line.file.endswith(_RECEIVING)), None)
        return hottest is not None and hottest.file.endswith(_PINNING)

    @property
    def holder(self) -> str:
        """The thread that keeps the lock, as sentences name it."""
        return f"thread {self.thread!r}" if self.thread else "another thread"


def measure_lock_waits(training: Training, charged: Charged, on_gpu: bool) -> LockWaits | str | None:
    """Measure the waits in the window.

    Returns:
        The waits; why they are unknown; None where the training thread is the only Python thread.
    """
    looks = training.kind(kinds.LOCK)
    looks = looks[(looks["start"] >= training.window_begin_ns) & (ends(looks) <= training.window_end_ns)]
    if len(looks) < LEAST_LOOKS:
        return None
    state = lock_state(looks)
    if np.all(state == _UNKNOWN):
        return "this system does not show what a thread waits for (/proc/self/task/ID/syscall)"
    computing = _computing(charged, on_gpu)
    # How long it was blocked is exact, where it was blocked is sampled. Outside the computation it may wait for
    # batches, files or the device as well, so as much as possible of the blocked time is taken to lie there.
    wall = looks["duration"].astype(float)
    computed = Accrual(computing).between(looks["start"], ends(looks))
    blocked_inside = np.clip(looks["a"] - (wall - computed), 0.0, computed)
    blocked_outside = np.clip(looks["a"] - blocked_inside, 0.0, wall)
    inside = computing.at(ends(looks)) >= 0
    blocked = blocked_inside * _at_lock(state[inside]) + blocked_outside * _at_lock(state[~inside])
    others = other_threads_ns(looks).astype(float)
    waited = np.minimum(blocked, others)  # a thread keeps the lock no longer than it computes
    names = training.process.names
    samples = Samples(ends(looks), waited, looks["arg"].astype(np.int64), state, names)
    lines = top_lines(weigh_lines(samples.take(samples.stack > 0)), float(waited.sum()) / 1e9)
    window = float(training.window_ns)
    return LockWaits(float(waited.sum()) / window, _busiest(samples, names), float(others.sum()) / window, lines)


def _at_lock(state: Ints) -> float:
    """Of the looks at a blocked thread, the part that saw it wait for the lock."""
    at_lock, elsewhere = np.count_nonzero(state == _AT_LOCK), np.count_nonzero(state == _BLOCKED)
    return at_lock / (at_lock + elsewhere) if at_lock else 0.0


def _computing(charged: Charged, on_gpu: bool) -> Pieces:
    """The time in which the training thread computes a step itself."""
    pieces, kind = charged.pieces, charged.kind()
    gap: Flags = (pieces.owner == GAP) & np.isin(charged.account, (CODE["forward"], CODE["loss"])) & ~charged.device
    chosen = pieces.take(np.isin(kind, _ON_GPU if on_gpu else _COMPUTING) | gap)
    return intervals(chosen.start, chosen.end)


def _busiest(samples: Samples, names: Names) -> str:
    """Name of the thread with most weight."""
    weights: dict[str, float] = {}
    for stack, weight in zip(samples.stack.tolist(), samples.weight.tolist(), strict=True):
        name = str(names.get(stack, "stack").get("thread") or "") if stack else ""
        weights[name] = weights.get(name, 0.0) + weight
    weights.pop("", None)
    return max(weights, key=lambda name: weights[name], default="")
