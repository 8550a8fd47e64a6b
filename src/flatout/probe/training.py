"""Backward passes, optimizer steps and what belongs to them; they also move the step counters."""

import functools
import threading
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from . import device, events, in_place, losses, settings, trace
from .patching import is_compiling, patch
from .recorder import COMMAND_TRACE, REC, now, report_fault

PUBLISH_EVERY_NS = 20_000_000

_depth = [0]
_published = [0]
_steps: Any = {}  # id of an optimizer -> start of its step that runs, and the device's mark


def install():
    """Time autograd's entry and every optimizer's step."""
    register_optimizer_step_pre_hook(_step_begins)
    register_optimizer_step_post_hook(_step_ended)
    losses.install()
    function = in_place.innermost(torch.autograd.backward)
    if not in_place.is_instrumented(function):
        in_place.instrument(function, _backward_begins, _backward_left)
    patch(torch.optim.Optimizer, "zero_grad", events.ZERO_GRAD)
    for name in ("clip_grad_norm_", "clip_grad_value_"):
        patch(torch.nn.utils, name, events.OPTIMIZER, functools.partial(_clip_name, name))


def in_backward():
    """Whether a backward pass is running."""
    return bool(_depth[0])


def _clip_name(name, *args, **kwargs):
    return (REC.names.text(name),)


def _backward_begins(tensors, *args, **kwargs):
    if is_compiling() or not REC.on or _depth[0]:
        return None
    _depth[0] = 1  # re-entrant autograd (checkpointing) calls backward inside backward
    mark = device.mark() if device.present else None
    return now(), mark, tensors if losses.wanted else None


def _backward_left(call, result):
    end = now()
    _depth[0] = 0
    try:
        start, mark, tensors = call
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
        REC.first_step_ns = start
        REC.training_thread = threading.get_ident()
        settings.save()
    REC.last_step_ns = end
    if device.present:
        device.resolve()
    # The counters are for people to look at, and the command may be obeyed this much later.
    if end - _published[0] > PUBLISH_EVERY_NS:
        _published[0] = end
        if REC.publish() == COMMAND_TRACE:
            trace.start()


def _step_begins(optimizer, args, kwargs):
    if is_compiling():
        return
    if not REC.on:
        trace.step_ended()
        return
    # One whose step raised leaves its entry; the next step of that optimizer replaces it.
    _steps[id(optimizer)] = (device.mark() if device.present else None, now())


def _step_ended(optimizer, args, kwargs):
    if is_compiling() or not REC.on:
        return
    end = now()
    try:
        mark, start = _steps.pop(id(optimizer), (None, None))
        if start is None:
            return
        if mark is not None:
            device.span(events.OPTIMIZER, mark)
        REC.emit(events.OPTIMIZER, start, end, REC.names.text(type(optimizer).__name__))
        REC.optimizer_steps += 1
    except Exception:
        report_fault("optimizer")
