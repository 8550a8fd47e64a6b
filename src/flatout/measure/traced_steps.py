"""The steps in a kernel trace: where one begins and ends, and the operators in it without those that they call."""

from __future__ import annotations

import numpy as np

from flatout.measure.timeline import Floats, Ints
from flatout.measure.training import Training, real_updates
from flatout.probe import events as kinds
from flatout.probe.contract import BACKWARD_ENDED
from flatout.record import ends
from flatout.record.kernel_trace import KernelTrace, Spans

# Regions of torch's profiler.
STEP, LOADING = "Optimizer.step#", "enumerate(DataLoader)#"


# A stretch this much shorter than the mean one is no undisturbed step, but one of another kind.
_ANOTHER_KIND = 0.5


def fastest_step(trace: KernelTrace, training: Training) -> tuple[int, int, float] | None:
    """Begin and end of the shortest stretch from one optimizer step to the next, and the training steps in it.

    Where steps are of several kinds, as those of a generator and its critic, all traced ones are the stretch. A
    training that changes its weights without an optimizer is divided where its backward passes end.
    """
    updates, region = ends(real_updates(training.process, training.events)), STEP
    if not len(updates):
        updates, region = ends(training.kind(kinds.BACKWARD)), BACKWARD_ENDED
    inside = np.count_nonzero((updates > training.window_begin_ns) & (updates <= training.window_end_ns))
    count = training.in_window.stop - training.in_window.start
    if not inside or not count:
        return None
    each = max(round(inside / count), 1)  # several optimizers may step in a training step
    end = np.sort(named(trace.regions, region).end)
    if len(end) <= each:
        return None
    length = end[each:] - end[:-each]
    steps = max(count / inside, 1.0)
    place = int(np.argmin(length))
    if length[place] < _ANOTHER_KIND * length.mean():
        return int(end[0]), int(end[-1]), steps * (len(end) - 1) / each
    return int(end[place]), int(end[place + each]), steps


def named(spans: Spans, prefix: str) -> Spans:
    """The spans whose names begin so."""
    return spans.take(np.array([name.startswith(prefix) for name in spans.name], bool))


def own_time(operators: Spans) -> tuple[Floats, Ints, Ints]:
    """Time of each operator without the operators it calls, ns; how many it calls; the row of its caller, or -1."""
    own = (operators.end - operators.start).astype(float)
    children = np.zeros(len(operators), np.int64)
    parent = np.full(len(operators), -1, np.int64)
    open_rows: dict[int, list[int]] = {}
    rows = zip(operators.start.tolist(), operators.end.tolist(), operators.thread.tolist(), strict=True)
    for row, (start, end, thread) in enumerate(rows):
        stack = open_rows.setdefault(thread, [])
        while stack and operators.end[stack[-1]] <= start:
            stack.pop()
        if stack:
            own[stack[-1]] -= end - start
            children[stack[-1]] += 1
            parent[row] = stack[-1]
        stack.append(row)
    return own, children, parent
