"""The phases of each step: how long it waited for batches, computed forward and backward, and stepped the optimizer."""

from __future__ import annotations

import numpy as np

from flatout.measure.timeline import Floats
from flatout.measure.training import StepTable
from flatout.probe import events as kinds
from flatout.record import Events, of_kinds

PHASES = ("waiting", "forward", "backward", "optimizer", "other")
_RECORDED = {"forward": kinds.FORWARD, "backward": kinds.BACKWARD, "optimizer": kinds.OPTIMIZER}


def step_phases(steps: StepTable, events: Events) -> dict[str, Floats]:
    """Seconds of each step by phase, in the order of ``PHASES``.

    Args:
        steps: of one process.
        events: of its training thread, in order of their start.
    """
    start = steps.start_ns.astype(np.int64)
    finish = start + np.round(steps.duration_s * 1e9).astype(np.int64)
    parts = {"waiting": steps.wait_s}
    for name, kind in _RECORDED.items():
        spans = of_kinds(events, kind)
        sums = np.concatenate(([0.0], np.cumsum(spans["duration"])))
        order = np.asarray(spans["start"], np.int64)
        parts[name] = (sums[np.searchsorted(order, finish)] - sums[np.searchsorted(order, start)]) / 1e9
    # Recorded phases may lie in each other: a closure runs the backward pass in the optimizer's step.
    parts["other"] = np.maximum(steps.duration_s - sum(parts.values()), 0.0)
    return parts
