"""Divide the wait for batches by the concurrent state of the worker that was waited for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from flatout.measure.timeline import GAP, Accrual, Floats, Ints, Pieces, exclusive_pieces, overlay, union
from flatout.measure.training import Training
from flatout.measure.worker_records import Fetches, WorkerGroup, fetch_events, fetch_table
from flatout.probe import events as kinds
from flatout.record import Events, ProcessRecord, ends

# Children of batch_wait: id -> label. "fetch" is what could not be divided.
LABELS = {
    "fetch_cpu": "fetching: computing",
    "fetch_runqueue": "fetching: waiting for a core",
    "fetch_blocked": "fetching: blocked (storage, network, locks)",
    "fetch": "fetching",
    "collate": "collating",
    "sampling": "choosing the indices of batches (sampler)",
    "ipc": "transferring the batch (IPC)",
    "worker_startup": "workers starting",
    "idle": "worker without work",
    "other": "other",
}
NO_SCHED = "on-CPU, run-queue and blocked time of fetches: not measured, because /proc/self/schedstat could not be read"
UNDIVIDED = "fetch"


@dataclass(frozen=True)
class Wait:
    """Pieces of time in which the training thread waited for a batch, one entry a piece."""

    start_ns: Ints
    end_ns: Ints
    worker: Ints  # -1: unknown
    batch: Ints  # index in its pass


class Activity:
    """The states of one fetching thread over time: one accrual per state."""

    def __init__(self, events: Events, begin_ns: int, finish_ns: int, others: Events | None = None) -> None:
        """Read one thread's ``events``; ``others`` are the events of its process's other threads."""
        wanted = (kinds.INDEX_WAIT, kinds.FETCH, kinds.COLLATE, kinds.PUT, kinds.WORKER_START)
        spans = events[np.isin(events["kind"], wanted)].copy()
        # Before a worker exists, it counts as starting too.
        early = spans["kind"] == kinds.WORKER_START
        spans["duration"][early] += spans["start"][early] - begin_ns
        spans["start"][early] = begin_ns
        pieces = exclusive_pieces(spans["start"].astype(np.int64), ends(spans), begin_ns, finish_ns)
        kind = np.where(pieces.owner == GAP, 0, spans["kind"][pieces.owner]) if len(spans) else np.zeros(len(pieces))
        self.fetches: Fetches = fetch_table(events)
        self._accruals: dict[str, Accrual] = {}
        feeder = others[others["kind"] == kinds.SERIALIZE] if others is not None else spans[:0]
        cut = overlay(pieces, union(feeder["start"], ends(feeder)))
        kind = kind[cut.base]
        pieces = Pieces(cut.start, cut.end, pieces.owner[cut.base])
        # The feeder thread pickles a batch while the fetch thread goes on: only while the fetch thread is idle
        # does that count as hand-over.
        handing = (kind == kinds.PUT) | ((cut.cover >= 0) & np.isin(kind, (0, kinds.INDEX_WAIT)))
        for state, mask in (
            ("worker_startup", kind == kinds.WORKER_START),
            ("collate", kind == kinds.COLLATE),
            ("ipc", handing),
            ("idle", (kind == kinds.INDEX_WAIT) & ~handing),
        ):
            self._accruals[state] = Accrual(pieces.take(mask))
        self.fetching = pieces.take(kind == kinds.FETCH)  # without the collate inside
        self.collating = pieces.take(kind == kinds.COLLATE)
        self._divide_fetches()

    def _divide_fetches(self) -> None:
        """Split fetching by each fetch's own scheduler counters; a collate is taken to run, not to block."""
        table = self.fetches
        row = np.searchsorted(table.start_ns, self.fetching.start, "right") - 1
        collate = Accrual(self.collating).between(table.start_ns, table.end_ns) / 1e9
        alone = np.maximum(table.wall_s - collate, 1e-12)
        # The kernel's counters may run a tick ahead of the clock.
        running = np.minimum(table.cpu_s + table.runqueue_s, table.wall_s)
        running = np.minimum(np.maximum(running - collate, 0.0), alone)
        on_core = table.cpu_s / np.maximum(table.cpu_s + table.runqueue_s, 1e-12)
        known = ~np.isnan(table.cpu_s)
        shares = {
            "fetch_cpu": np.where(known, running * on_core / alone, 0.0),
            "fetch_runqueue": np.where(known, running * (1.0 - on_core) / alone, 0.0),
            "fetch_blocked": np.where(known, 1.0 - running / alone, 0.0),
            UNDIVIDED: np.where(known, 0.0, 1.0),
        }
        for state, share in shares.items():
            self._accruals[state] = Accrual(self.fetching, share[row] if len(share) else np.zeros(0))

    def during(self, begin: Ints, finish: Ints) -> dict[str, Floats]:
        """Nanoseconds in each state between each pair of times."""
        return {state: accrual.between(begin, finish) for state, accrual in self._accruals.items()}

    def fetch_end(self, batch: Ints, since: Ints, until: Ints) -> Ints:
        """End of each batch's fetch: the latest one between ``since`` and ``until``; -1 if there was none."""
        table = self.fetches
        if not len(table):
            return np.full(len(batch), -1, np.int64)
        row = latest_before(table.batch, table.end_ns, batch, until)
        found = row >= 0
        found[found] = table.start_ns[row[found]] >= since[found]
        return np.where(found, table.end_ns[row], -1)


