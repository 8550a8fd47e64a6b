"""The writes of a training: checkpoints in the background or less often, metrics less often or left to the kernel."""

import functools
import os

import torch

from ..hooks.sinks import METRIC_WRITERS
from ..metric_files import is_metric_file
from ..unbound import Unbound
from .checkpoint_thread import Beside


def install(injected, watch):
    """Patch ``torch.save`` and the metric writers."""
    if injected.get("checkpoint_beside"):
        torch.save = Beside(torch.save, injected).save
    if injected.get("checkpoint_every"):
        torch.save = _every(
            torch.save, int(injected.get("checkpoint_every")), lambda: injected.done("checkpoint_every")
        )
    if injected.get("metrics_unsynced"):
        for name in ("fsync", "fdatasync"):
            original = getattr(os, name)
            setattr(os, name, Unbound(_unsynced(original, functools.partial(injected.done, "metrics_unsynced"))))
    if injected.get("log_every"):
        for name, targets in METRIC_WRITERS.items():
            watch(name, functools.partial(_thin, targets, injected))


def _unsynced(original, done):
    """Leave metric files to the kernel, which writes them within a minute; others are written as before."""

    @functools.wraps(original)
    def sync(fd):
        if is_metric_file(fd):
            done()
            return None
        return original(fd)

    return sync


def _thin(targets, injected, module):
    for path, *_ in targets:
        owner = module
        *parents, last = path.split(".")
        for parent in parents:
            owner = getattr(owner, parent, None)
        if owner is not None and last in vars(owner) and last != "flush":
            count = int(injected.get("log_every"))
            setattr(owner, last, _every(vars(owner)[last], count, lambda: injected.done("log_every")))


def _every(original, count, used):
    """Let the first of each ``count`` calls through."""
    calls = 0

    @functools.wraps(original)
    def sometimes(*args, **kwargs):
        nonlocal calls
        used()
        calls += 1
        return original(*args, **kwargs) if calls % count == 1 or count == 1 else None

    return sometimes
