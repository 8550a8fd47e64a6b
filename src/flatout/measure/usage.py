"""Summarize the machine samples of a window: use of the cores, memory of the workers, busy time of the GPU."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean, median
from typing import Any

from flatout.measure.cpu_time import Sample, workers_s
from flatout.measure.crowding import measure_crowding, processes_beside
from flatout.measure.gpu_sharing import gpu_memory
from flatout.measure.measured_run import Usage
from flatout.measure.page_faults import count_faults


def summarize(
    samples: Iterable[Sample],
    begin_ns: int,
    end_ns: int,
    main_pid: int,
    worker_pids: Sequence[int],
    gpu: int | None,
    cores: float | None = None,
    alone: bool = False,
) -> Usage:
    """Summarize system.jsonl between two times.

    Args:
        samples: in time order.
        begin_ns: CLOCK_MONOTONIC, as is ``end_ns``.
        end_ns: end of the window.
        main_pid: the training process.
        worker_pids: its DataLoader workers.
        gpu: index of its GPU; None if it has none or its index is unknown.
        cores: usable cores; None if unknown.
        alone: no other process that the training process started trains or makes its input.
    """
    chosen = [sample for sample in samples if begin_ns <= sample["t"] <= end_ns]
    processes = [{entry["pid"]: entry for entry in sample.get("processes") or ()} for sample in chosen]
    times_s = [sample["t"] / 1e9 for sample in chosen]
    main = _mean_cores(times_s, processes, main_pid)
    span_s = times_s[-1] - times_s[0] if chosen else 0.0
    slowed, reasons = _gpu_slowed(chosen, gpu)
    waits = _runqueue_share(times_s, processes, main_pid)
    worker_cores = workers_s(chosen, main_pid, worker_pids) / span_s if span_s > 0 else None
    memory, source = _worker_bytes(processes, worker_pids)
    return Usage(
        main_cores=main,
        main_runqueue_share=waits,
        crowding=measure_crowding(
            chosen, main, waits, processes_beside(chosen, main_pid, worker_pids) if alone else ()
        ),
        other_cores=_other_cores(chosen, main, worker_cores),
        online_cores=next((len(sample["cpu"]) for sample in chosen if sample.get("cpu")), None),
        worker_bytes=memory,
        worker_bytes_source=source,
        available_bytes=_least((sample.get("memory") or {}).get("available") for sample in chosen),
        shm_free_bytes=_least(_shm_free(sample) for sample in chosen),
        device_busy_share=_gpu_busy(chosen, gpu),
        throttled_share=_throttled_share(chosen, span_s, cores),
        gpu_throttled_share=slowed,
        gpu_throttle_reasons=reasons,
        received_bps=_received_bps(chosen, span_s),
        memory_growth_bps=_growth_bps(times_s, processes, {main_pid, *worker_pids}),
        main_faults=count_faults(chosen, [main_pid]),
        worker_faults=count_faults(chosen, worker_pids),
        **gpu_memory(chosen, gpu, main_pid),
    )


def queued_share(samples: Iterable[Sample], begin_ns: int, end_ns: int, pid: int) -> float | None:
    """Share of an interval in which the first thread of a process waited for a core; None: not measured."""
    chosen = [sample for sample in samples if begin_ns <= sample["t"] <= end_ns]
    processes = [{entry["pid"]: entry for entry in sample.get("processes") or ()} for sample in chosen]
    return _runqueue_share([sample["t"] / 1e9 for sample in chosen], processes, pid)


def _used_s(processes: Sequence[dict[int, Sample]], pid: int) -> float:
    """CPU seconds between the first and the last sample of a process."""
    seen = [entry[pid]["cpu_s"] for entry in processes if pid in entry]
    return float(seen[-1] - seen[0]) if len(seen) > 1 else 0.0


def _mean_cores(times_s: Sequence[float], processes: Sequence[dict[int, Sample]], pid: int) -> float | None:
    """Mean cores that one process used while it was sampled; None with fewer than two samples."""
    seen = [time for time, entry in zip(times_s, processes, strict=True) if pid in entry]
    if len(seen) < 2 or seen[-1] <= seen[0]:
        return None
    return _used_s(processes, pid) / (seen[-1] - seen[0])


def _runqueue_share(times_s: Sequence[float], processes: Sequence[dict[int, Sample]], pid: int) -> float | None:
    """Share of the time in which the first thread of a process waited for a core; None where it was not measured."""
    seen = [
        (time, entry[pid].get("runqueue_s")) for time, entry in zip(times_s, processes, strict=True) if pid in entry
    ]
    known = [(time, value) for time, value in seen if value is not None]
    if len(known) < 2 or known[-1][0] <= known[0][0]:
        return None
    return float((known[-1][1] - known[0][1]) / (known[-1][0] - known[0][0]))


def _other_cores(chosen: Sequence[Sample], main: float | None, workers: float | None) -> float | None:
    """Mean busy cores of the machine less what the training itself used."""
    busy = [sample["cpu"] for sample in chosen if sample.get("cpu")]
    if not busy or main is None or workers is None:
        return None
    return max(fmean(sum(cores) for cores in busy) - main - workers, 0.0)


def _worker_bytes(processes: Sequence[dict[int, Sample]], pids: Sequence[int]) -> tuple[int | None, str | None]:
    """Host memory of the typical worker at its largest.

    PSS counts pages shared with other processes in parts, so it can be added up. RSS counts them fully:
    it is an upper bound of what one more worker needs.
    """
    for field, source in (("pss", "PSS"), ("rss", "RSS")):
        largest = []
        for pid in pids:
            values = [entry[pid][field] for entry in processes if pid in entry and entry[pid].get(field) is not None]
            if values:
                largest.append(max(values))
        if largest:
            return int(median(largest)), source
    return None, None


def _least(values: Iterable[int | None]) -> int | None:
    return min((value for value in values if value is not None), default=None)


def _shm_free(sample: Sample) -> int | None:
    shm = sample.get("shm")
    return shm["size"] - shm["used"] if shm else None


def _of_gpu(chosen: Sequence[Sample], index: int | None, field: str) -> list[Any]:
    """One field of one GPU, of all samples that have it."""
    if index is None:
        return []
    found = (gpu for sample in chosen for gpu in sample.get("gpus") or () if gpu["index"] == index)
    return [gpu[field] for gpu in found if gpu.get(field) is not None]


def _gpu_busy(chosen: Sequence[Sample], index: int | None) -> float | None:
    """Mean share of time in which a kernel ran; None when the GPU was not sampled."""
    busy = _of_gpu(chosen, index, "util")
    return fmean(busy) if busy else None


def _gpu_slowed(chosen: Sequence[Sample], index: int | None) -> tuple[float | None, tuple[str, ...] | None]:
    """Share of the samples in which heat or the power supply slowed the GPU, and the driver's reasons.

    The software power cap is left out: a GPU at full load reaches it.
    """
    given = _of_gpu(chosen, index, "throttle")
    if not given:
        return None, None
    slowing = [[reason for reason in reasons if "slowdown" in reason or "brake" in reason] for reasons in given]
    return sum(map(bool, slowing)) / len(given), tuple(sorted({reason for reasons in slowing for reason in reasons}))


def _throttled_share(chosen: Sequence[Sample], span_s: float, cores: float | None) -> float | None:
    """CPU time that a quota withheld, over the time of the usable cores. The kernel adds it up over cores."""
    counted = [sample["throttled_ns"] for sample in chosen if sample.get("throttled_ns") is not None]
    if len(counted) < 2 or span_s <= 0 or not cores:
        return None
    return float(min(max(counted[-1] - counted[0], 0) / 1e9 / (span_s * cores), 1.0))


def _received_bps(chosen: Sequence[Sample], span_s: float) -> float | None:
    """Bytes a second that all network interfaces received; one that came or went in between is left out."""
    counted = [sample["net"] for sample in chosen if sample.get("net")]
    if len(counted) < 2 or span_s <= 0:
        return None
    both = counted[0].keys() & counted[-1].keys()
    return float(sum(max(counted[-1][name]["recv"] - counted[0][name]["recv"], 0) for name in both) / span_s)


def _growth_bps(times_s: Sequence[float], processes: Sequence[dict[int, Sample]], pids: set[int]) -> float | None:
    """Slope of the training's memory over the second half of the window, bytes a second.

    The first half fills caches and queues. The median of slopes between pairs of samples (Theil 1950, Sen 1968) does
    not follow single jumps. Only processes that were there through all of the second half count: workers that end are
    no shrinking, and those that start are no leak.
    """
    if not processes:
        return None
    half = times_s[0] + (times_s[-1] - times_s[0]) / 2
    earlier = [set(entry) for time, entry in zip(times_s, processes, strict=True) if time <= half]
    wanted = pids & set(processes[-1]) & set().union(*earlier)
    seen = [
        (time, sum(entry[pid]["rss"] for pid in wanted))
        for time, entry in zip(times_s, processes, strict=True)
        if time >= half and wanted and wanted <= set(entry)
    ]
    if len(seen) < 6:
        return None
    step = max(1, len(seen) // 60)
    seen = seen[::step]
    slopes: list[float] = [(b - a) / (t - s) for i, (s, a) in enumerate(seen) for t, b in seen[i + 1 :] if t > s]
    return float(median(slopes)) if slopes else None
