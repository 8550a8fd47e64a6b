"""Backward passes, optimizer steps and related calls; they also advance the step counters."""

import functools
import threading
from typing import Any

import torch
from torch.autograd.profiler import record_function

from .. import events, in_place, losses, trace
from ..experiments import schedule
from ..experiments.usual_steps import KINDS
from ..recorder import COMMAND_EXPERIMENT, COMMAND_TRACE, REC, now, report_fault
from ..wrap import is_compiling, patch
from . import device, settings

PUBLISH_EVERY_NS = 20_000_000


class _State:
    __slots__ = ("in_backward", "published_ns")

    def __init__(self):
        self.in_backward = False
        self.published_ns = 0  # time of the last write of the counters


_state = _State()

# Every optimizer's step runs in the profiler region of this name. Its class and hooks are not patched: they are
# pickled with the user's objects.
STEP = "Optimizer.step#"
MOST_STEPS = 16

_steps: Any = []  # (name, the device's mark, start) of those that run


def install():
    """Time autograd's entry and every optimizer's step."""
    losses.install()
    for function, begins, ended in (
        (in_place.innermost(torch.autograd.backward), _backward_begins, _backward_left),
        (record_function.__enter__, _region_begins, _step_begins),
        (torch.optim.Optimizer._optimizer_step_code, _step_done, _step_ended),
    ):
        if not in_place.is_instrumented(function):
            in_place.instrument(function, begins, ended)
    patch(torch.optim.Optimizer, "zero_grad", events.ZERO_GRAD)
    for name in ("clip_grad_norm_", "clip_grad_value_"):
        patch(torch.nn.utils, name, events.OPTIMIZER, functools.partial(_clip_name, name))


def in_backward():
    return _state.in_backward


def _clip_name(name, *args, **kwargs):
    return (REC.names.text(name),)


def _backward_begins(tensors):
    if is_compiling() or _state.in_backward or not (REC.on or trace.running() or schedule.active()):
        return None
    _state.in_backward = True  # re-entrant autograd (checkpointing) calls backward inside backward
    if not REC.on:
        return None, now(), None
    mark = device.mark() if device.present else None
    return now(), mark, tensors if losses.wanted else None


def _backward_left(call, result):
    end = now()
    _state.in_backward = False
    start, mark, tensors = call
    if start is None:  # the recording is over
        schedule.backward_ended(end - mark)
        trace.backward_ended()
        return
    try:
        if mark is not None:
            device.span(events.BACKWARD, mark)
        REC.emit(events.BACKWARD, start, end)
        if losses.wanted:
            losses.seen(tensors)
        _backward_ended(start, end)
    except Exception:
        report_fault("backward")


def _backward_ended(start, end):
    REC.backwards += 1
    if not REC.first_step_ns:
        REC.first_step_ns = end  # it may take long: algorithms are tried, code is compiled
        REC.training_thread = threading.get_ident()
        settings.save()
    else:
        KINDS.add(end - start, end - REC.last_step_ns)
    REC.last_step_ns = end
    REC.recent.append(end)
    # The counters only show progress, and the command may be obeyed with this delay. In short steps the probe's code
    # and objects have left the caches each time: what can wait is done for many of them at once.
    if end - _state.published_ns > PUBLISH_EVERY_NS:
        _state.published_ns = end
        if device.present:
            device.resolve()
        command = REC.publish()
        if command == COMMAND_TRACE:
            trace.start()
        elif command == COMMAND_EXPERIMENT:
            schedule.start(end - start)


def _region_begins(region):
    """The regions of the profiler, of which an optimizer's step is one."""
    if is_compiling() or not region.name.startswith(STEP):
        return None
    if not REC.on:
        trace.step_begins()
        return None
    return region.name


def _step_begins(name, result):
    if len(_steps) >= MOST_STEPS:  # steps that raised leave theirs
        del _steps[:]
    _steps.append((name, device.mark() if device.present else None, now()))


def _step_done(optimizer):
    """The hook, meant for profilers, that torch calls at the end of each step."""
    if is_compiling():
        return None
    if not REC.on:
        schedule.updated()
        trace.updated()
        return None
    return now(), type(optimizer).__name__


def _step_ended(call, result):
    end, kind = call
    try:
        name = "%s%s.step" % (STEP, kind)
        while _steps:
            begun, mark, start = _steps.pop()
            if begun == name:
                if mark is not None:
                    device.span(events.OPTIMIZER, mark)
                REC.emit(events.OPTIMIZER, start, end, REC.names.text(kind))
                REC.optimizer_steps += 1
                return
    except Exception:
        report_fault("optimizer")
