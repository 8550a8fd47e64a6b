"""The folder of a training by a recipe, as it is read again: tables by epoch and by step, its plans, how it ended."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flatout.errors import UsageError

METRICS_FILE, STEPS_FILE, SUMMARY_FILE, DEADLINE_FILE = "metrics.csv", "steps.csv", "summary.json", "deadline.json"
SUBMISSION_FILE, INTENSITY_FILE = "submission.csv", "intensity.json"
LARGEST = 256 << 20  # bytes of a table
Columns = dict[str, list[float | None]]


@dataclass(frozen=True)
class Trained:
    """One fit: a training, or a fold of it.

    Attributes:
        name: of the fold's folder; empty: there are no folds.
        epochs: columns of metrics.csv; None where an epoch lacks a metric.
        steps: columns of steps.csv; empty: there is none.
        summary: how it ended; None: it has not.
    """

    name: str
    epochs: Columns
    steps: Columns
    summary: dict[str, Any] | None


@dataclass(frozen=True)
class TrainingFolder:
    """A training.

    Attributes:
        path: of the folder.
        fits: one, or one a fold.
        deadline: what ``deadline.json`` holds; None: there was no limit.
    """

    path: Path
    fits: tuple[Trained, ...]
    deadline: dict[str, Any] | None = field(default=None)


def is_training(folder: Path) -> bool:
    """True if ``flatout train`` has ended an epoch there."""
    return (folder / METRICS_FILE).is_file() or any(_folds(folder))


def read_training(folder: Path) -> TrainingFolder:
    """Read a folder of ``flatout train``, which may still be written.

    Raises:
        UsageError: a table in it is damaged or too large.
    """
    if (folder / METRICS_FILE).is_file():
        fits = [_fit(folder, "")]
    else:
        fits = [_fit(fold, fold.name) for fold in _folds(folder)]
    return TrainingFolder(folder, tuple(fits), _object(folder / DEADLINE_FILE))


def _folds(folder: Path) -> list[Path]:
    found = [path for path in folder.glob("fold-*") if path.name[5:].isdigit() and (path / METRICS_FILE).is_file()]
    return sorted(found, key=lambda path: int(path.name[5:]))


def _fit(folder: Path, name: str) -> Trained:
    epochs = _table(folder / METRICS_FILE)
    if "epoch" not in epochs:
        raise UsageError(f"{folder / METRICS_FILE}: has no column epoch: it is no table of `flatout train`")
    steps = _table(folder / STEPS_FILE) if (folder / STEPS_FILE).is_file() else {}
    return Trained(name, epochs, steps, _object(folder / SUMMARY_FILE))


def _table(path: Path) -> Columns:
    """A table of numbers; empty and non-finite values are None.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        if path.stat().st_size > LARGEST:
            raise UsageError(f"{path}: has over {LARGEST >> 20} MiB: it is no table of `flatout train`")
        rows = csv.reader(io.StringIO(path.read_text("utf-8")))
        names = next(rows, [])
        values = [[_number(text) for text in row] for row in rows if len(row) == len(names)]
    except (OSError, ValueError, csv.Error) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise UsageError(f"{path}: cannot be read: {why}") from None
    return {name: [row[place] for row in values] for place, name in enumerate(names)}


def _number(text: str) -> float | None:
    if not text:
        return None
    value = float(text)
    return value if math.isfinite(value) else None


def _object(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
