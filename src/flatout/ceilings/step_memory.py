"""Track the memory of one step of the unchanged command, at its own batch size and at twice that."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from flatout.errors import CommandError
from flatout.predict.step_memory import Tracked
from flatout.probe.contract import (
    MEMORY_METRICS,
    MEMORY_SAMPLES_METRIC,
    MEMORY_STEP_METRIC,
    MEMORY_VARIABLE,
    SETTINGS_VARIABLE,
)
from flatout.record import load_run
from flatout.runner import Bounds, record
from flatout.runner.failure import explain

WITHIN_S = 600.0


def track_steps(command: Sequence[str], runs_dir: Path) -> list[Tracked]:
    """One or two tracked steps; the second only where the batch size could be changed.

    Raises:
        CommandError: the command failed, or no step was tracked.
    """
    first = _track(command, runs_dir, {})
    if first is None:
        raise CommandError(
            "no step was tracked: the training has no optimizer of torch.optim, or its torch is older than 2.5"
        )
    if first.batch_size < 1:
        return [first]
    second = _track(command, runs_dir, {"batch_size": 2 * first.batch_size})
    return [first, second] if second is not None and second.batch_size == 2 * first.batch_size else [first]


def _track(command: Sequence[str], runs_dir: Path, settings: dict[str, int]) -> Tracked | None:
    outcome = record(
        command,
        runs_dir,
        Bounds(seconds=WITHIN_S),
        quiet=True,
        stdout_to_stderr=True,
        trace=False,
        environment={MEMORY_VARIABLE: "1", SETTINGS_VARIABLE: json.dumps(settings)},
    )
    if outcome.stop in ("interrupted", "terminated"):
        shutil.rmtree(outcome.run, ignore_errors=True)
        raise KeyboardInterrupt
    if outcome.stop == "failed":
        message, code = explain(outcome)
        shutil.rmtree(outcome.run, ignore_errors=True)
        raise CommandError(message, code)
    noted = _noted(outcome.run)
    shutil.rmtree(outcome.run, ignore_errors=True)
    samples, whole = int(noted.pop(MEMORY_SAMPLES_METRIC, 0)), int(noted.pop(MEMORY_STEP_METRIC, 0))
    by_kind = {name.removeprefix(MEMORY_METRICS): int(held) for name, held in noted.items()}
    return Tracked(samples, by_kind, whole) if by_kind else None


def _noted(path: Path) -> dict[str, float]:
    metrics = (metric for process in load_run(path).processes for metric in process.metrics())
    return {name: value for name, value in metrics if name.startswith(MEMORY_METRICS)}
