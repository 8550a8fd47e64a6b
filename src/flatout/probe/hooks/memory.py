"""Memory that one training step takes, allocation by allocation, wherever it runs: torch's own tracker counts it.

Only where ``flatout memory`` asks for it. The step is the second one, when the optimizer has its state; the script ends
after it.
"""

import functools
import os
from typing import Any

from torch import is_grad_enabled
from torch.nn import Module

from ..contract import MEMORY_FORWARD_METRIC, MEMORY_METRICS, MEMORY_SAMPLES_METRIC, MEMORY_STEP_METRIC, MEMORY_VARIABLE
from ..identity import ByIdentity
from ..metrics import note
from ..tracked_peak import tracked_peak

wanted = os.environ.get(MEMORY_VARIABLE) == "1"

_optimizers: Any = ByIdentity()
_state: Any = {"steps": 0, "tracker": None, "samples": 0, "noted": False}


def install():
    """Patch the call of models and the optimizers' steps."""
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    original = Module.__call__

    @functools.wraps(original)
    def __call__(self, *args, **kwargs):
        if _state["tracker"] is None and _state["steps"] and is_grad_enabled() and any(True for _ in self.parameters()):
            tracker = _begin(self, args)
            result = original(self, *args, **kwargs)
            note(MEMORY_FORWARD_METRIC, sum(tracked_peak(tracker).values()))
            return result
        return original(self, *args, **kwargs)

    Module.__call__ = __call__
    register_optimizer_step_pre_hook(_before_step)
    register_optimizer_step_post_hook(_stepped)


def _begin(model, args):
    from torch.distributed._tools.mem_tracker import MemTracker

    _state["samples"] = len(args[0]) if args and hasattr(args[0], "shape") and args[0].dim() else 0
    tracker = _state["tracker"] = MemTracker()
    tracker.track_external(model, *_optimizers)
    tracker.__enter__()
    return tracker


def _before_step(optimizer, args, kwargs):
    """The peak of forward and backward pass, by kind; the optimizer adds its memory regardless of the batch."""
    if _state["tracker"] is not None:
        _note_peak(_state["tracker"])


def _note_peak(tracker):
    _state["noted"] = True
    for name, held in tracked_peak(tracker).items():
        note(MEMORY_METRICS + name, held)
    note(MEMORY_SAMPLES_METRIC, _state["samples"])


def _stepped(optimizer, args, kwargs):
    _optimizers[optimizer] = True
    _state["steps"] += 1
    tracker = _state["tracker"]
    if tracker is None:
        return
    tracker.__exit__(None, None, None)
    if not _state["noted"]:  # forward and backward pass ran in a closure of this step, as Lightning's do
        _note_peak(tracker)
    note(MEMORY_STEP_METRIC, sum(tracked_peak(tracker).values()))
    raise SystemExit(0)
