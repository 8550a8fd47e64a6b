"""What torch.compile compiled: functions that it compiled again in the window, and where their graphs break."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from flatout.measure.graphs import GraphCalls, measure_graph_calls
from flatout.measure.timeline import Ints, union
from flatout.measure.training import Training
from flatout.probe import events as kinds
from flatout.record import Run, ends
from flatout.results import Line

# What follows a break is a function of its own, with the line at which it goes on.
_RESUMED = re.compile(r"torch_dynamo_resume_in_(?P<function>.+)_at_(?P<line>\d{1,9})$")
# A guard that fails once is how torch learns that a size varies: it then compiles for all sizes. It may fail once more
# in the version of the function for validation.
_LEARNT = 2
_NUMBER = re.compile(r"-?\d+(\.\d+)?(e[-+]?\d+)?")


@dataclass(frozen=True)
class Recompiled:
    """A function that was compiled again in the window.

    Attributes:
        line: where it begins, with the seconds of the window in these compilations.
        times: it was compiled again.
        reasons: the guards that failed, in torch's words, most frequent first.
        limited: torch reached its limit: calls for which no compiled version fits run uncompiled.
        repeated: the same guard failed more often than torch needs to learn which sizes vary.
        late: also in the second half of the window's steps.
    """

    line: Line
    times: int
    reasons: tuple[str, ...]
    limited: bool
    repeated: bool
    late: bool


@dataclass(frozen=True)
class Break:
    """A line at which a compiled graph breaks.

    Attributes:
        line: the user's, where there is one.
        reason: torch's, one line.
        count: of breaks there in the functions as they were compiled first; several modules may share one.
    """

    line: Line
    reason: str
    count: int


@dataclass(frozen=True)
class Compiling:
    """Compiled code of the training process.

    Attributes:
        again_s: seconds of the window in which functions were compiled again.
        functions: those, most time first.
        breaks: most frequent first.
        calls: of compiled graphs in a traced step; text: why they were not measured. Measured where graphs break.
    """

    again_s: float
    functions: tuple[Recompiled, ...]
    breaks: tuple[Break, ...]
    calls: GraphCalls | str

    @property
    def goes_on(self) -> bool:
        """True if functions are compiled again for longer than a training needs to get going."""
        return any(one.repeated and (one.late or one.limited) for one in self.functions)


def measure_compiling(run: Run, training: Training) -> Compiling | str | None:
    """Measure what was compiled.

    Returns:
        The compilations; why they are unknown; None where nothing was compiled.
    """
    spans = training.process.of_kinds(kinds.COMPILE)
    spans = spans[np.argsort(spans["start"], kind="stable")]
    if not len(spans):
        return None
    names = training.process.names
    entries = [names.get(id, "compilation") for id in spans["arg"].tolist()]
    if not any(entries):
        return "the functions that torch.compile compiles are not shown by this version of torch"
    breaks = _breaks(list(names.entries.values()))
    again = _compiled_again(entries)
    begin, finish = training.window_begin_ns, training.window_end_ns
    start, end = np.clip(spans["start"], begin, finish), np.clip(ends(spans), begin, finish)
    return Compiling(
        again_s=_seconds(start, end, np.flatnonzero(again)),
        functions=_functions(training, entries, again, start, end),
        breaks=breaks,
        calls=measure_graph_calls(run, training) if breaks else "no graph breaks",
    )


def _compiled_again(entries: list[dict[str, Any]]) -> list[bool]:
    """Whether each compilation is one of a function that was compiled before.

    A backward graph that is compiled late belongs to the function that was compiled last.
    """
    again, latest = [], False
    for entry in entries:
        if entry:
            latest = bool(entry.get("reason"))
        again.append(latest)
    return again


def _functions(
    training: Training, entries: list[dict[str, Any]], again: list[bool], start: Ints, end: Ints
) -> tuple[Recompiled, ...]:
    rows: dict[tuple[str, int, str], list[int]] = {}
    place = None
    for row, entry in enumerate(entries):
        place = _place(entry) if entry else place
        if place is not None and again[row] and start[row] < training.window_end_ns:
            rows.setdefault(place, []).append(row)
    updated = training.steps.work_end_ns[training.in_window]
    middle = int(updated[(len(updated) - 1) // 2]) if len(updated) else training.window_end_ns
    found = []
    for (file, line, function), mine in rows.items():
        named = [row for row in mine if entries[row]]
        inside = [row for row in mine if end[row] > start[row]]
        if not inside:
            continue
        limited = any(entries[row].get("limited") for row in named)
        source = str(entries[named[0]].get("source", ""))
        reasons = Counter(str(entries[row]["reason"]) for row in named)
        seconds = _seconds(start, end, np.array(inside, np.int64))
        found.append(
            Recompiled(
                line=Line(file, line, function, source, seconds),
                times=sum(1 for row in inside if entries[row] and not entries[row].get("limited")),
                reasons=tuple(reason for reason, _ in reasons.most_common()),
                limited=limited,
                repeated=max(Counter(_guard(entries[row]) for row in named).values(), default=0) > _LEARNT,
                late=bool(start[inside[-1]] >= middle),
            )
        )
    return tuple(sorted(found, key=lambda one: -one.line.seconds))


def _guard(entry: dict[str, Any]) -> str:
    """The guard that failed, whatever the numbers in it."""
    return _NUMBER.sub("#", str(entry.get("reason", "")))


def _seconds(start: Ints, end: Ints, rows: Ints) -> float:
    return float(union(start[rows], end[rows]).length.sum()) / 1e9


def _breaks(entries: list[dict[str, Any]]) -> tuple[Break, ...]:
    found = []
    for entry in entries:
        if entry.get("type") == "graph_break":
            file, line, function = _place(entry)
            reason, count = str(entry.get("reason", "")), int(entry.get("count", 1))
            found.append(Break(Line(file, line, function, str(entry.get("source", "")), 0.0), reason, count))
    return tuple(sorted(found, key=lambda one: -one.count))


def _place(entry: dict[str, Any]) -> tuple[str, int, str]:
    """File, line and name of a function as the user wrote it."""
    file, line, function = str(entry.get("file", "?")), int(entry.get("line", 0)), str(entry.get("function", "?"))
    resumed = _RESUMED.search(function)
    return (file, int(resumed["line"]), resumed["function"]) if resumed else (file, line, function)
