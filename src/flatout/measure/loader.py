"""Measure the training's DataLoader: its settings, fetches, batches, workers, storage and functions."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import numpy as np

from flatout.measure.array_reads import array_reads
from flatout.measure.batch_wait import NO_SCHED
from flatout.measure.loader_processes import LoaderProcesses, loader_processes
from flatout.measure.loader_stats import (
    Delivery,
    FetchTimes,
    FirstFetch,
    FunctionShares,
    LoaderSettings,
    LoaderStats,
    StorageReads,
    WorkerLives,
    mean_s,
)
from flatout.measure.pass_length import declared_steps
from flatout.measure.queue_state import head_of_line_s, mean_ready
from flatout.measure.samples import top_lines
from flatout.measure.sampling import indices_s, order_s
from flatout.measure.slow_samples import slow_samples
from flatout.measure.storage import (
    bytes_per_sample,
    data_folder,
    extensions,
    files_per_sample,
    opens_per_file,
    peers_of,
    storage_is_counted,
)
from flatout.measure.timeline import Accrual, Floats, Ints, union
from flatout.measure.training import Training
from flatout.measure.transform_costs import transform_costs
from flatout.measure.worker_records import Fetches, divide_time, loader_settings, worker_count
from flatout.probe import events as kinds
from flatout.record import Events, Run, ends, no_events
from flatout.record.packed_fields import batch_samples
from flatout.units import counted


def build_loading(run: Run, training: Training, side: LoaderProcesses | None = None) -> LoaderStats | None:
    """Measure the training's DataLoader within the window; None when training uses none.

    Args:
        run: the record.
        training: ``find_training(run)``.
        side: ``loader_processes(run, training)``, if the caller has it.
    """
    side = side or loader_processes(run, training)
    if side is None:
        return None
    fetches = side.fetches(training.window_begin_ns, training.window_end_ns)
    settings = _settings(side)
    times = _fetch_times(side, fetches)
    return LoaderStats(
        settings=settings,
        fetch=times,
        delivery=_delivery(side, fetches, settings.num_workers),
        workers=_worker_lives(side),
        storage=_storage_reads(side, fetches),
        functions=_function_shares(side, times),
        not_measured=_not_measured(side, fetches, settings.num_workers),
    )


def _settings(side: LoaderProcesses) -> LoaderSettings:
    recorded = loader_settings(side.training, side.loader)
    return LoaderSettings(
        num_workers=worker_count(side.training, side.loader),
        batch_size=_whole(recorded.get("batch_size")),
        prefetch_factor=_whole(recorded.get("prefetch_factor")),
        persistent_workers=bool(recorded.get("persistent_workers")),
        pin_memory=bool(recorded.get("pin_memory")),
        start_method=recorded.get("start_method"),
        site=str(recorded.get("site") or "unknown"),
        dataset_len=_whole(recorded.get("dataset_len")),
        drop_last=bool(recorded.get("drop_last")),
        in_order=recorded.get("in_order") is not False,
        rebuilt=bool(recorded.get("rebuilt")),
        collates=recorded.get("collate_fn") == "default_collate" and not recorded.get("iterable"),
    )


def _fetch_times(side: LoaderProcesses, fetches: tuple[Fetches, ...]) -> FetchTimes:
    order = _batch_order(fetches, side.training.pass_starts)
    wall = np.concatenate([table.wall_s for table in fetches] or [np.zeros(0)])[order]
    cpu, runqueue = _joined(fetches, "cpu_s", order), _joined(fetches, "runqueue_s", order)
    blocked: Floats | None = None
    if cpu is not None and runqueue is not None:
        cpu, runqueue, blocked = divide_time(wall, cpu, runqueue)
    items = side.spans(kinds.ITEM)
    item_s = _seconds(items)
    queued = mean_s(runqueue) / mean_s(wall) if mean_s(wall) else 0.0
    return FetchTimes(
        wall_s=wall,
        cpu_s=cpu,
        runqueue_s=runqueue,
        blocked_s=blocked,
        process_cpu_s=_joined(fetches, "process_cpu_s", order),
        collate_s=_seconds(side.spans(kinds.COLLATE)),
        item_s=item_s,
        transforms=transform_costs(side),
        slow=slow_samples(item_s, items["a"], queued),
    )


def _delivery(side: LoaderProcesses, fetches: tuple[Fetches, ...], workers: int) -> Delivery:
    training = side.training
    begin, finish = training.window_begin_ns, training.window_end_ns
    waits = training.kind(kinds.BATCH_WAIT)
    waits = waits[(waits["arg"] == side.loader) & (ends(waits) > begin) & (ends(waits) <= finish)]
    waited_s, ahead_s = indices_s(training, side.loader)
    made = [activity.fetches for activity in side.activities]
    sent = side.spans(kinds.SERIALIZE)
    return Delivery(
        batches=len(waits),
        samples=int(batch_samples(waits).sum()),
        batch_bytes=_whole(loader_settings(training, side.loader).get("batch_bytes")),
        epochs_started=int(np.count_nonzero((training.pass_starts >= begin) & (training.pass_starts < finish))),
        passes_before=int(np.count_nonzero(training.pass_starts < begin)),
        steps_of_pass=declared_steps(training),
        wait_s=training.steps.wait_s[training.in_window],
        whole_step_s=training.steps.duration_s[training.in_window],
        serialize_s=_seconds(sent),
        deserialize_s=_seconds(_in_window(training, training.process.of_kinds(kinds.DESERIALIZE))),
        pickled_bytes=_mean_bytes(sent),
        head_of_line_s=head_of_line_s(waits, made, training.pass_starts) if workers > 1 else None,
        mean_ready=mean_ready(waits) if workers else None,
        sampling_s=0.0 if workers else order_s(waits, fetches),
        indices_s=waited_s,
        indices_ahead_s=ahead_s,
        layout=tuple(map(str, loader_settings(training, side.loader).get("batch_layout") or ())),
    )


def _worker_lives(side: LoaderProcesses) -> WorkerLives:
    if not side.teams:
        first = _first_fetch_of_passes(side)
        return WorkerLives(None, np.zeros(0), len(side.spans(kinds.WORKER_START)), pass_first_fetch=first)
    starts = np.concatenate([process.of_kinds(kinds.WORKER_START) for process in side.processes] or [no_events()])
    return WorkerLives(
        idle_share=_idle_share(side),
        start_s=_seconds(starts),
        set_up_s=np.asarray(starts["b"] / 1e9, np.float64),
        starts_in_window=len(side.spans(kinds.WORKER_START)),
        first_fetch=_first_fetch(side),
        pass_first_fetch=_first_fetch_of_passes(side),
    )


def _first_fetch(side: LoaderProcesses) -> FirstFetch:
    made = [activity.fetches for activity in side.activities]
    return _beyond_usual(side, [(table, np.array([0])) for table in made if len(table)])


def _first_fetch_of_passes(side: LoaderProcesses) -> FirstFetch:
    """Of a data set that reads or builds something in its ``__iter__``, it is the first fetch that takes long.

    Without workers too, where the training process fetches.
    """
    found = []
    for table in (activity.fetches for activity in side.activities):
        row = np.unique(np.searchsorted(table.start_ns, side.training.pass_starts))
        found.append((table, row[(row > 0) & (row < len(table))]))
    return _beyond_usual(side, found)


def _beyond_usual(side: LoaderProcesses, rows: Iterable[tuple[Fetches, Ints]]) -> FirstFetch:
    """What some fetches take beyond a usual one.

    Args:
        side: of the training's loader.
        rows: of each table of fetches, in the order of their starts.
    """
    begin, finish = side.training.window_begin_ns, side.training.window_end_ns
    wall_s = np.concatenate([table.wall_s for table in side.fetches(begin, finish)] or [np.zeros(0)])
    chosen = [(table.start_ns[row], table.end_ns[row], table.wall_s[row]) for table, row in rows]
    if not chosen:
        return FirstFetch()
    start, end, took_s = (np.concatenate(column) for column in zip(*chosen, strict=True))
    inside = (begin < start) & (end <= finish)
    start, end, took_s = start[inside], end[inside], took_s[inside]
    if not len(start) or not wall_s.sum():
        return FirstFetch()
    usual_s = float(np.median(wall_s))
    usual_end = start + round(1e9 * usual_s)
    late = union(usual_end, np.maximum(usual_end, end))
    waits = side.training.kind(kinds.BATCH_WAIT)
    waits = waits[waits["arg"] == side.loader]
    waited_ns = Accrual(union(waits["start"], ends(waits))).between(late.start, late.end).sum()
    return FirstFetch(
        usual_s=usual_s,
        mean_s=float(took_s.mean()),
        waited_s=float(waited_ns) / 1e9,
        part=float(np.maximum(took_s - usual_s, 0.0).sum() / wall_s.sum()),
    )


def _storage_reads(side: LoaderProcesses, fetches: tuple[Fetches, ...]) -> StorageReads:
    read, uncached = bytes_per_sample(fetches)
    opens, files = opens_per_file(side.processes)
    clients = side.functions.clients
    folder = data_folder(side.run, side.processes)
    return StorageReads(
        bytes_read_per_sample=read,
        uncached_bytes_per_sample=uncached,
        mounts=side.mounts,
        peers=peers_of(side.processes),
        files_per_sample=files_per_sample(side.processes, _samples_fetched(side)),
        opens_per_file=opens,
        files=files,
        client=max(clients, key=clients.__getitem__, default=None),
        data_folder=folder if folder != "/" else None,  # of files in several places there is none to stage
        extensions=extensions(side.processes),
        file_cold_s=_file_wait_s(side, cold=True),
        file_warm_s=_file_wait_s(side, cold=False),
        arrays=array_reads(side, int(sum(table.samples.sum() for table in fetches))),
    )


def _function_shares(side: LoaderProcesses, times: FetchTimes) -> FunctionShares:
    sampled = side.functions
    cpu_s = _total(times.cpu_s)
    return FunctionShares(
        cpu_groups=sampled.cpu_groups,
        blocked_groups=sampled.blocked_groups,
        cpu_lines=top_lines(sampled.cpu_lines, cpu_s),
        blocked_lines=top_lines(sampled.blocked_lines, _total(times.blocked_s)),
        lines_of_group={
            group: top_lines(lines, cpu_s * sampled.cpu_groups.get(group, 0.0))
            for group, lines in sampled.lines_of_group.items()
        },
        packages=sampled.packages,
        collate_groups=sampled.collate_groups,
        called=sampled.called,
    )


def _total(seconds: Floats | None) -> float:
    return float(seconds.sum()) if seconds is not None else 0.0


def _samples_fetched(side: LoaderProcesses) -> int:
    """Samples of all fetches of the record, inside the window or not."""
    return sum(int(activity.fetches.samples.sum()) for activity in side.activities)


def _file_wait_s(side: LoaderProcesses, cold: bool) -> float | None:
    """Mean wait for a file over the cold (or warm) passes, in seconds; None: there was no such pass.

    Blocked time of the fetches by the files they opened. Files that stay open count as one for each sample.
    """
    bounds = [*side.training.pass_starts.tolist(), side.training.finish_ns]
    blocked_s = samples = 0.0
    for begin, finish in itertools.pairwise(bounds):
        if side.cold(begin, finish) is not cold:
            continue
        for table in side.fetches(begin, finish):
            blocked_s += float(divide_time(table.wall_s, table.cpu_s, table.runqueue_s)[2].sum())
            samples += float(table.samples.sum())
    if not samples or np.isnan(blocked_s):
        return None
    return blocked_s / samples / max(files_per_sample(side.processes, _samples_fetched(side)) or 1.0, 1.0)


def _not_measured(side: LoaderProcesses, fetches: tuple[Fetches, ...], workers: int) -> tuple[str, ...]:
    """The signals that are missing, with the reason; one sentence each."""
    missing = []
    total = sum(map(len, fetches))
    if workers and not side.teams:
        missing.append(
            f"the workers' side: not measured, because none of the {counted(workers, 'worker')} left a record"
        )
    lost = sum(member is None for team in side.teams for member in team.members)
    if lost:
        missing.append(f"{counted(lost, 'worker')}: not measured, because their records are missing")
    if not total:
        missing.append("fetches: not measured, because none ended inside the window")
    else:
        rows = np.arange(total)
        if _joined(fetches, "cpu_s", rows) is None:
            missing.append(NO_SCHED)
        if _joined(fetches, "read_bytes", rows) is None:
            missing.append("bytes read: not measured, because /proc/self/io could not be read")
        elif not storage_is_counted(side.mounts):
            missing.append(
                "bytes from storage: a lower bound, because the kernel does not count what FUSE and some network "
                f"file systems read ({', '.join(side.mounts)})"
            )
        if not side.functions.samples:
            missing.append("functions of the fetches: not measured, because no stack sample fell into one")
        if not len(side.spans(kinds.ITEM)):
            missing.append("time of single samples: not measured, because no timed sample fell into the window")
    if not side.mounts:
        missing.append("mounts: not measured, because no file was seen open")
    return tuple(missing)


def _batch_order(fetches: tuple[Fetches, ...], pass_starts: Ints) -> Ints:
    """Rows of all fetches together in the order of their batches, pass after pass: as the workers take turns."""
    if not fetches:
        return np.zeros(0, np.int64)
    begun = np.concatenate([table.start_ns for table in fetches])
    batch = np.concatenate([table.batch for table in fetches])
    return np.lexsort((begun, batch, np.searchsorted(pass_starts, begun, "right")))


def _joined(fetches: tuple[Fetches, ...], name: str, order: Ints) -> Floats | None:
    """One counter over all fetches, in the given order; None when it is missing for any of them."""
    values: Floats = np.concatenate([getattr(table, name) for table in fetches] or [np.zeros(0)])
    return values[order] if len(values) and not np.isnan(values).any() else None


def _in_window(training: Training, events: Events) -> Events:
    return events[(ends(events) > training.window_begin_ns) & (ends(events) <= training.window_end_ns)]


def _idle_share(side: LoaderProcesses) -> float | None:
    """Share of the workers' lives inside the window that they waited for indices."""
    begin, finish = side.training.window_begin_ns, side.training.window_end_ns
    idle = alive = 0
    for process in side.processes:
        waits = process.of_kinds(kinds.INDEX_WAIT)
        idle += int(np.maximum(np.minimum(ends(waits), finish) - np.maximum(waits["start"], begin), 0).sum())
        until = process.end_ns if process.end_ns is not None else process.last_ns
        alive += max(min(until, finish) - max(process.start_ns, begin), 0)
    return idle / alive if alive else None


def _mean_bytes(events: Events) -> float:
    return float(events["a"].mean()) if len(events) else 0.0


def _seconds(events: Events) -> Floats:
    return np.asarray(events["duration"] / 1e9, np.float64)


def _whole(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
