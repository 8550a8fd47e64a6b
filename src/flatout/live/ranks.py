"""The ranks of a training that goes on, compared over their latest steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from flatout.measure.ranks import Ranks, compare_ranks, rank_steps, step_edges
from flatout.measure.timeline import Floats
from flatout.probe import events as kinds
from flatout.record import Events, Names, ProcessRecord, fields, no_events, of_kinds
from flatout.record.growing import EventsTail
from flatout.record.json_files import read_json

LATEST = 200  # steps that are compared
LEAST = 40
MOST_PENDING = 100_000  # events without a complete step
_KINDS = (kinds.BATCH_WAIT, kinds.FORWARD, kinds.BACKWARD, kinds.COLLECTIVE)


class GrowingRank:
    """The latest steps of one rank, from its events, given a part at a time."""

    def __init__(self, process: ProcessRecord) -> None:
        self.count = 0  # steps since the begin
        self.latest: dict[int, Floats] = {}
        self._process = process
        self._pending = no_events()

    def take(self, new: Events) -> None:
        """Take in new events of the process."""
        events = np.concatenate((self._pending, of_kinds(new, *_KINDS)))
        self._pending = events[-MOST_PENDING:]
        found = rank_steps(replace(self._process, events=self._pending))
        if found is None or not len(found[-1]):
            return
        self.count += len(found[-1])
        for kind, seconds in found.items():
            had = self.latest.get(kind)
            self.latest[kind] = (seconds if had is None else np.concatenate((had, seconds)))[-LATEST:]
        # The step before the last mark was told, and is the first of the next part, which is left out there.
        passes = of_kinds(self._pending, kinds.BACKWARD, kinds.COLLECTIVE)
        thread = int(np.bincount(passes["thread"]).argmax())
        edges = step_edges(self._pending[self._pending["thread"] == thread])
        self._pending = self._pending[self._pending["start"] >= edges[-2]]


class RanksFollower:
    """Follows all ranks that a run folder holds.

    Ranks on GPUs are not compared: there a backward pass lasts as long as the device says, which is not followed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: set[str] = set()
        self._ranks: dict[int, tuple[GrowingRank, EventsTail]] = {}
        self._on_gpus = False

    def look(self) -> Ranks | None:
        """The ranks over their latest steps; None: one rank, too few steps, or GPUs."""
        self._list()
        if self._on_gpus or len(self._ranks) < 2:
            return None
        for rank, tail in self._ranks.values():
            rank.take(tail.read())
        begin = max(rank.count - len(rank.latest.get(-1, ())) for rank, _ in self._ranks.values())
        end = min(rank.count for rank, _ in self._ranks.values())
        if end - begin < LEAST:
            return None
        return compare_ranks([
            (number, {kind: seconds[begin - first : end - first] for kind, seconds in rank.latest.items()})
            for number, (rank, _) in sorted(self._ranks.items())
            for first in (rank.count - len(rank.latest[-1]),)
        ])  # fmt: skip

    def _list(self) -> None:
        for path in sorted(self._folder.glob("*.json")):
            if path.stem in self._seen:
                continue
            try:
                info: dict[str, Any] = fields.PROCESS(read_json(path), [])
            except (OSError, ValueError):
                continue  # not yet whole
            self._seen.add(path.stem)
            if info.get("rank") is None or info.get("worker") is not None:
                continue
            self._on_gpus = self._on_gpus or bool(info.get("device_count"))
            process = ProcessRecord(path.stem, info, no_events(), Names())
            self._ranks[info["rank"]] = GrowingRank(process), EventsTail(path.with_suffix(".events"))
