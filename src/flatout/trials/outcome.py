"""The outcome of one run of a trial: valid, or the reason why not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flatout.compare.speed import Speed
from flatout.record import Run

OK, OUT_OF_MEMORY, GUARDED, FAILED, REFUSED = "ok", "oom", "guarded", "failed", "refused"
TOO_SHORT = "too_short"  # it trained, but for fewer steps than a comparison needs
_MEMORY = re.compile(
    r"out of memory|OutOfMemory|MemoryError|unable to allocate|Bus error|insufficient shared memory", re.I
)
_FOR_VALIDATIONS = "validation_workers_kept"
_NOT_TAKEN = "nothing in this training takes it"
_NONE_LEFT_OUT = (
    "no call was left out in this run, since a function runs in the first two steps that call it: measure longer, "
    "with --seconds"
)
_ACTS_LATER = f"call_every: {_NONE_LEFT_OUT}"
_KILLED = 137  # 128 + SIGKILL: in a trial only the kernel's OOM killer sends that


@dataclass(frozen=True, kw_only=True)
class Execution:
    """The facts of one run, not yet judged.

    Attributes:
        stop: how the recording ended, as ``runner.Outcome.stop``.
        exit_code: of the command; None when flatout ended it.
        guarded: why a guard ended it; None: no guard did.
        trained: a training step was seen.
        explanation: one line for a run without a training step.
        exceptions: those that ended its processes, one line each.
        injected: settings that were to be injected.
        located: settings that were changed in the user's config or options.
        unread: the changed files, if none of them was read.
        applied: injected settings that took effect.
        refused: setting -> why it did not take effect.
        loader: settings of the DataLoader, as recorded.
        speed: None: not measured.
        no_speed: why not.
        losses: of each backward pass.
        run: the record; None when nothing was recorded.
        wall_s: from its start to its end.
    """

    stop: str
    wall_s: float
    exit_code: int | None = None
    guarded: str | None = None
    trained: bool = True
    explanation: str = ""
    exceptions: tuple[str, ...] = ()
    injected: Mapping[str, Any] = field(default_factory=dict)
    located: Mapping[str, Any] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
    applied: Mapping[str, Any] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    loader: Mapping[str, Any] = field(default_factory=dict)
    speed: Speed | None = None
    no_speed: str = ""
    losses: tuple[float, ...] = ()
    run: Run | None = None


@dataclass(frozen=True)
class TrialRun:
    """One run, judged.

    Attributes:
        outcome: OK, or why it does not count.
        detail: one sentence; empty when it counts.
        wall_s: from its start to its end.
        speed: None when it does not count.
        losses: of each backward pass.
        run: the record; None when nothing was recorded.
        changed: settings that took effect.
        acts_later: it was refused for a setting that would have taken effect in a longer run.
    """

    outcome: str
    detail: str
    wall_s: float
    speed: Speed | None = None
    losses: tuple[float, ...] = ()
    run: Run | None = None
    changed: Mapping[str, Any] = field(default_factory=dict)
    acts_later: bool = False


def classify(execution: Execution) -> TrialRun:
    """Judge a run: it counts if it trained, with all its settings in effect, for long enough to measure its speed."""
    outcome, detail = _outcome(execution)
    if outcome != OK:
        later = outcome == REFUSED and detail == _ACTS_LATER
        return TrialRun(outcome, detail, execution.wall_s, run=execution.run, acts_later=later)
    return TrialRun(OK, "", execution.wall_s, execution.speed, execution.losses, execution.run, dict(execution.applied))


def _outcome(execution: Execution) -> tuple[str, str]:
    if execution.guarded:
        return GUARDED, execution.guarded
    if execution.stop == "failed" or not execution.trained:
        text = " ".join([execution.explanation, *execution.exceptions])
        memory = _MEMORY.search(text) or execution.exit_code == _KILLED
        return OUT_OF_MEMORY if memory else FAILED, execution.explanation
    if why := _not_in_effect(execution):
        return REFUSED, why
    if execution.speed is None:
        return TOO_SHORT, execution.no_speed
    return OK, ""


def _not_in_effect(execution: Execution) -> str:
    """The settings that did not take effect, with reasons; empty if all did."""
    missing = [name for name in execution.injected if name not in execution.applied]
    # What is for validations beside other settings is not taken in a run that is too short for two of them.
    if len(execution.injected) > 1:
        missing = [name for name in missing if name != _FOR_VALIDATIONS or name in execution.refused]
    if missing:
        default = {"call_every": _NONE_LEFT_OUT}
        return "; ".join(f"{name}: {execution.refused.get(name, default.get(name, _NOT_TAKEN))}" for name in missing)
    if execution.unread:
        return f"the command reads none of the changed files: {', '.join(execution.unread)}"
    for name, value in execution.located.items():
        present = execution.loader.get(name, value)
        if present != value:
            return f"{name} is {present} in the DataLoader, though {value} was written where it is set"
    return ""
