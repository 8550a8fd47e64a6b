"""A run folder as plain objects. Damaged pieces give a partial run that says what is missing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from flatout.errors import RecordError
from flatout.probe import events as kinds
from flatout.record import fields
from flatout.record.decoding import Decoder
from flatout.record.ending import Ending, ending_of
from flatout.record.events import Events, EventsFile, check_format, ends, no_events, of_kinds, read_events
from flatout.record.json_files import EndlessLineError, is_regular, parse, read_json, read_lines
from flatout.record.names import Names, listed, read_names
from flatout.units import counted

_STEM = re.compile(r"([0-9]{1,9})-([0-9]{1,18})")
_SUFFIXES = (".json", ".events", ".names")


@dataclass(frozen=True)
class ProcessRecord:
    """One Python process of the run. ``info`` is its JSON file, without fields of a wrong type."""

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
        return self.info.get("ppid")

    @property
    def start_ns(self) -> int:
        """Start of the process, CLOCK_MONOTONIC."""
        return int(self.info["start_ns"])

    @property
    def end_ns(self) -> int | None:
        """End of the process; None when it was killed or still runs."""
        return self.info.get("end_ns")

    @property
    def rank(self) -> int | None:
        """Rank of a distributed training, from the environment."""
        return self.info.get("rank")

    @property
    def worker(self) -> int | None:
        """Worker id when this is a DataLoader worker."""
        return self.info.get("worker")

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
    """A recorded run, whole or in part. ``info`` and ``machine`` are the JSON files, without fields of a wrong type."""

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
        return tuple(self.info.get("command") or ())

    @property
    def ending(self) -> Ending:
        """How the command ended."""
        return ending_of(self.info)

    @property
    def window_end_ns(self) -> int | None:
        """Time at which a bound closed the measured window; None if none did."""
        return self.info.get("window_end_ns")

    @cached_property
    def end_ns(self) -> int:
        """End of the record: as written, or else the last moment that any process was seen."""
        written: int | None = self.info.get("end_ns")
        return written if written is not None else max((p.last_ns for p in self.processes), default=0)

    def system(self) -> Iterator[dict[str, Any]]:
        """The machine samples of system.jsonl, oldest first; damaged lines and fields are skipped."""
        try:
            for line in read_lines(self.path / "system.jsonl"):
                try:
                    sample: dict[str, Any] = fields.SAMPLE(parse(line), [])
                except ValueError:
                    continue
                yield sample
        except (OSError, ValueError):
            return


def load_run(path: Path | str) -> Run:
    """Load the run folder at ``path``.

    Raises:
        RecordError: there is no run folder, it holds nothing, its run.json says nothing, or its format is another one.
    """
    path = Path(path)
    if not exists(path):
        raise RecordError(f"no run at {path}: list the recorded runs with `flatout runs`")
    if not is_run(path):
        raise RecordError(f"{path} is not a run folder (no run.json in it): list the recorded runs with `flatout runs`")
    _refuse_blank(path / "run.json")
    problems: list[str] = []
    info = _json(path / "run.json", fields.RUN, problems)
    if info is None:
        info = {}
    else:
        check_format(info.get("format"), path / "run.json")
        if info.get("end_ns") is None:
            problems.append("the recording was not closed: it is still going on, or flatout was killed")
    problems += info.get("problems") or []
    machine = _json(path / "machine.json", fields.MACHINE, problems) or {}
    problems += _system_problems(path / "system.jsonl")
    processes = _processes(path / "processes", problems)
    if not processes:
        problems.append("no Python process was recorded")
    # The workers of a process have what it has.
    untimed = {part: why for one in processes for part, why in (one.info.get("not_patched") or {}).items()}
    problems += [f"{part} could not be timed ({why}): what depends on it is missing" for part, why in untimed.items()]
    return Run(path, info, machine, processes, tuple(problems))


def _refuse_blank(file: Path) -> None:
    """Refuse a run.json that says nothing: without it, a run that went on would look like one that ended early.

    Raises:
        RecordError: it is empty, or holds no object.
    """
    try:
        empty = is_regular(file) and not file.stat().st_size
        if not empty and isinstance(read_json(file), dict):
            return
    except (OSError, ValueError):  # a problem of the record: the rest of it is read
        return
    what = "it is empty" if empty else "it holds no JSON object"
    raise RecordError(f"{file} is damaged ({what}): copy the run folder again, or record the training again")


def _system_problems(path: Path) -> list[str]:
    """Problems of the machine samples; an absent file is none."""
    damage: list[str] = []
    lost = 0
    try:
        for line in read_lines(path):
            try:
                fields.SAMPLE(parse(line), damage)
            except ValueError:
                lost += 1
    except FileNotFoundError:
        return []
    except EndlessLineError as error:
        return [f"{path.name}: {error}: the machine samples from there on are missing"]
    except (OSError, ValueError) as error:
        return [f"{path.name} cannot be read ({error}): the machine samples are missing"]
    problems = [f"{path.name}: {counted(lost, 'damaged line')} left out"] if lost else []
    return [*problems, f"{path.name}: {listed(damage)}"] if damage else problems


def is_run(path: Path) -> bool:
    """True if ``path`` looks like a run folder, damaged or not."""
    try:
        return is_regular(path / "run.json") or any((path / "processes").glob("*.json"))
    except (OSError, ValueError):
        return False


def exists(path: Path) -> bool:
    """True if ``path`` exists; False too for a name that nothing can have."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def _processes(folder: Path, problems: list[str]) -> tuple[ProcessRecord, ...]:
    try:
        present = {file.name for file in folder.iterdir() if file.suffix in _SUFFIXES}
    except OSError as error:
        problems.append(f"processes cannot be read ({error.strerror})")
        return ()
    stems = sorted({Path(name).stem for name in present})
    found = [_process(folder, stem, present, problems) for stem in stems]
    return tuple(sorted((p for p in found if p is not None), key=lambda p: (p.start_ns, p.pid)))


