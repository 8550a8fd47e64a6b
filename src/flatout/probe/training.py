"""Backward passes, optimizer steps and what belongs to them; they also move the step counters."""

import functools
import threading

import torch

from . import device, events, losses, modules, settings, trace
from .patching import is_compiling, patch
from .recorder import COMMAND_TRACE, REC, now, report_fault

PUBLISH_EVERY_NS = 20_000_000

_depth = [0]
_published = [0]


def install():
    """Patch autograd and the optimizers' base class."""
    torch.autograd.backward = _timed_backward(torch.autograd.backward)
    losses.install()
    optimizer = torch.optim.Optimizer
    decorator = staticmethod(_timing_decorator(optimizer.profile_hook_step))
    setattr(optimizer, "profile_hook_step", decorator)  # noqa: B010 - its declared type names the argument
    for kind in _classes_already_hooked(optimizer):
        kind.step = _timed_step(kind.step)
    patch(optimizer, "zero_grad", events.ZERO_GRAD)
    for name in ("clip_grad_norm_", "clip_grad_value_"):
        patch(torch.nn.utils, name, events.OPTIMIZER, functools.partial(_clip_name, name))


def in_backward():
    """Whether a backward pass is running."""
    return bool(_depth[0])


def _classes_already_hooked(optimizer):
    pending = list(optimizer.__subclasses__())
    while pending:
        kind = pending.pop()
        pending.extend(kind.__subclasses__())
        if getattr(vars(kind).get("step"), "hooked", False):
            yield kind


def _clip_name(name, *args, **kwargs):
    return (REC.names.text(name),)


def _timed_backward(original):
    @functools.wraps(original)
    def backward(*args, **kwargs):
        if is_compiling() or _depth[0]:
            return original(*args, **kwargs)
        if not REC.on:
            result = original(*args, **kwargs)
            trace.backward_ended()
            return result
        _depth[0] = 1  # re-entrant autograd (checkpointing) calls backward inside backward
        mark = device.mark() if device.present else None
        start = now()
        try:
            return original(*args, **kwargs)
        finally:
            end = now()
            _depth[0] = 0
            try:
                if mark is not None:
                    device.span(events.BACKWARD, mark)
                REC.emit(events.BACKWARD, start, end)
                if losses.wanted:
                    losses.seen(args[0] if args else kwargs.get("tensors"))
                _backward_ended(start, end)
            except Exception:
                report_fault("backward")

    return backward


def _backward_ended(start, end):
    REC.backwards += 1
    if not REC.first_step_ns:
        REC.first_step_ns = start
        REC.training_thread = threading.get_ident()
        settings.save()
    REC.last_step_ns = end
    modules.backwards_since[0] += 1
    if modules.looking[0] or modules.backwards_since[0] == modules.LOST_AFTER:
        modules.backward_seen()
    if device.present:
        device.resolve()
    # The counters are for people to look at, and the command may be obeyed this much later.
    if end - _published[0] > PUBLISH_EVERY_NS:
        _published[0] = end
        if REC.publish() == COMMAND_TRACE:
            trace.start()


def _timing_decorator(profile_hook_step):
    @functools.wraps(profile_hook_step)
    def decorate(step):
        return _timed_step(profile_hook_step(step))

    return decorate


def _timed_step(original):
    @functools.wraps(original)
    def step(self, *args, **kwargs):
        if is_compiling() or not REC.on:
            trace.step_begins()
            return original(self, *args, **kwargs)
        mark = device.mark() if device.present else None
        start = now()
        try:
            return original(self, *args, **kwargs)
        finally:
            end = now()
            try:
                if mark is not None:
                    device.span(events.OPTIMIZER, mark)
                REC.emit(events.OPTIMIZER, start, end, REC.names.text(type(self).__name__))
                REC.optimizer_steps += 1
            except Exception:
                report_fault("optimizer")

    setattr(step, "hooked", True)  # noqa: B010 - mypy knows no attributes of functions
    return step
