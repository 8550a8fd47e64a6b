"""Find recorded runs: list a folder of runs, or find one by id, by path or as the latest."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from flatout.errors import AmbiguousRun, RecordError
from flatout.record.ending import Ending, ending_of
from flatout.record.fields import RUN
from flatout.record.json_files import read_json
from flatout.record.run import exists, is_run
from flatout.terminal_text import one_line

RUNS_FOLDER = Path(".flatout/runs")
LATEST = "latest"
_MOST_SAID = 80
_MOST_NAMED = 5
_LEAST_BEGINNING = 4  # characters of an id that mean its run


@dataclass(frozen=True)
class RunEntry:
    """One entry in a list of runs, read without the events."""

    id: str
    path: Path
    started: str  # ISO 8601, UTC; empty when run.json does not say
    command: tuple[str, ...]
    ending: Ending  # that of a run that is not readable is not known
    recorded_s: float | None
    readable: bool


def list_runs(folder: Path = RUNS_FOLDER) -> tuple[RunEntry, ...]:
    """The runs in ``folder``, oldest first; an absent folder has none.

    Raises:
        RecordError: it is no folder, or cannot be read.
    """
    try:
        entries = [_entry(path) for path in folder.iterdir() if path.is_dir() and is_run(path)]
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise RecordError(
            f"{folder} cannot be listed ({error.strerror}): name a folder of runs with --runs-dir"
        ) from None
    return tuple(sorted(entries, key=lambda entry: (entry.started, entry.id)))


def find_run(name: str | Path | None = None, folder: Path = RUNS_FOLDER) -> Path:
    """Path of the run that ``name`` means.

    Args:
        name: an id in ``folder``, how only one ends (``train`` of ``20261122-152932-train``) or begins
            (``20261122-15``), a path, "latest" or None (the run that started last).
        folder: where runs are recorded.

    Raises:
        RecordError: there is no such run, or several; the message names the nearest ids.
    """
    if name == "":
        raise RecordError("the run's name is empty: give an id (`flatout runs` lists them), a folder, or latest")
    wanted = str(name or LATEST)
    if is_run(folder / wanted):
        return folder / wanted
    runs = list_runs(folder)
    by_id = {entry.id: entry.path for entry in runs}
    if wanted in by_id:
        return by_id[wanted]
    # An id or "latest" is not a path; anything that exists is taken as a path.
    if wanted != LATEST and is_run(Path(wanted)):
        return Path(wanted)
    ending = [entry for entry in runs if entry.id.endswith(f"-{wanted}")]
    long = len(wanted) >= _LEAST_BEGINNING
    meant = ending or [
        entry for entry in runs if long and any(one.startswith(wanted) for one in (entry.id, entry.path.name))
    ]
    meant = [] if wanted == LATEST else meant
    if len(meant) == 1:
        return meant[0].path
    if meant:
        *others, last = (one_line(entry.path.name)[:_MOST_SAID] for entry in meant[-_MOST_NAMED:])
        count = f"{len(meant)} runs {'end in' if ending else 'begin with'} {wanted!r}"
        raise AmbiguousRun(f"{count}, the latest are {', '.join(others)} and {last}: give the whole id")
    if wanted != LATEST and exists(Path(wanted)):
        raise RecordError(
            f"{wanted} is not a run folder (no run.json in it): list the recorded runs with `flatout runs`"
        )
    if not runs:
        raise RecordError(f"no run in {folder}: record one with `flatout profile -- python train.py`")
    if wanted == LATEST:
        return runs[-1].path
    names = [entry.path.name for entry in runs]
    near = difflib.get_close_matches(wanted, names, n=3, cutoff=0.5) or names[-3:]
    said = wanted if len(wanted) <= _MOST_SAID else f"{wanted[:_MOST_SAID]}…"
    nearest = ", ".join(one_line(id)[:_MOST_SAID] for id in near)
    raise RecordError(f"no run {said!r} in {folder}: the nearest are {nearest}")


def _entry(path: Path) -> RunEntry:
    try:
        info = RUN(read_json(path / "run.json"), [])
    except (OSError, ValueError):
        return RunEntry(path.name, path, "", (), Ending(None, None), None, False)
    start_ns, end_ns = info.get("start_ns"), info.get("end_ns")
    return RunEntry(
        info.get("id") or path.name,
        path,
        info.get("started") or "",
        tuple(info.get("command") or ()),
        ending_of(info),
        (end_ns - start_ns) / 1e9 if start_ns is not None and end_ns is not None else None,
        True,
    )