def _process(folder: Path, stem: str, present: set[str], problems: list[str]) -> ProcessRecord | None:
    """One process from its files, whichever of them are present."""
    named = _STEM.fullmatch(stem)
    if named is None:
        problems.append(f"processes/{stem}.*: not named pid-start, left out")
        return None
    pid, start_ns = int(named[1]), int(named[2])
    info = _json(folder / f"{stem}.json", fields.PROCESS, problems) or {}
    # The file name suffices to use the events of a process whose JSON file is missing.
    info = {**info, "pid": pid, "start_ns": info.get("start_ns") or start_ns}
    file = EventsFile(no_events(), pid, 0, 0, 0)
    if f"{stem}.events" in present:
        file = read_events(folder / f"{stem}.events")
    names = Names()
    if f"{stem}.names" in present:
        names = read_names(folder / f"{stem}.names")
    elif file.events["arg"].any():  # written with the first name: a worker that just started has none
        problems.append(f"processes/{stem}.names is missing: what the events refer to has no names")
    problems += [*file.problems, *names.problems]
    if info.get("fault"):
        last_line = info["fault"].strip().splitlines()[-1]
        problems.append(f"the probe failed in process {pid} and recorded nothing there afterwards: {last_line}")
    return ProcessRecord(stem, info, file.events, names, file.clock_ns, file.wall_ns)


def _json(path: Path, decode: Decoder, problems: list[str]) -> dict[str, Any] | None:
    """A JSON object without its damaged fields; None if absent. ``problems`` gets what is missing."""
    name = f"{path.parent.name}/{path.name}" if path.parent.name == "processes" else path.name
    damage: list[str] = []
    try:
        value = read_json(path)
    except FileNotFoundError:
        problems.append(f"{name} is missing")
        return None
    except (OSError, ValueError) as error:
        problems.append(f"{name} cannot be read ({error})")
        return None
    try:
        found: dict[str, Any] = decode(value, damage)
    except ValueError:
        problems.append(f"{name} does not hold a JSON object")
        return None
    if damage:
        problems.append(f"{name}: {listed(damage)}")
    return found
