"""The writes of a training: checkpoints in the background or less often, metrics less often or left to the kernel."""

import atexit
import functools
import os
import queue
import threading
from typing import Any

import torch

from ..hooks.sinks import METRIC_WRITERS
from ..metric_files import is_metric_file
from ..unbound import Unbound


def install(injected, watch):
    """Patch ``torch.save`` and the metric writers."""
    if injected.get("checkpoint_beside"):
        torch.save = _beside(torch.save, injected)
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


def _beside(original, injected):
    """Copy the object to save, and write it in a thread; a checkpoint waits for the previous one."""
    work: Any = queue.Queue(1)
    failed = []

    def write():
        while True:
            args, kwargs = work.get()
            try:
                original(*args, **kwargs)
            except Exception as error:  # raised in the training at its next save
                failed.append(error)
            finally:
                work.task_done()

    started: list[Any] = []

    @functools.wraps(original)
    def save(obj, f, *args, **kwargs):
        if failed:
            raise failed.pop()
        if not isinstance(f, (str, bytes)) and not hasattr(f, "__fspath__"):
            return original(obj, f, *args, **kwargs)  # an open file: its owner may close it right away
        if not started:
            started.append(threading.Thread(target=write, name="flatout-checkpoint", daemon=True))
            started[0].start()
            atexit.register(work.join)
        injected.done("checkpoint_beside")
        work.join()
        work.put(((_copied(obj), f, *args), kwargs))
        return None

    return save


def _copied(value):
    """The same with tensors copied to the host; anything but a plain container is left unchanged."""
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        made = {key: _copied(part) for key, part in value.items()}
        if type(value) is dict:
            return made
        copied = value.copy()  # an OrderedDict with attributes, such as a state dict
        copied.update(made)
        return copied
    if type(value) in (list, tuple):
        return type(value)(_copied(part) for part in value)
    return value
