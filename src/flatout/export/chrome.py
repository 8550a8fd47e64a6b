"""The JSON of Chrome's trace viewer, which many tools read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import IO, Any

import numpy as np

from flatout.export.nesting import nested
from flatout.export.timeline import Slices, Timeline

_ROWS = 1000  # thread ids that one thread's rows may take


def write_chrome(file: IO[bytes], timelines: Sequence[Timeline], base_ns: int) -> None:
    """Write runs as one JSON document; times are microseconds after ``base_ns``, a wall clock."""
    file.write(b'{"displayTimeUnit":"ms","traceEvents":[')
    first = True
    for event in _events(timelines, base_ns):
        file.write((b"\n" if first else b",\n") + json.dumps(event, separators=(",", ":")).encode())
        first = False
    file.write(b"\n]}\n")


def _events(timelines: Sequence[Timeline], base_ns: int) -> Iterator[dict[str, Any]]:
    number = 0  # ids of processes, which two runs may share
    for timeline in timelines:
        words = dict(timeline.texts)
        shift = timeline.offset_ns - base_ns
        for process in timeline.processes:
            number += 1
            name = f"{process.name} ({process.pid})" if process.pid else process.name
            yield _named("process_name", number, 0, name if len(timelines) == 1 else f"{timeline.run}: {name}")
            yield {"ph": "M", "name": "process_sort_index", "pid": number, "args": {"sort_index": number}}
            for place, track in enumerate(process.tracks):
                parts = [part for part in track.slices if len(part)]
                start, end = (np.concatenate([getattr(part, side) for part in parts]) for side in ("start", "end"))
                edges = nested(start, end)
                for row in range(edges.rows):
                    yield _named("thread_name", number, place * _ROWS + row, track.name)
                at = 0
                for part in parts:
                    rows = edges.row[at : at + len(part)] + place * _ROWS
                    at += len(part)
                    yield from _slices(part, rows.tolist(), number, words, shift)
            for counter in process.counters:
                for time, value in zip(counter.time.tolist(), counter.value.tolist(), strict=True):
                    label = f"{counter.name} ({counter.unit})"
                    yield {"ph": "C", "name": label, "pid": number, "ts": (time + shift) / 1e3, "args": {"": value}}


def _named(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}


def _slices(part: Slices, rows: list[int], process: int, words: dict[int, str], shift: int) -> Iterator[dict[str, Any]]:
    for index, row in enumerate(rows):
        start = int(part.start[index])
        arguments: dict[str, Any] = {key: int(column[index]) for key, column in part.numbers.items()}
        arguments = {key: value for key, value in arguments.items() if value >= 0}
        arguments |= {key: words[int(column[index])] for key, column in part.words.items() if column[index]}
        event = {
            "ph": "X",
            "name": words[int(part.name[index])],
            "cat": part.category,
            "pid": process,
            "tid": row,
            "ts": (start + shift) / 1e3,
            "dur": (int(part.end[index]) - start) / 1e3,
        }
        yield event | ({"args": arguments} if arguments else {})
        flow = int(part.flow[index]) if len(part.flow) else 0
        if flow:
            # A flow begins at the fetch, passes the hand-over, and ends where the wait ends.
            phase = "f" if part.flow_ends else "s" if words[int(part.name[index])] == "fetch a batch" else "t"
            yield {
                "ph": phase,
                "bp": "e",
                "id": flow,
                "name": "batch",
                "cat": "batch",
                "pid": process,
                "tid": row,
                "ts": event["ts"],
            }
