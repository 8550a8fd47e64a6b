"""Find recorded runs: list a folder of runs, or find one by id, by path or as the latest."""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from pathlib import Path

from flatout.errors import RecordError
from flatout.record.run import is_run

RUNS_FOLDER = Path(".flatout/runs")
LATEST = "latest"


@dataclass(frozen=True)
class RunEntry:
    """What a list of runs shows without reading the events."""

    id: str
    path: Path
    started: str  # ISO 8601, UTC; empty when run.json does not say
    command: tuple[str, ...]
    stop: str | None  # how the recording ended; None: not closed, or not readable
    exit_code: int | None
    recorded_s: float | None
    readable: bool


def list_runs(folder: Path = RUNS_FOLDER) -> tuple[RunEntry, ...]:
    """The runs in ``folder``, oldest first; an absent folder has none."""
    if not folder.is_dir():
        return ()
    entries = [_entry(path) for path in folder.iterdir() if path.is_dir() and is_run(path)]
    return tuple(sorted(entries, key=lambda entry: (entry.started, entry.id)))


def find_run(name: str | Path | None = None, folder: Path = RUNS_FOLDER) -> Path:
    """Path of the run that ``name`` means.

    Args:
        name: an id in ``folder``, a path, "latest" or None (the run that started last).
        folder: where runs are recorded.

    Raises:
        RecordError: there is no such run; the message names the nearest ids.
    """
    wanted = str(name or LATEST)
    if (folder / wanted).is_dir() and is_run(folder / wanted):
        return folder / wanted
    runs = list_runs(folder)
    by_id = {entry.id: entry.path for entry in runs}
    if wanted in by_id:
        return by_id[wanted]
    # An id or "latest" is no place on the disk; anything that exists was meant as a path.
    if wanted != LATEST and Path(wanted).exists():
        if is_run(Path(wanted)):
            return Path(wanted)
        raise RecordError(
            f"{wanted} is not a run folder (no run.json in it): list the recorded runs with `flatout runs`"
        )
    if not runs:
        raise RecordError(f"no run in {folder}: record one with `flatout profile -- python train.py`")
    if wanted == LATEST:
        return runs[-1].path
    near = difflib.get_close_matches(wanted, by_id, n=3, cutoff=0.5) or [entry.id for entry in runs[-3:]]
    raise RecordError(f"no run {wanted!r} in {folder}: the nearest are {', '.join(near)}")


def _entry(path: Path) -> RunEntry:
    try:
        info = json.loads((path / "run.json").read_bytes())
    except (OSError, ValueError):
        info = None
    if not isinstance(info, dict):
        return RunEntry(path.name, path, "", (), None, None, None, False)
    start_ns, end_ns = info.get("start_ns"), info.get("end_ns")
    recorded_s = (end_ns - start_ns) / 1e9 if isinstance(start_ns, int) and isinstance(end_ns, int) else None
    command = tuple(str(word) for word in info.get("command") or ())
    return RunEntry(
        str(info.get("id") or path.name),
        path,
        str(info.get("started") or ""),
        command,
        info.get("stop"),
        info.get("exit_code"),
        recorded_s,
        True,
    )
