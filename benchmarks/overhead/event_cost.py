"""What one event costs where it is written: the write alone, and a wrapped call of a function that does nothing."""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from added import Spread

from flatout.probe import events
from flatout.probe.writer import EventFile

_EventFile: Any = EventFile  # the probe is written without annotations, for old Pythons
EVENTS = 50_000
REPEATS = 7
LARGE = 64 << 20  # bytes
COLD_CALLS = 60


@dataclass(frozen=True)
class EventCost:
    """Nanoseconds an event; ``wrapped_ns`` is None when it was not measured, ``because`` says why."""

    emit_ns: Spread
    wrapped_ns: Spread | None
    cold_ns: Spread | None  # of a wrapped call, after work that has filled the caches with its own data
    because: str | None


def measure(scratch: Path) -> EventCost:
    """Write events into new files below ``scratch``, the growing of the files included."""
    emit_ns = Spread.of(_emitting_ns(scratch) for _ in range(REPEATS))
    try:
        wrapped_ns = Spread.of(_wrapped_ns(scratch) for _ in range(REPEATS))
        cold_ns = Spread.of(_wrapped_ns(scratch, cold=True) for _ in range(REPEATS))
    except ImportError as error:
        return EventCost(emit_ns, None, None, f"the wrappers need torch in this interpreter: {error}")
    return EventCost(emit_ns, wrapped_ns, cold_ns, None)


def _emitting_ns(scratch: Path) -> float:
    with _new_file(scratch) as file:
        emit, numbers = file.emit, range(EVENTS)
        start_ns = time.perf_counter_ns()
        for number in numbers:
            emit(events.FORWARD, number, number, 1, 1, 1)
        return (time.perf_counter_ns() - start_ns) / EVENTS


def _wrapped_ns(scratch: Path, cold: bool = False) -> float:
    from flatout.probe import wrap
    from flatout.probe.recorder import REC

    time_in_place: Any = wrap.time_in_place
    time_in_place(_timed_nothing, events.ZERO_GRAD)
    before = REC.on, REC.emit
    with _new_file(scratch) as file:
        REC.on, REC.emit = True, file.emit
        try:
            if cold:
                return _calling_cold_ns(_timed_nothing) - _calling_cold_ns(_nothing)
            return (_calling_ns(_timed_nothing) - _calling_ns(_nothing)) / EVENTS
        finally:
            REC.on, REC.emit = before


@contextlib.contextmanager
def _new_file(scratch: Path) -> Iterator[Any]:
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        file = _EventFile(str(Path(folder) / "events"))
        yield file
        file.abandon()  # closes it


def _nothing() -> None:
    return None


def _timed_nothing() -> None:
    return None


def _calling_ns(function: Callable[[], object]) -> int:
    numbers = range(EVENTS)
    start_ns = time.perf_counter_ns()
    for _ in numbers:
        function()
    return time.perf_counter_ns() - start_ns


def _calling_cold_ns(function: Callable[[], object]) -> float:
    """Median of one call after each pass over more memory than the caches hold."""
    large, spent_ns = bytearray(LARGE), []
    for _ in range(COLD_CALLS):
        large.count(1)
        start_ns = time.perf_counter_ns()
        function()
        spent_ns.append(time.perf_counter_ns() - start_ns)
    return statistics.median(spent_ns)
