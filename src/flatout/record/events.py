"""Read the fixed-width events of one process into a numpy structured array."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flatout.errors import RecordError
from flatout.probe import events as layout
from flatout.record.json_files import open_regular
from flatout.terminal_text import one_line

EVENT_DTYPE = np.dtype(
    [
        ("kind", "<u2"),
        ("thread", "<u2"),
        ("arg", "<u4"),
        ("start", "<i8"),
        ("duration", "<i8"),
        ("a", "<i8"),
        ("b", "<i8"),
    ]
)
# One structured row an event; times in nanoseconds of CLOCK_MONOTONIC.
Events = NDArray[np.void]
# Events per chunk in the search for the end: a preallocated file is never read beyond it.
SCAN_EVENTS = 1 << 16
COPIED_EVENTS = 1 << 15
_MOST_SAID = 40
LONGEST_RUN_NS = 366 * 86_400 * 1_000_000_000
MOST_BYTES = 1 << 50
MOST_SAMPLES = 1 << 32
# The largest believable `a` and `b` of kinds that carry times, bytes or samples; others are ids, indices and bits.
LARGEST_AMOUNTS = {
    layout.H2D: (MOST_BYTES, None),
    layout.CHECKPOINT: (MOST_BYTES, None),
    layout.DESERIALIZE: (MOST_BYTES, None),
    layout.INPUT: (MOST_SAMPLES, None),
    layout.EXPERIMENT: (MOST_SAMPLES, LONGEST_RUN_NS),
    layout.HOOK: (LONGEST_RUN_NS, None),
    layout.COLLECTION: (LONGEST_RUN_NS, None),
    layout.LIVE_BLOCK: (MOST_SAMPLES, None),
    layout.STACK: (LONGEST_RUN_NS, None),
    layout.LOCK: (LONGEST_RUN_NS, LONGEST_RUN_NS),
    layout.FETCH: (None, MOST_SAMPLES),
    layout.FETCH_SCHED: (LONGEST_RUN_NS, LONGEST_RUN_NS),
    layout.FETCH_IO: (MOST_BYTES, MOST_BYTES),
    layout.FETCH_PROCESS: (LONGEST_RUN_NS, MOST_SAMPLES),
    layout.SERIALIZE: (MOST_BYTES, None),
    layout.WORKER_START: (None, LONGEST_RUN_NS),
}


@dataclass(frozen=True)
class EventsFile:
    """The events of one process, and where its clock stood against the wall clock."""

    events: Events
    pid: int
    clock_ns: int  # CLOCK_MONOTONIC and
    wall_ns: int  # wall clock, read together
    lost: int  # events that could not be written
    problems: tuple[str, ...] = ()


def no_events() -> Events:
    """An empty event array."""
    return np.empty(0, EVENT_DTYPE)


def of_kinds(events: Events, *kinds: int) -> Events:
    """The events of the given kinds, in their order in the file."""
    if len(kinds) == 1:
        return np.asarray(events[events["kind"] == kinds[0]])
    return np.asarray(events[np.isin(events["kind"], kinds)])


def ends(events: Events) -> NDArray[np.int64]:
    """End of each span, ns."""
    return np.asarray(events["start"] + events["duration"], np.int64)


def read_events(path: Path) -> EventsFile:
    """Map the events file at ``path``; damaged parts are skipped and reported in ``problems``.

    Raises:
        RecordError: the file was written in a format that this version does not know.
    """
    try:
        with open_regular(path) as file:
            header = file.read(layout.HEADER_BYTES)
            body_bytes = os.fstat(file.fileno()).st_size - layout.HEADER_BYTES
    except (OSError, ValueError) as error:
        return _unreadable(path, f"of an error ({error})")
    if len(header) < layout.LIVE_OFFSET + layout.LIVE.size:
        return _unreadable(path, f"its header is cut off after {len(header)} bytes")
    magic, version, event_bytes, pid, clock_ns, wall_ns = layout.HEADER.unpack_from(header)
    if magic != layout.MAGIC:
        return _unreadable(path, f"it begins with {magic!r} instead of {layout.MAGIC!r}")
    check_format(version, path)
    if event_bytes != EVENT_DTYPE.itemsize:
        return _unreadable(path, f"its events have {event_bytes} bytes instead of {EVENT_DTYPE.itemsize}")
    lost = int(layout.LIVE.unpack_from(header, layout.LIVE_OFFSET)[6])
    problems = []
    count = max(body_bytes, 0) // EVENT_DTYPE.itemsize
    events = no_events()
    if count:
        try:
            mapped = _mapped(path, count)
        except (OSError, ValueError) as error:
            return _unreadable(path, f"of an error ({error})")
        used = _used(mapped)
        # A preallocated file ends in zeros at any length; only a cut inside written events is damage.
        if used == count and body_bytes % EVENT_DTYPE.itemsize:
            problems.append(f"{path.name} was cut inside its last event: it counts up to there")
        events = np.asarray(mapped[:used])
        if used <= COPIED_EVENTS:
            # Before Python 3.13 a mapping holds a descriptor, and a run may have more processes than descriptors.
            events = events.copy()
        del mapped
        believed = _believable(events)
        if believed is not None:
            problems.append(f"{path.name}: {len(events) - len(believed)} events with impossible values left out")
            events = believed
    if lost:
        problems.append(f"{path.name}: {lost} events could not be written (disk full)")
    return EventsFile(events, pid, clock_ns, wall_ns, lost, tuple(problems))


def check_format(version: object, path: Path) -> None:
    """Refuse a format number that this version of flatout cannot read.

    Raises:
        RecordError: the number is not the one of ``probe/events.py``.
    """
    if version == layout.FORMAT_VERSION:
        return
    fix = (
        "upgrade flatout to read it"
        if isinstance(version, int) and version > layout.FORMAT_VERSION
        else "record the run again"
    )
    said = one_line(str(version))[:_MOST_SAID]
    raise RecordError(f"{path}: record format {said}, this flatout reads format {layout.FORMAT_VERSION}; {fix}")


def _mapped(path: Path, count: int) -> Events:
    """The file's events, mapped at full capacity.

    Raises:
        OSError: the file cannot be mapped.
        ValueError: it has been cut off meanwhile.
    """
    return np.memmap(path, EVENT_DTYPE, mode="r", offset=layout.HEADER_BYTES, shape=(count,))


def _used(mapped: Events) -> int:
    """Number of events before the first of kind 0."""
    for first in range(0, len(mapped), SCAN_EVENTS):
        empty = np.flatnonzero(mapped["kind"][first : first + SCAN_EVENTS] == 0)
        if len(empty):
            return int(first + empty[0])
    return len(mapped)


def _believable(events: Events) -> Events | None:
    """The events without impossible ones; None if all are possible.

    A flipped bit makes a time that lies years away, and sums of such times do not fit into 64 bits. The median stays
    where most events are.
    """
    if not len(events):
        return None
    start, duration = events["start"], events["duration"]
    typical = int(np.median(start))
    low, high = max(typical - LONGEST_RUN_NS, 0), typical + LONGEST_RUN_NS
    kept = (start >= low) & (start <= high) & (duration >= 0) & (duration <= LONGEST_RUN_NS)
    kept &= ((events["a"] >= -1) & (events["b"] >= 0)) | (events["kind"] == layout.METRIC)
    for kind, (most_a, most_b) in LARGEST_AMOUNTS.items():
        same = np.flatnonzero(events["kind"] == kind)
        for column, most in (("a", most_a), ("b", most_b)):
            if most is not None and len(same):
                kept[same] &= events[column][same] <= most
    return None if kept.all() else np.asarray(events[kept])


def _unreadable(path: Path, because: str) -> EventsFile:
    problem = f"{path.name} cannot be read, because {because}: the events of this process are missing"
    return EventsFile(no_events(), 0, 0, 0, 0, (problem,))
