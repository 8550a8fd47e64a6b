"""Track the memory of one step of the unchanged command, at its own batch size and at twice that."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from flatout.errors import CommandError
from flatout.predict.step_memory import Tracked
from flatout.record import load_run
from flatout.runner import Bounds, record
from flatout.runner.failure import explain

_PREFIX = "flatout/memory/"  # as in flatout/probe/hooks/memory.py, which cannot be imported without torch
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
        environment={"FLATOUT_MEMORY": "1", "FLATOUT_SETTINGS": json.dumps(settings)},
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
    samples, whole = int(noted.pop("samples", 0)), int(noted.pop("whole step", 0))
    return Tracked(samples, {name: int(held) for name, held in noted.items()}, whole) if noted else None


def _noted(path: Path) -> dict[str, float]:
    metrics = (metric for process in load_run(path).processes for metric in process.metrics())
    return {name.removeprefix(_PREFIX): value for name, value in metrics if name.startswith(_PREFIX)}