def latest_before(batch: Ints, time: Ints, wanted: Ints, until: Ints) -> Ints:
    """Row of the latest event of each wanted batch that is not after ``until``; -1 if there is none.

    Args:
        batch: of each event.
        time: of each event, ns.
        wanted: batches that are asked for.
        until: for each of them, ns.
    """
    # Events and questions sorted together: the answer is the last event before the question.
    count = len(batch)
    key, moment = np.concatenate([batch, wanted]), np.concatenate([time, until])
    asks = np.arange(len(key)) >= count
    order = np.lexsort((asks, moment, key))
    latest = np.maximum.accumulate(np.where(asks[order], -1, np.arange(len(order))))
    answer = np.empty(len(order), np.int64)
    answer[order] = np.where(latest >= 0, order[latest], -1)
    answer = answer[count:]
    return np.where((answer >= 0) & (key[answer] == wanted), answer, -1)


def divide_waits(
    training: Training, wait: Wait, teams: tuple[WorkerGroup, ...], activities: Mapping[str, Activity]
) -> dict[str, float]:
    """Seconds of the wait by what its worker did; ids as in LABELS, adding up to the whole wait.

    Args:
        training: the training side of the run.
        wait: pieces of waiting, in time order.
        teams: the loader's workers; empty when the batches are made in the training thread.
        activities: of each worker's fetching thread, by the key of its process.
    """
    totals = dict.fromkeys(LABELS, 0.0)
    left = Pieces(wait.start_ns, wait.end_ns, np.arange(len(wait.start_ns)))
    # What the training process itself does in a wait, whatever the workers do meanwhile.
    for state, spans in (
        ("sampling", training.kind(kinds.SAMPLING)),
        ("ipc", training.process.of_kinds(kinds.DESERIALIZE)),
    ):
        cut = overlay(left, union(spans["start"], ends(spans)))
        totals[state] += float((cut.end - cut.start)[cut.cover >= 0].sum())
        rest = cut.cover < 0
        left = Pieces(cut.start[rest], cut.end[rest], left.owner[cut.base[rest]])
    start, end = left.start, left.end
    worker, batch = wait.worker[left.owner], wait.batch[left.owner]
    if not teams:
        own = Activity(training.events, training.begin_ns, training.finish_ns)
        _add(totals, own.during(start, end).items(), 1.0)
    # Batch indices begin again with each pass.
    passes = np.append(training.begin_ns, training.pass_starts)
    pass_start = passes[np.searchsorted(training.pass_starts, start, "right")]
    begins = np.array([team.begin_ns for team in teams], np.int64)
    serving = np.searchsorted(begins, start, "right") - 1
    for number, team in enumerate(teams):
        for id, member in enumerate(team.members):
            mine = (serving == number) & (worker == id)
            unknown = (serving == number) & ((worker < 0) | (worker >= len(team.members)))
            if member is None or not (mine.any() or unknown.any()):
                continue
            activity = activities[member.key]
            made = activity.fetch_end(batch[mine], np.maximum(pass_start[mine], team.begin_ns), end[mine])
            # Once the batch is made, the rest of the wait is the hand-over, whatever the worker does next.
            made = np.where(made < 0, end[mine], np.clip(made, start[mine], end[mine]))
            totals["ipc"] += float((end[mine] - made).sum())
            _add(totals, activity.during(start[mine], made).items(), 1.0)
            # The worker that was waited for is unknown: each gets an equal part.
            _add(totals, activity.during(start[unknown], end[unknown]).items(), 1.0 / len(team.members))
    whole = float((wait.end_ns - wait.start_ns).sum())
    found = sum(totals.values())
    if found > whole:
        totals = {id: part * whole / found for id, part in totals.items()}
    totals["other"] = max(whole - found, 0.0)
    return {id: nanoseconds / 1e9 for id, nanoseconds in totals.items()}


def worker_activity(member: ProcessRecord, training: Training) -> Activity:
    """The activity of one worker's fetching thread over the whole record."""
    events = fetch_events(member)
    return Activity(events, training.begin_ns, training.finish_ns, member.events)


def _add(totals: dict[str, float], states: Iterable[tuple[str, Floats]], weight: float) -> None:
    for state, nanoseconds in states:
        totals[state] += float(nanoseconds.sum()) * weight
