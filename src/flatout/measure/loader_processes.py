"""The processes that fetch the training loader's batches, each record read once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from flatout.measure.batch_wait import Activity, worker_activity
from flatout.measure.fetch_functions import FetchFunctions, fetch_functions
from flatout.measure.functions import STORAGE_GROUPS
from flatout.measure.samples import Samples, stack_samples
from flatout.measure.storage import (
    bytes_per_sample,
    data_folder,
    is_cold,
    mount_shares,
    peers_of,
    storage_is_counted,
)
from flatout.measure.timeline import intervals
from flatout.measure.training import Training
from flatout.measure.worker_records import (
    Fetches,
    WorkerGroup,
    divide_time,
    fetch_events,
    loader_settings,
    worker_groups,
)
from flatout.probe import events as kinds
from flatout.record import Events, ProcessRecord, Run, ends, no_events, of_kinds
from flatout.record.packed_fields import batch_samples

COUNTER_BYTES = 512  # the probe reads the kernel's counters, up to 200 bytes, once a fetch


@dataclass(frozen=True)
class LoaderProcesses:
    """The processes that make batches for the first training loader, each read once."""

    run: Run
    training: Training
    loader: int
    teams: tuple[WorkerGroup, ...]

    @cached_property
    def processes(self) -> tuple[ProcessRecord, ...]:
        """The workers of all teams; without workers, the training process itself."""
        found = {m.key: m for team in self.teams for m in team.members if m is not None}
        return tuple(found.values()) if self.teams else (self.training.process,)

    @cached_property
    def _events(self) -> tuple[Events, ...]:
        """Events of each fetching thread; in the training thread only what lies in the loader's own waits."""
        if self.teams:
            return tuple(fetch_events(process) for process in self.processes)
        events = self.training.events
        waits = of_kinds(events, kinds.BATCH_WAIT)
        waits = waits[waits["arg"] == self.loader]
        inside = intervals(waits["start"], ends(waits)).at(events["start"]) >= 0
        return (events[inside],)

    @cached_property
    def activities(self) -> tuple[Activity, ...]:
        """The activity of each fetching thread."""
        training = self.training
        if self.teams:
            found = tuple(worker_activity(process, training) for process in self.processes)
        else:
            found = (Activity(self._events[0], training.begin_ns, training.finish_ns),)
        for activity in found:
            activity.fetches = self._with_whole_batches(activity.fetches)
        return found

    def _with_whole_batches(self, fetches: Fetches) -> Fetches:
        """A data set that makes whole batches is asked for one thing at a time: it counts as its batch's samples."""
        settings = loader_settings(self.training, self.loader)
        if not settings or settings.get("batch_size") is not None or fetches.samples.max(initial=0) > 1:
            return fetches
        waits = self.training.kind(kinds.BATCH_WAIT)
        delivered = batch_samples(waits[waits["arg"] == self.loader])
        known = delivered[delivered > 0]
        size = int(np.median(known)) if len(known) else 1
        return replace(fetches, samples=fetches.samples * size)

    @property
    def activity_of(self) -> dict[str, Activity]:
        """The activity of each worker by the key of its process."""
        return {process.key: activity for process, activity in zip(self.processes, self.activities, strict=True)}

    @cached_property
    def samples(self) -> tuple[Samples, ...]:
        """Stack samples of each fetching thread."""
        pairs = zip(self._events, self.processes, strict=True)
        return tuple(stack_samples(events, process.names) for events, process in pairs)

    @cached_property
    def functions(self) -> FetchFunctions:
        """The time of the fetches inside the window, by function."""
        pairs = zip(self.activities, self.samples, strict=True)
        return fetch_functions(pairs, self.training.window_begin_ns, self.training.window_end_ns)

    @cached_property
    def mounts(self) -> dict[str, float]:
        """The share of each mount in the files read."""
        return mount_shares(self.run, self.processes)

    def fetches(self, begin_ns: int, finish_ns: int) -> tuple[Fetches, ...]:
        """The fetches that ended inside [begin_ns, finish_ns), by thread."""
        return tuple(_between(activity.fetches, begin_ns, finish_ns) for activity in self.activities)

    def cold(self, begin_ns: int, finish_ns: int) -> bool | None:
        """True if data fetched inside [begin_ns, finish_ns) came from storage; None: not measured, or some of each."""
        fetches = self.fetches(begin_ns, finish_ns)
        read, storage = bytes_per_sample(fetches)
        samples = sum(float(table.samples.sum()) for table in fetches)
        read, storage = (None if value is None else value * samples for value in (read, storage))
        return is_cold(read, storage, storage_is_counted(self.mounts))

    def reads_nothing(self, begin_ns: int, finish_ns: int) -> bool:
        """True if the fetches that ended inside [begin_ns, finish_ns) read no more than the probe's own counters.

        The kernel does not count what comes through a socket: a process that is connected to a host may read from it.
        """
        fetches = self.fetches(begin_ns, finish_ns)
        read, storage = bytes_per_sample(fetches)
        samples = sum(float(table.samples.sum()) for table in fetches)
        count = sum(len(table.samples) for table in fetches)
        return read is not None and read * samples <= COUNTER_BYTES * count and not storage and not self._peers

    @cached_property
    def reads_data(self) -> bool:
        """True if files other than programs' were seen open, or a remote host was connected to."""
        return data_folder(self.run, self.processes) is not None or bool(self._peers)

    @cached_property
    def _peers(self) -> tuple[str, ...]:
        return peers_of(self.processes)

    # untested: only in records of cold storage, which serial tests make
    def reading_s(self, begin_ns: int, finish_ns: int) -> float | None:
        """Seconds that a sample waits in reads, of those fetched inside [begin_ns, finish_ns); None: not measured."""
        fetches = self.fetches(begin_ns, finish_ns)
        blocked_s = sum(float(divide_time(t.wall_s, t.cpu_s, t.runqueue_s)[2].sum()) for t in fetches)
        samples = sum(float(table.samples.sum()) for table in fetches)
        if not samples or np.isnan(blocked_s):
            return None
        pairs = zip(self.activities, self.samples, strict=True)
        groups = fetch_functions(pairs, begin_ns, finish_ns).blocked_groups
        return blocked_s / samples * sum(groups.get(group, 0.0) for group in STORAGE_GROUPS)

    def spans(self, *wanted: int) -> Events:
        """Events of these kinds inside the window, of all processes that make batches."""
        begin, finish = self.training.window_begin_ns, self.training.window_end_ns
        if self.teams:
            found = np.concatenate([no_events(), *(process.of_kinds(*wanted) for process in self.processes)])
        else:
            found = of_kinds(self._events[0], *wanted)
        return found[(ends(found) > begin) & (ends(found) <= finish)]


def loader_processes(run: Run, training: Training) -> LoaderProcesses | None:
    """The side of the first training loader; None when training uses no DataLoader."""
    if training.loader is None:
        return None
    return LoaderProcesses(run, training, training.loader, worker_groups(run, training, training.loader))


def _between(table: Fetches, begin: int, finish: int) -> Fetches:
    """The fetches that ended inside an interval."""
    chosen = (table.end_ns > begin) & (table.end_ns <= finish)
    return Fetches(**{name: values[chosen] for name, values in vars(table).items()})
