"""What a trace viewer draws, before any format: tracks of slices, counters and marks, in columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


class Texts:
    """Texts, each held once under a number from 1 on. 0 stands for none."""

    def __init__(self) -> None:
        """Start without texts."""
        self._ids: dict[str, int] = {}

    def id(self, text: str) -> int:
        """The number of ``text``; 0 for an empty one."""
        return self._ids.setdefault(text, len(self._ids) + 1) if text else 0

    def __iter__(self) -> Iterator[tuple[int, str]]:
        """Pairs of number and text, in order of their numbers."""
        return ((id, text) for text, id in self._ids.items())


@dataclass(frozen=True)
class Slices:
    """Spans of one kind in one thread: one entry a span, all with the same arguments.

    Attributes:
        start: ns of CLOCK_MONOTONIC.
        end: likewise, not before ``start``.
        name: id in the timeline's texts.
        category: such as "input"; viewers select by it.
        numbers: argument: its value for each span, at least 0.
        words: argument: id of its text for each span; 0: it has none.
        flow: id of the flow that passes through each span; 0: none. Empty: none passes through any.
        flow_ends: the flows end here, else they go on.
    """

    start: Ints
    end: Ints
    name: Ints
    category: str
    numbers: Mapping[str, Ints] = field(default_factory=dict)
    words: Mapping[str, Ints] = field(default_factory=dict)
    flow: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    flow_ends: bool = False

    def __len__(self) -> int:
        return len(self.start)

    def take(self, rows: Ints | Flags) -> Slices:
        """The spans that an index or a mask selects."""
        return replace(
            self,
            start=self.start[rows],
            end=self.end[rows],
            name=self.name[rows],
            numbers={key: column[rows] for key, column in self.numbers.items()},
            words={key: column[rows] for key, column in self.words.items()},
            flow=self.flow[rows] if len(self.flow) else self.flow,
        )

    def uniform(self) -> Iterator[Slices]:
        """The spans in parts, in each of which all have the same arguments: what is not known is left out."""
        present = [column != 0 for column in self.words.values()]
        present += [column >= 0 for column in self.numbers.values()]
        present += [self.flow != 0] if len(self.flow) else []
        if not present:
            yield self
            return
        pattern = np.zeros(len(self), np.int64)
        for place, flags in enumerate(present):
            pattern |= flags.astype(np.int64) << place
        for each in np.unique(pattern).tolist():
            part = self.take(pattern == each)
            yield replace(
                part,
                numbers={key: column for key, column in part.numbers.items() if column[0] >= 0},
                words={key: column for key, column in part.words.items() if column[0]},
                flow=part.flow if len(part.flow) and part.flow[0] else np.zeros(0, np.int64),
            )


@dataclass(frozen=True)
class Track:
    """The spans of one thread; where they overlap without nesting, a viewer gets more than one row."""

    name: str
    slices: tuple[Slices, ...]
    main: bool = False  # the process's first thread


@dataclass(frozen=True)
class Counter:
    """A value over time."""

    name: str
    unit: str
    time: Ints  # ns of CLOCK_MONOTONIC
    value: Floats


@dataclass(frozen=True)
class Process:
    """A process, or the machine itself (pid 0)."""

    pid: int
    name: str
    tracks: tuple[Track, ...] = ()
    counters: tuple[Counter, ...] = ()


@dataclass(frozen=True)
class Timeline:
    """One run, ready to be written. ``offset_ns`` added to its times gives the wall clock (0: it is not known)."""

    run: str
    texts: Texts
    processes: tuple[Process, ...]
    offset_ns: int
    notes: tuple[str, ...] = ()

    @property
    def slices(self) -> int:
        """Spans in all tracks."""
        return sum(len(part) for process in self.processes for track in process.tracks for part in track.slices)
