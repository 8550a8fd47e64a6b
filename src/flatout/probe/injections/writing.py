"""The writes of a training: checkpoints in the background or less often, metrics less often or left to the kernel."""

import functools
import os

import torch

from ..hooks.sinks import METRIC_WRITERS
from ..metric_files import is_metric_file
from ..unbound import Unbound
from .checkpoint_thread import Beside

SYNCED = 3  # times that a metric file is synced all the same


def install(injected, watch):
    """Patch ``torch.save`` and the metric writers."""
    if injected.get("checkpoint_beside"):
        beside = Beside(torch.save, injected)
        torch.save = beside.save
        injected.on_switch("checkpoint_beside", lambda on: on or beside.finish())
    if injected.get("checkpoint_every"):
        torch.save = _saving_seldom(torch.save, injected)
    if injected.get("metrics_unsynced"):
        for name in ("fsync", "fdatasync"):
            setattr(os, name, Unbound(_unsynced(getattr(os, name), injected)))
    if injected.get("log_every"):
        for name, targets in METRIC_WRITERS.items():
            watch(name, functools.partial(_thin, targets, injected))


def _saving_seldom(original, injected):
    """Let the first of so many writes of each file through, where the file is there: what comes next may need it.

    A file that is renamed, removed or named anew each time is written each time.
    """
    writes: dict[str, int] = {}  # path -> how often it was to be written

    @functools.wraps(original)
    def save(obj, f, *args, **kwargs):
        count = injected.get("checkpoint_every")
        if not count or not isinstance(f, (str, os.PathLike)):
            return original(obj, f, *args, **kwargs)
        path = os.path.abspath(os.fspath(f))
        writes[path] = writes.get(path, 0) + 1
        if writes[path] % count == 1 or count == 1 or not os.path.isfile(path):
            return original(obj, f, *args, **kwargs)
        injected.done("checkpoint_every")
        return None

    return save


def _unsynced(original, injected):
    """Leave metric files to the kernel, which writes them within a minute; others are written as before.

    A file is taken for one once it was synced a few times and grew each time: a table that is written once, or a state
    that is written anew each time, is not.
    """
    seen: dict[str, tuple[int, int]] = {}  # path -> times that it was synced and had grown, its size

    @functools.wraps(original)
    def sync(fd):
        if injected.get("metrics_unsynced") and is_metric_file(fd):
            number = fd if isinstance(fd, int) else fd.fileno()
            path, size = os.readlink("/proc/self/fd/%d" % number), os.fstat(number).st_size
            times, before = seen.get(path, (0, -1))
            seen[path] = (times + 1 if size > before else 0, size)
            if times >= SYNCED and size > before:
                injected.done("metrics_unsynced")
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
            setattr(owner, last, _every(vars(owner)[last], "log_every", injected))


def _every(original, name, injected):
    """Let the first of so many calls through."""
    calls = 0

    @functools.wraps(original)
    def sometimes(*args, **kwargs):
        nonlocal calls
        count = injected.get(name)
        if not count:
            return original(*args, **kwargs)
        injected.done(name)
        calls += 1
        return original(*args, **kwargs) if calls % count == 1 or count == 1 else None

    return sometimes
