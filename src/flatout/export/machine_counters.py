"""Values over time: of the machine, of each process, and of the queue of batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from flatout.export.timeline import Counter
from flatout.probe import events as kinds
from flatout.record import ProcessRecord
from flatout.record.packed_fields import batches_ready

_GIB = 1 << 30


def machine_counters(samples: Sequence[dict[str, Any]]) -> Iterator[Counter]:
    """Cores, memory, shared memory and GPUs, as sampled twice a second."""
    yield from _counter("busy cores", "cores", ((s["t"], sum(s["cpu"])) for s in samples if s.get("cpu")))
    yield from _growth("run queue", "threads", ((s["t"], s["runqueue_ns"]) for s in samples if _has(s, "runqueue_ns")))
    memory = [(s["t"], s["memory"]["used"] / _GIB) for s in samples if _has(s.get("memory") or {}, "used")]
    yield from _counter("memory used", "GiB", memory)
    yield from _counter("/dev/shm used", "GiB", ((s["t"], s["shm"]["used"] / _GIB) for s in samples if s.get("shm")))
    for index in sorted({gpu["index"] for s in samples for gpu in s.get("gpus") or ()}):
        for field, name, unit, scale in (
            ("util", "busy", "%", 100.0),
            ("memory_used", "memory used", "GiB", 1 / _GIB),
            ("power_w", "power", "W", 1.0),
        ):
            seen = [
                (s["t"], gpu[field] * scale)
                for s in samples
                for gpu in s.get("gpus") or ()
                if gpu["index"] == index and _has(gpu, field)
            ]
            yield from _counter(f"GPU {index} {name}", unit, seen)


def process_counters(samples: Sequence[dict[str, Any]], pid: int) -> Iterator[Counter]:
    """Cores that a process uses, and its resident memory."""
    mine = [(s["t"], each) for s in samples for each in s.get("processes") or () if each["pid"] == pid]
    yield from _growth("cores used", "cores", ((t, each["cpu_s"] * 1e9) for t, each in mine))
    yield from _counter("resident memory", "GiB", ((t, each["rss"] / _GIB) for t, each in mine))


def ready_batches(process: ProcessRecord) -> Iterator[Counter]:
    """Batches that were ready whenever the training asked for one."""
    waits = process.of_kinds(kinds.BATCH_WAIT)
    if len(waits):
        waits = waits[np.argsort(waits["start"], kind="stable")]
        yield Counter("ready batches", "batches", waits["start"].astype(np.int64), batches_ready(waits).astype(float))


def _has(values: dict[str, Any], field: str) -> bool:
    return values.get(field) is not None


def _counter(name: str, unit: str, seen: Iterable[tuple[int, float]]) -> Iterator[Counter]:
    seen = list(seen)
    if seen:
        time, value = zip(*seen, strict=True)
        yield Counter(name, unit, np.array(time, np.int64), np.array(value, np.float64))


def _growth(name: str, unit: str, seen: Iterable[tuple[int, float]]) -> Iterator[Counter]:
    """Of a cumulative value in ns what it grows by in a ns, from each sample to the next."""
    seen = [pair for pair in seen if pair[1] is not None]
    pairs = pairwise(seen)
    yield from _counter(name, unit, ((t, max(v - w, 0) / (u - t)) for (t, w), (u, v) in pairs if u > t))
