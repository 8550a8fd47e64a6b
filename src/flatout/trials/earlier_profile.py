"""The latest profile of the same training: ``flatout fix`` tries what it proposed, too."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from flatout.errors import RecordError
from flatout.measure.training import find_training
from flatout.record import RUNS_FOLDER, Run, load_run
from flatout.record.folder import RunEntry, list_runs


def latest_profile(command: Sequence[str], folder: Path = RUNS_FOLDER) -> Run | None:
    """The latest readable profile of this command, if none of the files that it names has changed since.

    Args:
        command: its words.
        folder: of the recorded runs.
    """
    try:
        same = [entry for entry in list_runs(folder) if entry.readable and entry.command == tuple(command)]
        if not same or _changed_since(same[-1]):
            return None
        return load_run(same[-1].path)
    except RecordError:
        return None


def same_threads(run: Run, other: Run) -> bool:
    """True if two trainings computed with as many threads: what one proposes is news to the other."""
    return _threads(run) == _threads(other)


def _threads(run: Run) -> int | None:
    training = find_training(run)
    found = training.process.info.get("threads") if training is not None else None
    return found if isinstance(found, int) else None


def _changed_since(entry: RunEntry) -> bool:
    try:
        began_s = datetime.fromisoformat(entry.started).timestamp()
        files = [path for path in map(Path, entry.command[1:]) if path.is_file()]
        return any(path.stat().st_mtime > began_s for path in files)
    except (ValueError, OSError):
        return True
