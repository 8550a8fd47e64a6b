"""The processes that worked for a loader, and the cost of each of their fetches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from flatout.measure.timeline import Floats, Ints
from flatout.measure.training import Training
from flatout.probe import events as kinds
from flatout.record import Events, ProcessRecord, Run, ends, of_kinds
from flatout.record.packed_fields import batch_worker


@dataclass(frozen=True)
class WorkerGroup:
    """The workers that served a loader from one moment on, by worker id; None: no record of that one."""

    begin_ns: int
    members: tuple[ProcessRecord | None, ...]


@dataclass(frozen=True)
class Fetches:
    """One entry a fetch, in time order; seconds, NaN where a counter could not be read."""

    start_ns: Ints
    end_ns: Ints
    batch: Ints
    samples: Ints
    cpu_s: Floats
    runqueue_s: Floats
    read_bytes: Floats
    storage_bytes: Floats
    process_cpu_s: Floats
    major_faults: Floats

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def wall_s(self) -> Floats:
        """Wall time of each fetch."""
        return (self.end_ns - self.start_ns) / 1e9


def loader_settings(training: Training, loader: int) -> dict[str, Any]:
    """The recorded settings of a loader; empty if its name was lost."""
    return training.process.names.get(loader, "loader")


def worker_count(training: Training, loader: int) -> int:
    """num_workers of a loader; where its name was lost, what its batches say."""
    written = loader_settings(training, loader).get("num_workers")
    if isinstance(written, int):
        return written
    waits = training.kind(kinds.BATCH_WAIT)
    workers = batch_worker(waits[waits["arg"] == loader])
    return int(workers.max()) + 1 if len(workers) else 0


def worker_groups(run: Run, training: Training, loader: int) -> tuple[WorkerGroup, ...]:
    """The teams of workers that served ``loader``, in time order."""
    if loader_settings(training, loader).get("threads"):
        return tuple(_threads_as_team(training, loader))
    starts = training.kind(kinds.ITER_START)
    starts = starts[starts["arg"] == loader]
    teams = []
    for entry in training.process.names.workers:
        if entry.get("loader") != loader:
            continue
        begin = starts["start"][starts["a"] == entry.get("iteration")]
        near = int(begin[0]) if len(begin) else None
        members = tuple(_record(run, pid, near) for pid in entry.get("pids") or ())
        known = [member.start_ns for member in members if member is not None]
        teams.append(WorkerGroup(near if near is not None else min(known, default=0), members))
    if not teams and worker_count(training, loader):
        teams = _teams_by_parent(run, training, loader)
    return tuple(sorted(teams, key=lambda team: team.begin_ns))


def _threads_as_team(training: Training, loader: int) -> list[WorkerGroup]:
    """The threads of the training process that make this loader's batches, each treated as one worker."""
    process = training.process
    fetches = process.of_kinds(kinds.FETCH)
    slots = np.unique(fetches["thread"][(fetches["arg"] == loader)])
    members = tuple(
        replace(process, key=f"{process.key}:{slot}", events=process.events[process.events["thread"] == slot])
        for slot in slots
    )
    return [WorkerGroup(training.begin_ns, members)] if members else []


def _record(run: Run, pid: int, near_ns: int | None) -> ProcessRecord | None:
    """The process with this id; of several with a reused id the one that started nearest."""
    same = [p for p in run.processes if p.pid == pid]
    return min(same, key=lambda p: abs(p.start_ns - (near_ns or p.start_ns)), default=None)


