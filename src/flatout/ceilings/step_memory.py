"""Track the memory of one step of the unchanged command, at its own batch size and at twice that."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from flatout.errors import CommandError, Interrupted
from flatout.predict.step_memory import Tracked
from flatout.probe.contract import (
    MEMORY_FORWARD_METRIC,
    MEMORY_METRICS,
    MEMORY_SAMPLES_METRIC,
    MEMORY_STEP_METRIC,
    MEMORY_VARIABLE,
    SETTINGS_VARIABLE,
)
from flatout.record import load_run
from flatout.runner import Bounds, record
from flatout.runner.failure import explain
from flatout.runner.progress import FIRST_LINE_S, LONGEST_PAUSE_S, Progress
from flatout.units import duration

WITHIN_S = 600.0


def track_steps(command: Sequence[str], runs_dir: Path, quiet: bool = False) -> list[Tracked]:
    """One or two tracked steps; the second only where the batch size could be changed.

    Raises:
        CommandError: the command failed, or no step was tracked.
    """
    say = Progress(Bounds(), quiet).say
    say("run 1 of 2: the second step at its own batch size is tracked; the script ends after it")
    first = _track(command, runs_dir, {}, say)
    if first is None:
        raise CommandError(
            "no step was tracked: the training has no optimizer of torch.optim, or its torch is older than 2.5"
        )
    if first.batch_size < 1:
        return [first]
    say(f"run 2 of 2: the same at batch size {2 * first.batch_size}, instead of {first.batch_size}")
    second = _track(command, runs_dir, {"batch_size": 2 * first.batch_size}, say)
    return [first, second] if second is not None and second.batch_size == 2 * first.batch_size else [first]


def _track(
    command: Sequence[str], runs_dir: Path, settings: dict[str, int], say: Callable[[str], None]
) -> Tracked | None:
    outcome = record(
        command,
        runs_dir,
        Bounds(seconds=WITHIN_S),
        quiet=True,
        guard=_elapsed(say),
        stdout_to_stderr=True,
        trace=False,
        environment={MEMORY_VARIABLE: "1", SETTINGS_VARIABLE: json.dumps(settings)},
    )
    if outcome.signal:
        shutil.rmtree(outcome.run, ignore_errors=True)
        raise Interrupted(outcome.signal)
    noted = _noted(outcome.run)
    # A framework may turn the end after that step into an exit code of its own: Lightning takes it for Ctrl-C.
    if outcome.stop == "failed" and MEMORY_STEP_METRIC not in noted:
        message, code = explain(outcome)
        shutil.rmtree(outcome.run, ignore_errors=True)
        raise CommandError(message, code)
    shutil.rmtree(outcome.run, ignore_errors=True)
    other = (MEMORY_SAMPLES_METRIC, MEMORY_STEP_METRIC, MEMORY_FORWARD_METRIC)
    samples, whole, forward = (int(noted.pop(name, 0)) for name in other)
    by_kind = {name.removeprefix(MEMORY_METRICS): int(held) for name, held in noted.items()}
    return Tracked(samples, by_kind, whole, forward) if by_kind else None


def _elapsed(say: Callable[[str], None]) -> Callable[[], None]:
    """A function to be called often, which says at growing intervals how long the run has taken so far."""
    began_s = time.monotonic()
    pause_s = FIRST_LINE_S
    next_s = began_s + pause_s

    def look() -> None:
        nonlocal pause_s, next_s
        now_s = time.monotonic()
        if now_s >= next_s:
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            next_s = now_s + pause_s
            say(f"{duration(now_s - began_s)} so far")

    return look


def _noted(path: Path) -> dict[str, float]:
    metrics = (metric for process in load_run(path).processes for metric in process.metrics())
    return {name: value for name, value in metrics if name.startswith(MEMORY_METRICS)}
