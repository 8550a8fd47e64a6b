"""Summarize the machine samples of a window: who used the cores, what memory workers hold, how busy the GPU was."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean, median
from typing import Any

from flatout.diagnose.view import Usage

Sample = dict[str, Any]


def summarize(
    samples: Iterable[Sample], begin_ns: int, end_ns: int, main_pid: int, worker_pids: Sequence[int], gpu: int | None
) -> Usage:
    """Summarize system.jsonl between two times.

    Args:
        samples: in time order.
        begin_ns: CLOCK_MONOTONIC, as is ``end_ns``.
        end_ns: end of the window.
        main_pid: the training process.
        worker_pids: its DataLoader workers.
        gpu: index of its GPU; None when it has none or it is not known which.
    """
    chosen = [sample for sample in samples if begin_ns <= sample["t"] <= end_ns]
    processes = [{entry["pid"]: entry for entry in sample.get("processes") or ()} for sample in chosen]
    times_s = [sample["t"] / 1e9 for sample in chosen]
    main = _mean_cores(times_s, processes, main_pid)
    workers = [_used_s(processes, pid) for pid in worker_pids]
    span_s = times_s[-1] - times_s[0] if chosen else 0.0
    worker_cores = sum(workers) / span_s if span_s > 0 else None
    memory, source = _worker_bytes(processes, worker_pids)
    return Usage(
        main_cores=main,
        other_cores=_other_cores(chosen, main, worker_cores),
        online_cores=next((len(sample["cpu"]) for sample in chosen if sample.get("cpu")), None),
        worker_bytes=memory,
        worker_bytes_source=source,
        available_bytes=_least((sample.get("memory") or {}).get("available") for sample in chosen),
        shm_free_bytes=_least(_shm_free(sample) for sample in chosen),
        device_busy_share=_gpu_busy(chosen, gpu),
    )


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


def _gpu_busy(chosen: Sequence[Sample], index: int | None) -> float | None:
    """Mean share of time in which a kernel ran; None when the GPU was not sampled."""
    if index is None:
        return None
    busy = [
        gpu["util"]
        for sample in chosen
        for gpu in sample.get("gpus") or ()
        if gpu["index"] == index and gpu.get("util") is not None
    ]
    return fmean(busy) if busy else None
