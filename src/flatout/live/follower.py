"""What is new in a run folder since the last look, read incrementally and from outside the training's processes."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from flatout.live.ranks import RanksFollower
from flatout.live.step_rows import GrowingSteps, StepRows
from flatout.measure.ranks import Ranks
from flatout.record import Events, Names, ProcessRecord, fields, no_events
from flatout.record.events import check_format
from flatout.record.growing import EventsTail, LinesTail
from flatout.record.json_files import parse, read_json
from flatout.record.names import NamesReading


@dataclass(frozen=True)
class News:
    """What one look found.

    Attributes:
        info: run.json, as it is now.
        samples: new machine samples.
        process: the process that trains; None: none does yet.
        steps: of that process, new ones; None as above.
        events: all new events of that process.
        loader: name id of the loader that feeds it; None: none does, or not yet.
        ranks: over their latest steps; None: there is one rank, or too few steps to compare them.
    """

    info: dict[str, Any]
    samples: tuple[dict[str, Any], ...] = ()
    process: ProcessRecord | None = None
    steps: StepRows | None = None
    events: Events = field(default_factory=no_events)
    loader: int | None = None
    ranks: Ranks | None = None

    @property
    def names(self) -> Names:
        """What the ids in the events mean."""
        return self.process.names if self.process is not None else Names()


class _Process:
    """One process that may train."""

    def __init__(self, folder: Path, stem: str, info: dict[str, Any]) -> None:
        self.record = ProcessRecord(stem, info, no_events(), Names())
        self.steps = GrowingSteps()
        self._events = EventsTail(folder / f"{stem}.events")
        self._lines = LinesTail(folder / f"{stem}.names")
        self._reading = NamesReading()

    def look(self, last: bool) -> tuple[Events, StepRows]:
        events = self._events.read()
        for line in self._lines.read():  # after the events: a name is written before what it names
            self._reading.take(line)
        self.record = replace(self.record, names=self._reading.names())
        return events, self.steps.take(replace(self.record, events=events), last=last)


class Follower:
    """Follows a run.

    Raises:
        RecordError: the run was written in a format that this version does not know.
    """

    def __init__(self, run: Path) -> None:
        self.run = run
        self._folder = run / "processes"
        self._info: dict[str, Any] = {}
        self._samples = LinesTail(run / "system.jsonl")
        self._seen: set[str] = set()
        self._candidates: dict[str, _Process] = {}
        self._lead: _Process | None = None
        self._ranks = RanksFollower(self._folder)

    def look(self, *, last: bool = False) -> News:
        """Read what is new.

        Args:
            last: nothing comes after this look, though the record is not closed.
        """
        self._read_info()
        # Read before the events: once it is closed, no event comes after those that are read now.
        last = last or self._info.get("end_ns") is not None
        samples = tuple(sample for line in self._samples.read() if (sample := _sample(line)) is not None)
        if self._lead is not None:
            return self._news(samples, self._lead, *self._lead.look(last))
        self._list()
        found = {stem: process.look(last) for stem, process in self._candidates.items()}
        trains = [process for process in self._candidates.values() if process.steps.trains]
        if not trains:
            return News(self._info, samples)
        # As the report: the lowest rank; without ranks the first that trains.
        self._lead = min(trains, key=lambda process: (process.record.rank or 0, process.record.start_ns))
        self._candidates.clear()
        return self._news(samples, self._lead, *found[self._lead.record.key])

    def _news(self, samples: tuple[dict[str, Any], ...], lead: _Process, events: Events, steps: StepRows) -> News:
        ranks = self._ranks.look() if lead.record.rank is not None else None
        return News(self._info, samples, lead.record, steps, events, lead.steps.loader, ranks)

    def _read_info(self) -> None:
        try:
            self._info = fields.RUN(read_json(self.run / "run.json"), [])
        except (OSError, ValueError):
            return  # being replaced, or damaged: what was read before still holds
        check_format(self._info.get("format"), self.run / "run.json")

    def _list(self) -> None:
        """Add processes that may train: with torch, and no worker of a DataLoader."""
        try:
            stems = {name.removesuffix(".events") for name in os.listdir(self._folder) if name.endswith(".events")}
        except OSError:
            return
        for stem in sorted(stems - self._seen):
            try:
                info = fields.PROCESS(read_json(self._folder / f"{stem}.json"), [])
            except FileNotFoundError:
                continue  # not yet written
            except (OSError, ValueError):
                info = {}
            self._seen.add(stem)
            pid, _, start_ns = stem.partition("-")
            if info.get("worker") is None and pid.isdecimal() and start_ns.isdecimal():
                known = {**info, "pid": int(pid), "start_ns": info.get("start_ns") or int(start_ns)}
                self._candidates[stem] = _Process(self._folder, stem, known)


def _sample(line: bytes) -> dict[str, Any] | None:
    try:
        sample: dict[str, Any] = fields.SAMPLE(parse(line), [])
    except ValueError:
        return None
    return sample
