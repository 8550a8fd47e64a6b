"""Whether the steps that were looked at after the window are of the kind that the window's time went to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from flatout.probe import events as kinds
from flatout.record import ProcessRecord
from flatout.units import percent

# A smaller part of the time says nothing of the rest of it, where another kind of steps takes several times as much.
_LEAST = 0.2
_LEAST_OF_MOST = 0.3
_LEAST_SEEN = 8  # fewer steps, after a validation that took all the time, may each have been held up by something
_OF_CHANGED_STEPS = (
    *("unused_gradients", "discarded_gradients", "frozen_modules", "repeated_weight", "repeated_work", "repeated_rows"),
    *("loss_targets", "stepwise_layers", "zero_operands", "slice_takes", "slice_writes", "doubled_input", "last_steps"),
    *("unmerged_layers", "spanning_kernels", "unfused_functions", "coordinate_products"),
    *("gathered_weights", "read_values", "stepwise_products", "unfused_attention", "broadcast_pairs", "model_layouts"),
)


def unusual(process: ProcessRecord, what: str) -> str:
    """Why what was looked at says nothing of the window, as text; empty: it does.

    Args:
        process: the training process.
        what: ``changed`` or ``traced``, as the record has it.
    """
    share, most, seen = (process.info.get("usual_steps") or {}).get(what) or (1.0, 1.0, 0)
    if seen < _LEAST_SEEN or share >= min(_LEAST, _LEAST_OF_MOST * most):
        return ""
    return f"the steps after the window were of a kind that took {percent(share)} of its time"


def of_usual_steps(process: ProcessRecord) -> ProcessRecord:
    """The process without what steps of another kind have shown, and why."""
    because = unusual(process, "changed")
    if not because:
        return process
    events = process.events[~np.isin(process.events["kind"], (kinds.EXPERIMENT, kinds.HOOK, kinds.COLLECTION))]
    info: dict[str, Any] = {name: value for name, value in process.info.items() if name not in _OF_CHANGED_STEPS}
    return replace(process, info={**info, "experiments_skipped": because}, events=events)
