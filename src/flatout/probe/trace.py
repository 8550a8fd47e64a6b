"""A few steps under torch.profiler, after the measured window, when flatout asks for them."""

import os
from typing import Any

import torch

from .kineto_lines import held_back
from .recorder import REC, quietly

STEPS = 3

_running: Any = None
_left = 0


@quietly
def start():
    """Begin the trace; recording has stopped by now."""
    global _running, _left
    if _running is not None or REC.traced:
        return
    _running = torch.profiler.profile(record_shapes=False, with_stack=False)
    with held_back():
        _running.__enter__()
    _left = STEPS


def step_ended():
    """Count one traced step; ends the trace when enough were seen."""
    global _left
    if _running is not None:
        _left -= 1
        if _left < 0:
            _finish()


@quietly
def _finish():
    global _running
    profiler, _running = _running, None
    with held_back():
        profiler.__exit__(None, None, None)
    profiler.export_chrome_trace(os.path.join(REC.run, "trace-%s.json.gz" % REC.id))
    REC.traced = 1
    REC.publish()