def _teams_by_parent(run: Run, training: Training, loader: int) -> list[WorkerGroup]:
    """Without names: the workers that this process started, when they can be of one loader only."""
    with_workers = [id for id in (*training.loaders, *training.other_loaders) if worker_count(training, id)]
    if with_workers != [loader]:
        return []
    by_id: dict[int, list[ProcessRecord]] = {}
    for process in run.processes:  # in order of their start
        if process.worker is not None and process.ppid == training.process.pid:
            by_id.setdefault(process.worker, []).append(process)
    if not by_id:
        return []
    rounds = max(map(len, by_id.values()))
    found = []
    for turn in range(rounds):
        members = tuple(by_id.get(id, [])[turn : turn + 1] for id in range(max(by_id) + 1))
        flat = tuple(member[0] if member else None for member in members)
        found.append(WorkerGroup(min(member.start_ns for member in flat if member is not None), flat))
    return found


def fetch_events(process: ProcessRecord) -> Events:
    """Events of the thread that fetches, in order of start."""
    fetches = process.of_kinds(kinds.FETCH)
    thread = int(np.bincount(fetches["thread"]).argmax()) if len(fetches) else 0
    events = process.events[process.events["thread"] == thread]
    return np.asarray(events[np.argsort(events["start"], kind="stable")])


def fetch_table(events: Events) -> Fetches:
    """The fetches among one thread's events, each joined with its counters (same start, same duration)."""
    fetch = of_kinds(events, kinds.FETCH)
    fetch = fetch[np.argsort(fetch["start"], kind="stable")]

    def joined(kind: int) -> tuple[Floats, Floats]:
        counter = of_kinds(events, kind)
        counter = counter[np.argsort(counter["start"], kind="stable")]
        a, b = np.full(len(fetch), np.nan), np.full(len(fetch), np.nan)
        if len(counter):
            row = np.minimum(np.searchsorted(counter["start"], fetch["start"]), len(counter) - 1)
            same = (counter["start"][row] == fetch["start"]) & (counter["duration"][row] == fetch["duration"])
            a[same], b[same] = counter["a"][row][same], counter["b"][row][same]
            # The probe looks closely at some of many fast fetches: the others are like the nearest of those.
            known = np.flatnonzero(same)
            if len(known):
                right = np.minimum(np.searchsorted(known, np.arange(len(fetch))), len(known) - 1)
                left = np.maximum(right - 1, 0)
                nearer_left = np.arange(len(fetch)) - known[left] < known[right] - np.arange(len(fetch))
                nearest = known[np.where(nearer_left, left, right)]
                scale = fetch["duration"] / np.maximum(fetch["duration"][nearest], 1)
                a, b = np.where(same, a, a[nearest] * scale), np.where(same, b, b[nearest] * scale)
        return a, b

    cpu, runqueue = joined(kinds.FETCH_SCHED)
    read, storage = joined(kinds.FETCH_IO)
    process_cpu, faults = joined(kinds.FETCH_PROCESS)
    return Fetches(
        start_ns=fetch["start"].astype(np.int64),
        end_ns=ends(fetch),
        batch=fetch["a"].astype(np.int64),
        samples=fetch["b"].astype(np.int64),
        cpu_s=cpu / 1e9,
        runqueue_s=runqueue / 1e9,
        read_bytes=read,
        storage_bytes=storage,
        process_cpu_s=process_cpu / 1e9,
        major_faults=faults,
    )


def divide_time(wall_s: Floats, cpu_s: Floats, runqueue_s: Floats) -> tuple[Floats, Floats, Floats]:
    """On a core, waiting for one, and blocked: parts of each interval that together add up to the wall time.

    The kernel updates its counters at its ticks, so that one interval shows time that belongs to its neighbour:
    single values may exceed their interval. Sums are kept; where even they exceed the wall time, all shrink alike.
    """
    wall, used = float(wall_s.sum()), float((cpu_s + runqueue_s).sum())
    scale = wall / used if used > wall else 1.0
    cpu_s, runqueue_s = cpu_s * scale, runqueue_s * scale
    blocked_s = np.maximum(wall_s - cpu_s - runqueue_s, 0.0)
    left, found = max(wall - used * scale, 0.0), float(blocked_s.sum())
    return cpu_s, runqueue_s, blocked_s * (left / found if found > 0 else 0.0)
