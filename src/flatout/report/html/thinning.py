"""The spans of each thread that fit into a page: the longest ones, and what the others take as a share of the time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flatout.export.nesting import nested
from flatout.export.timeline import Flags, Floats, Ints, Slices, Texts, Timeline

MOST_SPANS = 12_000  # of a page
MOST_ROWS = 4  # spans that lie deeper in others are left out
COLUMNS = 800  # in which the share of what is left out is given
_NOTED = ("step", "batch", "worker", "ready", "samples")


@dataclass(frozen=True)
class Lane:
    """A thread, one entry a span.

    Attributes:
        label: of the thread.
        start, end: ns of CLOCK_MONOTONIC.
        depth: row, from 0 on.
        names: of the spans.
        notes: what else is known of each; None: nothing.
        rows: that it takes.
        rest: share of the time, in equal columns, of the spans of the first row that were left out.
    """

    label: str
    start: Ints
    end: Ints
    depth: Ints
    names: tuple[str, ...]
    notes: tuple[str | None, ...]
    rows: int
    rest: Floats


@dataclass(frozen=True)
class _Raw:
    """A thread before its spans are chosen."""

    label: str
    parts: tuple[Slices, ...]
    start: Ints
    end: Ints
    depth: Ints
    span: tuple[int, int]
    texts: Texts


def lanes_of(timeline: Timeline, begin: int, finish: int) -> list[_Raw]:
    """What each thread did in [begin, finish], ns, in order of the processes.

    Workers that are started anew for each pass have one lane, as have those of the same number for another loader.
    """
    found: dict[str, list[Slices]] = {}
    for process in timeline.processes:
        for track in process.tracks:
            label = process.name if track.main else f"{process.name}: {track.name}"
            parts = (part.take((part.end > begin) & (part.start < finish)) for part in track.slices)
            found.setdefault(label, []).extend(part for part in parts if len(part))
    return [_raw(label, tuple(parts), timeline.texts, (begin, finish)) for label, parts in found.items() if parts]


def _raw(label: str, parts: tuple[Slices, ...], texts: Texts, span: tuple[int, int]) -> _Raw:
    start, end = (np.concatenate([getattr(part, edge) for part in parts]) for edge in ("start", "end"))
    return _Raw(label, parts, start, end, _depths(start, end), span, texts)


def _depths(start: Ints, end: Ints) -> Ints:
    """How many spans each one lies in; spans that overlap otherwise come below those of the rows before."""
    edges = nested(start, end)
    inside = np.cumsum(np.where(edges.is_end, -1, 1))  # each row begins and ends at 0
    depth = np.zeros(len(start), np.int64)
    begins = ~edges.is_end
    depth[edges.span[begins]] = inside[begins] - 1
    below = 0
    for row in range(edges.rows):
        mine = edges.row == row
        depth[mine] += below
        below = int(depth[mine].max()) + 1
    return depth


def thinned(raw: Sequence[_Raw], most: int = MOST_SPANS) -> tuple[list[Lane], int]:
    """The lanes with at most ``most`` spans together, the longest ones; and how many are left out."""
    length = np.concatenate([np.zeros(0, np.int64), *(lane.end - lane.start for lane in raw)])
    shown = np.concatenate([np.zeros(0, bool), *(lane.depth < MOST_ROWS for lane in raw)])
    chosen = np.zeros(len(length), bool)
    rows = np.flatnonzero(shown)
    chosen[rows[np.argsort(-length[rows], kind="stable")[:most]]] = True
    lanes, at = [], 0
    for lane in raw:
        lanes.append(_lane(lane, chosen[at : at + len(lane.start)]))
        at += len(lane.start)
    return lanes, int((~chosen).sum())


def _lane(lane: _Raw, chosen: Flags) -> Lane:
    words = dict(lane.texts)
    names: list[str] = []
    notes: list[str | None] = []
    at = 0
    for part in lane.parts:
        mine = np.flatnonzero(chosen[at : at + len(part)])
        at += len(part)
        names += [words.get(int(part.name[row]), "") for row in mine.tolist()]
        notes += [_note(part, row) for row in mine.tolist()]
    rest = ~chosen & (lane.depth == 0)
    rows = int(lane.depth[chosen].max()) + 1 if chosen.any() else 1
    return Lane(
        lane.label,
        lane.start[chosen],
        lane.end[chosen],
        lane.depth[chosen],
        tuple(names),
        tuple(notes),
        rows,
        _share(lane.start[rest], lane.end[rest], lane.span),
    )


def _note(part: Slices, row: int) -> str | None:
    found = [
        f"{name} {part.numbers[name][row]}" for name in _NOTED if name in part.numbers and part.numbers[name][row] >= 0
    ]
    return ", ".join(found) or None


def _share(start: Ints, end: Ints, span: tuple[int, int]) -> Floats:
    """Share of each of ``COLUMNS`` equal parts of ``span`` that disjoint intervals cover; empty without intervals."""
    if not len(start):
        return np.zeros(0)
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    covered = np.concatenate(([0.0], np.cumsum((end - start).astype(float))))
    edges = np.linspace(span[0], span[1], COLUMNS + 1)
    place = np.searchsorted(start, edges, "right")
    last = np.maximum(place - 1, 0)
    reached = covered[place] - np.where(place > 0, np.maximum(end[last] - edges, 0), 0)
    return np.clip(np.diff(reached) / ((span[1] - span[0]) / COLUMNS), 0.0, 1.0)
