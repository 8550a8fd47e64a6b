"""Steps after the measured window, when flatout asks for them: which of them run now, and what they are told.

First steps with one thing changed at a time, then the kernel trace, then steps with kept batches. The first two of
these wait for steps of the kind that takes most of the time.
"""

import threading
from typing import Any

import torch

from .. import events, trace
from ..contract import REPLAYED
from ..inspection import repeated_work
from ..recorder import COMMAND_REPLAY, COMMAND_TRACE, REC, now, report_fault
from . import held_memory, last_steps
from .changed_steps import ChangedSteps
from .last_steps import LastSteps
from .usual_steps import UsualStep

FAILED = "the probe failed"


class _State:
    __slots__ = ("before_changed", "before_trace", "over", "running", "spent_ns", "traced")

    def __init__(self):
        self.before_changed, self.before_trace = UsualStep("changed"), UsualStep("traced")
        self.running: Any = None  # ChangedSteps or LastSteps
        self.over = False  # the changed steps: the trace and the last steps may be asked for
        self.traced = False
        self.spent_ns = 0  # on the changed steps


_state = _State()


def start(backward_ns):
    """Begin; called in the training thread after a backward pass of this length, when recording has stopped."""
    if _state.running is None and not _state.over and _call(_state.before_changed.has_come, backward_ns) is not False:
        _begin(ChangedSteps, _end_changed)


def active():
    """True while backward passes are to be reported: steps are measured, or more of them may be asked for."""
    return _state.running is not None or _state.over or _state.before_changed.awaited


def batch_awaited(iterator=None):
    """The training asks for its next batch.

    Args:
        iterator: of torch's DataLoader; None: of another one.
    """
    run = _state.running
    if run is not None and threading.get_ident() == REC.training_thread:
        _call(run.batch_awaited, iterator)
        return run
    return None


def batch_arrived(run, batch, got):
    """The training has its next batch; ``got`` is False at the end of the pass."""
    if run is not None and run is _state.running:
        _call(run.batch_arrived, batch, got)


def updated():
    """An optimizer has stepped."""
    if _state.running is not None:
        _call(_state.running.updated)


def backward_ended(backward_ns):
    """A backward pass of this length has ended."""
    repeated_work.leave()  # where it could not when its step ended
    run = _state.running
    if run is not None:
        if threading.get_ident() == REC.training_thread:
            _call(run.backward_ended)
    elif _state.before_changed.awaited:
        if threading.get_ident() == REC.training_thread:
            start(backward_ns)
    elif _state.over:
        command = REC.control.command()
        if command == COMMAND_TRACE and not _state.traced:
            if _call(_state.before_trace.has_come, backward_ns) is not False:
                _state.traced = True
                trace.start()
        elif command == COMMAND_REPLAY and not trace.running():
            _begin(LastSteps, _end_last, _state.spent_ns + trace.rated_ns())


def _begin(kind, ended, *arguments):
    try:
        held_memory.save()
        because = _impossible()
        if because:
            ended(because)
        else:
            run = kind(ended, *arguments)
            _state.running = None if run.over else run
    except Exception:
        report_fault("experiment")
        ended(FAILED)


def _call(method, *arguments):
    """Run a piece of the measurement: a fault ends it, and what was changed is restored."""
    try:
        return method(*arguments)
    except Exception:
        report_fault("experiment")
        if _state.running is not None:
            _state.running.failed(FAILED)
    return None


def _end_changed(because=None):
    """All is as it was; flatout is told so."""
    run, _state.running = _state.running, None
    _state.over = True
    if because:
        _quietly(lambda: REC.save_process(experiments_skipped=because))
    if run is not None:
        _state.spent_ns = now() - run.begun_ns
        _quietly(run.restore)
        _quietly(run.work.save)
    # Steps that take long are not waited for only to say so.
    impossible = last_steps.impossible(last_steps.room_ns(_state.spent_ns))
    if impossible is not None:
        _quietly(lambda: REC.save_process(last_steps={"skipped": {REPLAYED: impossible}}))
    _publish(events.EXPERIMENTED | (events.REPLAYED if impossible is not None else 0))


# untested: only in trainings that flatout ends, which save no coverage
def _end_last(because=None):
    """The last steps are over; ``because`` says why there were none."""
    _state.running, _state.over = None, False
    if because:
        _quietly(lambda: REC.save_process(last_steps={"skipped": {REPLAYED: because}}))
    _publish(events.REPLAYED)


def _publish(flag):
    REC.flags |= flag
    _quietly(REC.publish)


def _quietly(function):
    try:
        function()
    except Exception:
        report_fault("experiment")


def _impossible():
    """Why nothing can be measured; None if it can."""
    ranks = REC.process.get("world_size") or 1
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        ranks = max(ranks, torch.distributed.get_world_size())
    if ranks > 1:
        return "%d ranks have to stay in step" % ranks
    return None
