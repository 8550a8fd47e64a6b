"""A run folder as plain objects. Damaged pieces give a partial run that says what is missing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from flatout.errors import RecordError
from flatout.probe import events as kinds
from flatout.record.events import Events, EventsFile, check_format, ends, no_events, of_kinds, read_events
from flatout.record.names import Names, read_names


@dataclass(frozen=True)
class ProcessRecord:
    """One Python process of the run. ``info`` is its JSON file as it was written."""

    key: str  # file stem, "pid-startns"
    info: dict[str, Any]
    events: Events
    names: Names
    clock_ns: int = 0  # CLOCK_MONOTONIC and
    wall_ns: int = 0  # wall clock, read together; both 0 without an events file

    @property
    def pid(self) -> int:
        """Process id."""
        return int(self.info["pid"])

    @property
    def ppid(self) -> int | None:
        """Process id of the parent."""
        return _whole(self.info.get("ppid"))

    @property
    def start_ns(self) -> int:
        """Start of the process, CLOCK_MONOTONIC."""
        return int(self.info["start_ns"])

    @property
    def end_ns(self) -> int | None:
        """End of the process; None when it was killed or still runs."""
        return _whole(self.info.get("end_ns"))

    @property
    def rank(self) -> int | None:
        """Rank of a distributed training, from the environment."""
        return _whole(self.info.get("rank"))

    @property
    def worker(self) -> int | None:
        """Worker id when this is a DataLoader worker."""
        return _whole(self.info.get("worker"))

    @cached_property
    def last_ns(self) -> int:
        """The latest moment that this process is known to have lived."""
        seen = [self.start_ns, self.end_ns or 0]
        if len(self.events):
            seen.append(int(ends(self.events).max()))
        return max(seen)

    def of_kinds(self, *kinds: int) -> Events:
        """The events of the given kinds."""
        return of_kinds(self.events, *kinds)

    def metrics(self) -> list[tuple[str, float]]:
        """Name and value of each METRIC event, in order; names that were lost are empty."""
        events = self.of_kinds(kinds.METRIC)
        values = np.ascontiguousarray(events["a"].astype("<i8")).view("<f8")
        names = (self.names.text(id) or "" for id in events["arg"].tolist())
        return list(zip(names, values.tolist(), strict=True))


@dataclass(frozen=True)
class Run:
    """A recorded run, whole or in part. ``info`` and ``machine`` are the JSON files as written."""

    path: Path
    info: dict[str, Any]
    machine: dict[str, Any]
    processes: tuple[ProcessRecord, ...]  # in order of their start
    problems: tuple[str, ...] = field(default=())

    @property
    def id(self) -> str:
        """The run's id; the folder's name when run.json does not say."""
        return str(self.info.get("id") or self.path.name)

    @property
    def command(self) -> tuple[str, ...]:
        """The recorded command."""
        return tuple(str(word) for word in self.info.get("command") or ())

    @property
    def window_end_ns(self) -> int | None:
        """When a bound closed the measured window."""
        return _whole(self.info.get("window_end_ns"))

    @cached_property
    def end_ns(self) -> int:
        """End of the record: as written, or else the last moment that any process was seen."""
        written = _whole(self.info.get("end_ns"))
        return written if written is not None else max((p.last_ns for p in self.processes), default=0)

    def system(self) -> Iterator[dict[str, Any]]:
        """The machine samples of system.jsonl, oldest first; damaged lines are skipped."""
        path = self.path / "system.jsonl"
        if not path.is_file():
            return
        with path.open("rb") as lines:
            for line in lines:
                try:
                    sample = json.loads(line)
                except ValueError:
                    continue
                if isinstance(sample, dict) and "t" in sample:
                    yield sample


def load_run(path: Path | str) -> Run:
    """Load the run folder at ``path``.

    Raises:
        RecordError: there is no run folder, it holds nothing, or its format is another one.
    """
    path = Path(path)
    if not path.exists():
        raise RecordError(f"no run at {path}: list the recorded runs with `flatout runs`")
    if not is_run(path):
        raise RecordError(f"{path} is not a run folder (no run.json in it): list the recorded runs with `flatout runs`")
    problems: list[str] = []
    info = _json(path / "run.json", problems)
    if info:
        check_format(info.get("format"), path / "run.json")
        if info.get("end_ns") is None:
            problems.append("the recording was not closed: it is still going on, or flatout was killed")
    stored = info.get("problems")
    problems += [str(problem) for problem in stored] if isinstance(stored, list) else []
    machine = _json(path / "machine.json", problems)
    processes = _processes(path / "processes", problems)
    if not processes:
        problems.append("no Python process was recorded")
    return Run(path, info, machine, processes, tuple(problems))


def is_run(path: Path) -> bool:
    """Whether ``path`` looks like a run folder, damaged or not."""
    return (path / "run.json").is_file() or any((path / "processes").glob("*.json"))


def _processes(folder: Path, problems: list[str]) -> tuple[ProcessRecord, ...]:
    stems = {file.stem for file in folder.glob("*") if file.suffix in (".json", ".events", ".names")}
    found = [_process(folder, stem, problems) for stem in sorted(stems)]
    return tuple(sorted((p for p in found if p is not None), key=lambda p: (p.start_ns, p.pid)))


def _process(folder: Path, stem: str, problems: list[str]) -> ProcessRecord | None:
    """One process from its files, whichever of them exist."""
    pid, _, start_ns = stem.partition("-")
    if not (pid.isdigit() and start_ns.isdigit()):
        problems.append(f"processes/{stem}.*: not named pid-start, left out")
        return None
    info = _json(folder / f"{stem}.json", problems)
    # The file name alone says enough to use the events of a process whose JSON file is gone.
    info = {**info, "pid": int(pid), "start_ns": _whole(info.get("start_ns")) or int(start_ns)}
    file = EventsFile(no_events(), int(pid), 0, 0, 0)
    if (folder / f"{stem}.events").is_file():
        file = read_events(folder / f"{stem}.events")
    names = Names()
    if (folder / f"{stem}.names").is_file():
        names = read_names(folder / f"{stem}.names")
    elif len(file.events):
        problems.append(f"processes/{stem}.names is missing: what the events refer to has no names")
    problems += [*file.problems, *names.problems]
    return ProcessRecord(stem, info, file.events, names, file.clock_ns, file.wall_ns)


def _json(path: Path, problems: list[str]) -> dict[str, Any]:
    """A JSON object, or an empty one and a sentence about it."""
    name = f"{path.parent.name}/{path.name}" if path.parent.name == "processes" else path.name
    try:
        loaded = json.loads(path.read_bytes())
    except FileNotFoundError:
        problems.append(f"{name} is missing")
        return {}
    except (OSError, ValueError) as error:
        problems.append(f"{name} cannot be read ({error})")
        return {}
    if not isinstance(loaded, dict):
        problems.append(f"{name} does not hold a JSON object")
        return {}
    return loaded


def _whole(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
