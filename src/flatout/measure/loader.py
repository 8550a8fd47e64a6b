"""The training loader's side of a run: what its batches cost, and where its workers' time went."""

from __future__ import annotations

import itertools

import numpy as np

from flatout.measure.batch_wait import NO_SCHED
from flatout.measure.loader_processes import LoaderProcesses, loader_processes
from flatout.measure.loader_stats import LoaderStats
from flatout.measure.queue_state import head_of_line_s, mean_ready
from flatout.measure.samples import top_lines
from flatout.measure.storage import bytes_per_sample, data_folder, files_per_sample, peers_of, storage_is_counted
from flatout.measure.timeline import Floats, Ints
from flatout.measure.training import Training
from flatout.measure.transform_costs import transform_costs
from flatout.measure.worker_records import Fetches, divide_time, loader_settings, worker_count
from flatout.probe import events as kinds
from flatout.record import Events, Run, ends
from flatout.record.packed_fields import batch_samples


def build_loading(run: Run, training: Training, side: LoaderProcesses | None = None) -> LoaderStats | None:
    """What the training loader did within the window; None when training uses no DataLoader.

    Args:
        run: the record.
        training: what ``find_training(run)`` returned.
        side: what ``loader_side(run, training)`` returned, when it was made already.
    """
    side = side or loader_processes(run, training)
    if side is None:
        return None
    settings = loader_settings(training, side.loader)
    workers = worker_count(training, side.loader)
    begin, finish = training.window_begin_ns, training.window_end_ns
    fetches = side.fetches(begin, finish)
    order = _batch_order(fetches, training.pass_starts)
    read, storage = bytes_per_sample(fetches)
    waits = training.kind(kinds.BATCH_WAIT)
    waits = waits[(waits["arg"] == side.loader) & (ends(waits) > begin) & (ends(waits) <= finish)]
    starts = np.concatenate([[], *(process.of_kinds(kinds.WORKER_START)["duration"] for process in side.processes)])
    cpu, runqueue = _joined(fetches, "cpu_s", order), _joined(fetches, "runqueue_s", order)
    fetch = np.concatenate([table.wall_s for table in fetches] or [np.zeros(0)])[order]
    blocked: Floats | None = None
    if cpu is not None and runqueue is not None:
        cpu, runqueue, blocked = divide_time(fetch, cpu, runqueue)
    functions = side.functions
    step = training.in_window
    return LoaderStats(
        num_workers=workers,
        batch_size=_whole(settings.get("batch_size")),
        prefetch_factor=_whole(settings.get("prefetch_factor")),
        persistent_workers=bool(settings.get("persistent_workers")),
        pin_memory=bool(settings.get("pin_memory")),
        iterable=bool(settings.get("iterable")),
        start_method=settings.get("start_method"),
        dataset_len=_whole(settings.get("dataset_len")),
        dataset=str(settings.get("dataset") or "unknown"),
        site=str(settings.get("site") or "unknown"),
        batch_bytes=_whole(settings.get("batch_bytes")),
        batches=len(waits),
        samples=int(batch_samples(waits).sum()),
        epochs_started=int(np.count_nonzero((training.pass_starts >= begin) & (training.pass_starts < finish))),
        wait_s=training.steps.wait_s[step],
        step_s=training.steps.duration_s[step],
        fetch_s=fetch,
        fetch_cpu_s=cpu,
        fetch_runqueue_s=runqueue,
        fetch_blocked_s=blocked,
        fetch_process_cpu_s=_joined(fetches, "process_cpu_s", order),
        collate_s=_seconds(side.spans(kinds.COLLATE)),
        serialize_s=_seconds(side.spans(kinds.SERIALIZE)),
        deserialize_s=_seconds(_in_window(training, training.process.of_kinds(kinds.DESERIALIZE))),
        item_s=_seconds(side.spans(kinds.ITEM)),
        worker_idle_share=_idle_share(side) if side.teams else None,
        worker_start_s=np.asarray(starts / 1e9, np.float64) if side.teams else np.zeros(0),
        worker_starts_in_window=len(side.spans(kinds.WORKER_START)),
        bytes_read_per_sample=read,
        storage_bytes_per_sample=storage,
        transforms=transform_costs(side),
        cpu_groups=functions.cpu_groups,
        blocked_groups=functions.blocked_groups,
        cpu_lines=top_lines(functions.cpu_lines, float(cpu.sum()) if cpu is not None else 0.0),
        blocked_lines=top_lines(functions.blocked_lines, float(blocked.sum()) if blocked is not None else 0.0),
        mounts=side.mounts,
        data_folder=data_folder(side.run, side.processes),
        peers=peers_of(side.processes),
        not_measured=_not_measured(side, fetches, workers),
        head_of_line_s=head_of_line_s(waits, [a.fetches for a in side.activities], training.pass_starts)
        if workers > 1
        else None,
        mean_ready=mean_ready(waits) if workers else None,
        files_per_sample=files_per_sample(side.processes, sum(int(a.fetches.samples.sum()) for a in side.activities)),
        sampling_s=0.0 if workers else _sampling_s(waits, fetches),
        in_order=settings.get("in_order") is not False,
        pickled_bytes=_mean_bytes(side.spans(kinds.SERIALIZE)),
        client=max(functions.clients, key=functions.clients.__getitem__, default=None),
        rebuilt=bool(settings.get("rebuilt")),
        file_cold_s=_file_wait_s(side, cold=True),
        file_warm_s=_file_wait_s(side, cold=False),
    )


def _file_wait_s(side: LoaderProcesses, cold: bool) -> float | None:
    """Seconds for which a file is waited for, over the passes that were cold (or warm); None: there was none.

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
    every = sum(int(activity.fetches.samples.sum()) for activity in side.activities)
    return blocked_s / samples / max(files_per_sample(side.processes, every) or 1.0, 1.0)


def _sampling_s(waits: Events, fetches: tuple[Fetches, ...]) -> float:
    """Seconds in which the sampler drew the order of a pass: inside its first wait, before the fetch begins."""
    first = waits[waits["a"] == 0]
    if not len(first) or not fetches:
        return 0.0
    begun = np.sort(np.concatenate([table.start_ns for table in fetches]))
    row = np.minimum(np.searchsorted(begun, first["start"]), len(begun) - 1)
    inside = (begun[row] >= first["start"]) & (begun[row] <= ends(first))
    return float((begun[row] - first["start"])[inside].sum()) / 1e9


def _not_measured(side: LoaderProcesses, fetches: tuple[Fetches, ...], workers: int) -> tuple[str, ...]:
    """What is missing for the loader's numbers, and why; one sentence each."""
    missing = []
    total = sum(map(len, fetches))
    if workers and not side.teams:
        missing.append(f"the workers' side: not measured, because none of the {workers} worker(s) left a record")
    lost = sum(member is None for team in side.teams for member in team.members)
    if lost:
        missing.append(f"{lost} worker(s): not measured, because their records are missing")
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
