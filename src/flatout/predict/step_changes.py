"""Changes of the step itself."""

from __future__ import annotations

from dataclasses import replace

from flatout.predict.context import Context
from flatout.predict.pipeline import Change


def removed(context: Context, part: float) -> Change:
    """The change that takes this part of a step's own time away, waits excluded."""
    saved_s = min(part, 1.0) * context.model.now.step_s
    return Change(step_removed_s=saved_s, step_cpu_removed_s=saved_s)


def rethreaded(context: Context, part: float) -> Change:
    """The same by another number of threads: the CPU time stays, as far as is known."""
    return replace(removed(context, part), step_cpu_removed_s=0.0)
