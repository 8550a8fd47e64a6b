"""The sampled stacks of every thread, in the format of speedscope (www.speedscope.app/file-format-schema.json)."""

from __future__ import annotations

import json
from typing import IO, Any

import numpy as np

from flatout.measure.samples import frames_of, stack_samples
from flatout.record import Run, no_events
from flatout.version import __version__


def write_speedscope(file: IO[bytes], run: Run, begin_ns: int | None = None, end_ns: int | None = None) -> int:
    """Write one profile a thread; samples before ``begin_ns`` or after ``end_ns`` are left out.

    Returns:
        The number of samples.
    """
    frames: dict[tuple[Any, ...], int] = {}
    profiles: list[dict[str, Any]] = []
    for process in run.processes:
        for thread in np.unique(process.events["thread"]).tolist() if len(process.events) else ():
            events = process.events[process.events["thread"] == thread] if len(process.events) else no_events()
            samples = stack_samples(events, process.names)
            inside = np.ones(len(samples), bool)
            inside &= samples.time_ns >= begin_ns if begin_ns is not None else True
            inside &= samples.time_ns <= end_ns if end_ns is not None else True
            samples = samples.take(inside)
            stacks = {id: _stack(frames_of(process.names, id), frames) for id in set(samples.stack.tolist())}
            if len(samples):
                weights = np.round(samples.weight).astype(np.int64).tolist()
                profiles.append(
                    {
                        "type": "sampled",
                        "name": f"{_whose(process.worker, process.pid)}, thread {thread}",
                        "unit": "nanoseconds",
                        "startValue": 0,
                        "endValue": sum(weights),
                        "samples": [stacks[id] for id in samples.stack.tolist()],
                        "weights": weights,
                    }
                )
    profiles.sort(key=lambda profile: -profile["endValue"])
    document = {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": f"flatout {__version__}",
        "name": run.id,
        "activeProfileIndex": 0,
        "shared": {"frames": [_frame(frame) for frame in frames]},
        "profiles": profiles,
    }
    file.write(json.dumps(document, separators=(",", ":")).encode())
    return sum(len(profile["samples"]) for profile in profiles)


def _whose(worker: int | None, pid: int) -> str:
    return f"process {pid}" if worker is None else f"worker {worker} ({pid})"


def _stack(found: list[list[Any]], frames: dict[tuple[Any, ...], int]) -> list[int]:
    """Numbers of a stack's frames, outermost first."""
    return [frames.setdefault((file, line, name), len(frames)) for file, line, name, *_ in reversed(found)]


def _frame(frame: tuple[Any, ...]) -> dict[str, Any]:
    file, line, name = frame
    return {"name": str(name), "file": str(file)} | ({"line": line} if line else {})
