"""A few steps under torch.profiler, after the measured window, when flatout asks for them."""

import gzip
import inspect
import os
import resource
import shutil
from typing import Any

import torch

from . import device_rates, events
from .contract import BACKWARD_ENDED
from .kineto_lines import held_back
from .recorder import REC, now, quietly
from .reference import measure, traced

STEPS = 3
# If a step has many backward passes, or is one long update, the trace up to here is enough: then one whole step is, if
# there is one by the second time.
LONGEST_NS = 4_000_000_000
WHOLE_STEP_WITHIN_NS = 12_000_000_000
# One whole step is enough, too, of steps with more nodes in the graphs of their backward passes: in a
# loss of 10,372 nodes each came with 22 events, and at the end the profiler took 36 us for each of these.
MOST_NODES = 5_000
MOST_BYTES = 256 << 20  # the same of steps with many operators: 260,000 of them took 0.7 GB, and 3 GB to be written
MOST_BACKWARDS = 64
MOST_OF_ALL = 2_000

_running: Any = None
_left = 0
_backwards = 0
_updates = 0  # optimizer steps that have ended
_started_ns = _started_nodes = 0
_started_faults, _started_bytes = (0, 0), 0
_rated_ns = 0


@quietly
def start():
    """Begin the trace; recording has stopped by now."""
    global _running, _left, _backwards, _updates, _started_ns, _started_nodes, _started_faults, _started_bytes
    if _running is not None or REC.flags & events.TRACED:
        return
    # Where torch knows the option, it warns the user of what comes without it.
    kept = {"acc_events": True} if "acc_events" in inspect.signature(torch.profiler.profile).parameters else {}
    _running = torch.profiler.profile(record_shapes=True, with_stack=False, **kept)
    with held_back():
        _running.__enter__()
    _left, _backwards, _updates, _started_ns, _started_nodes = STEPS, 0, 0, now(), _nodes()
    _started_faults, _started_bytes = _faults(), _resident_bytes()


def running():
    """True while the trace is being taken."""
    return _running is not None


# untested: only in trainings that flatout ends, which save no coverage
def rated_ns():
    """Time that measuring the rates of the device took after the trace."""
    return _rated_ns


def step_begins():
    """Count one optimizer step; ends the trace when enough were seen."""
    global _left
    if _running is not None:
        _left -= 1
        if _left < 0:
            _finish()


def updated():
    """An optimizer step has ended: of long steps, one whole one is enough."""
    global _updates
    if _running is None:
        return
    _updates += 1
    long = now() - _started_ns > LONGEST_NS or _nodes() - _started_nodes > MOST_NODES
    if _whole() and (long or _resident_bytes() - _started_bytes > MOST_BYTES):
        _finish()


def _nodes():
    """Nodes of graphs that this thread has made; always 0 where torch does not say."""
    count: Any = getattr(torch.autograd, "_get_sequence_nr", None)
    return count() if count is not None else 0


def _faults():
    """Page faults of this process that needed no storage, and its ns in the kernel."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_minflt, int(used.ru_stime * 1e9)


def _resident_bytes():
    """Memory of this process; 0 where the kernel does not say."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return 0


def _whole():
    """True if a training step lies between two updates of the trace; several optimizers may step in one."""
    by_batches = 8 * REC.iterations >= REC.backwards > 0
    return _updates > (max(round(REC.optimizer_steps / REC.iterations), 1) if by_batches else 1)


def backward_ended():
    """Count one backward pass: it ends the trace of a training that never calls an optimizer, or not for long."""
    global _backwards
    if _running is None:
        return
    _backwards += 1
    if not REC.optimizer_steps:
        with torch.autograd.profiler.record_function(BACKWARD_ENDED):
            pass
    # A step may have a backward pass for each sample: whole steps are wanted then, too.
    each = REC.backwards // REC.optimizer_steps if REC.optimizer_steps else 1
    enough = max(MOST_BACKWARDS, (STEPS + 1) * each) if REC.optimizer_steps else STEPS + 1
    longest_ns = WHOLE_STEP_WITHIN_NS if REC.optimizer_steps and not _whole() else LONGEST_NS
    if _backwards >= min(enough, MOST_OF_ALL) or now() - _started_ns > longest_ns:
        _finish()


@quietly
def _finish():
    global _running, _rated_ns
    profiler, _running = _running, None
    # The profiler's own memory may have tensors' pages go back to the kernel.
    faults, system_ns = (end - start for start, end in zip(_started_faults, _faults()))
    passed_ns = now() - _started_ns
    _reference(traced)
    # Only the file is read: objects for all events would take most of the time.
    inner: Any = profiler.profiler
    if getattr(inner, "acc_events", False):
        inner.acc_events = False
    with held_back():
        profiler.__exit__(None, None, None)
    _reference(_export, profiler, REC.run, "trace-%s.json" % REC.id)  # without it, the rest is still worth having
    found = {"reference": _reference(measure), "trace_faults": [faults, system_ns, passed_ns]}
    if REC.flags & events.EXPERIMENTED:  # it may take more than the trace
        begun_ns = now()
        found["ceilings"] = _reference(device_rates.measure, profiler)
        _rated_ns = now() - begun_ns
    REC.save_process(**found)
    REC.flags |= events.TRACED
    REC.publish()


def _export(profiler, folder, name):
    """Write the trace, packed; torch would unpack it in the folder for temporary files, where it may be left."""
    path = os.path.join(folder, name)
    if path.isprintable():
        profiler.export_chrome_trace(path)
    else:  # torch leaves such characters out of the name
        opened = os.open(folder, os.O_RDONLY)
        try:
            profiler.export_chrome_trace("/proc/self/fd/%d/%s" % (opened, name))
        finally:
            os.close(opened)
    with open(path, "rb") as plain, gzip.open(path + ".part", "wb", compresslevel=3) as packed:
        shutil.copyfileobj(plain, packed, 1 << 20)
    os.replace(path + ".part", path + ".gz")
    os.unlink(path)


def _reference(part, *arguments):
    try:
        return part(*arguments)
    except Exception as error:  # no memory, or a mode of the user's that refuses operators: the trace is worth having
        return {"failed": "%s: %s" % (type(error).__name__, error)}
