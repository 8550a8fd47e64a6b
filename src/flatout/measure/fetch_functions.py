"""The time of the threads that make batches, by function group and by line: on a core, and blocked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from flatout.measure.batch_wait import Activity
from flatout.measure.clients import client_of
from flatout.measure.functions import OTHER, WAITING_GROUPS, Work, work_of
from flatout.measure.samples import RUNNING, Samples, frames_of, is_named, stack_weights, weigh_lines
from flatout.measure.timeline import Floats
from flatout.results import Line

_FETCH = re.compile(r"/torch/utils/data/_utils/fetch\.py$")
_BETWEEN_CALLS = (OTHER, "convert")  # what the text of a line says that does little beside its calls
_Key = TypeVar("_Key")


@dataclass(frozen=True)
class FetchedFunction:
    """A function on the stacks of fetches, with what it calls.

    Attributes:
        file: of its code.
        name: qualified; before Python 3.11 its last part.
        cpu_share: of the fetches' time on a core in which it is on the stack.
        blocked_share: of their blocked time.
        below: the same two shares of what other functions do that it calls.
        depth: the mean number of frames between it and the fetch.
    """

    file: str
    name: str
    cpu_share: float
    blocked_share: float
    below: tuple[float, float]
    depth: float


@dataclass(frozen=True)
class FetchFunctions:
    """Shares by function group (each adds up to 1, or is empty) and weights by line."""

    cpu_groups: dict[str, float]
    blocked_groups: dict[str, float]
    cpu_lines: dict[Line, float]
    blocked_lines: dict[Line, float]
    lines_of_group: dict[str, dict[Line, float]]  # on a core
    packages: dict[str, str]  # function group -> the installed package with most of its time on a core
    samples: int
    clients: dict[str, float]  # library -> share of the blocked time
    cpu_share: float | None  # of the samples' time; None: there are no samples
    collate_groups: dict[str, float] = field(default_factory=dict)  # as cpu_groups, of collating
    called: tuple[FetchedFunction, ...] = ()  # the user's own, the outermost first


def fetch_functions(threads: Iterable[tuple[Activity, Samples]], begin_ns: int, finish_ns: int) -> FetchFunctions:
    """Break fetches inside [begin_ns, finish_ns) down by function, from the stack samples of the fetching threads."""
    fetches, collates, called = list[Samples](), list[Samples](), Called()
    for activity, samples in threads:
        inside = (samples.time_ns >= begin_ns) & (samples.time_ns < finish_ns)
        fetching, collating = (part.at(samples.time_ns) >= 0 for part in (activity.fetching, activity.collating))
        fetches.append(samples.take(inside & fetching))
        collates.append(samples.take(inside & collating))
        called.add(samples.take(inside & (fetching | collating)))
    return replace(
        sampled_functions(fetches), collate_groups=sampled_functions(collates).cpu_groups, called=called.functions()
    )


def sampled_functions(threads: Iterable[Samples]) -> FetchFunctions:
    """Break stack samples down by function.

    The kernel's state letter, taken with each sample, says whether the thread was on a core (or ready for one).
    Where it is missing, reading, the network and locks count as blocked and everything else as running.
    """
    groups: tuple[dict[str, float], dict[str, float]] = ({}, {})
    lines: tuple[dict[Line, float], dict[Line, float]] = ({}, {})
    lines_of_group: dict[str, dict[Line, float]] = {}
    packages: dict[str, dict[str, float]] = {}
    clients: dict[str, float] = {}
    count = 0
    for samples in threads:
        if not len(samples):
            continue
        count += len(samples)
        works = _works(samples)
        group = np.array([works[id].group for id in samples.stack.tolist()])
        waiting = np.isin(group, list(WAITING_GROUPS))
        blocked = np.where(samples.state > 0, samples.state != RUNNING, waiting)
        for id in np.unique(samples.stack[blocked]).tolist():
            client = client_of(frames_of(samples.names, id))
            if client:
                _add(clients, client, float(samples.weight[blocked & (samples.stack == id)].sum()))
        for id in np.unique(samples.stack[~blocked]).tolist():
            package = works[id].package
            if package:
                weight = float(samples.weight[~blocked & (samples.stack == id)].sum())
                _add(packages.setdefault(works[id].group, {}), package, weight)
        for place, chosen in enumerate((~blocked, blocked)):
            for name in np.unique(group[chosen]).tolist():
                mine = chosen & (group == name)
                _add(groups[place], name, float(samples.weight[mine].sum()))
                for line, weight in weigh_lines(samples.take(mine)).items():
                    _add(lines[place], line, weight)
                    if place == 0:
                        _add(lines_of_group.setdefault(name, {}), line, weight)
    on_core, whole = sum(groups[0].values()), sum(groups[1].values())
    return FetchFunctions(
        cpu_groups=_shares(groups[0]),
        blocked_groups=_shares(groups[1]),
        cpu_lines=lines[0],
        blocked_lines=lines[1],
        lines_of_group=lines_of_group,
        packages={name: max(found, key=found.__getitem__) for name, found in packages.items()},
        samples=count,
        clients={name: weight / whole for name, weight in clients.items()} if whole else {},
        cpu_share=on_core / (on_core + whole) if on_core + whole else None,
    )


class Called:
    """Gathers the user's functions on the stacks of fetches."""

    def __init__(self) -> None:
        # Weight on a core and blocked, the same where it calls another function, and the weight times its depth.
        self._found: dict[tuple[str, str], Floats] = {}
        self._whole = np.zeros(2)

    def add(self, samples: Samples) -> None:
        """Add the stack samples of a thread. One of unknown state counts as on a core."""
        blocked = (samples.state > 0) & (samples.state != RUNNING)
        on_core, waiting = (stack_weights(samples.take(mask)) for mask in (~blocked, blocked))
        for id in on_core.keys() | waiting.keys():
            weights = np.array([on_core.get(id, 0.0), waiting.get(id, 0.0)])
            self._whole += weights
            depths = _in_fetch(frames_of(samples.names, id))
            for depth, function in depths.items():
                below = weights if depth < max(depths) else np.zeros(2)
                sums = self._found.setdefault(function, np.zeros(5))
                sums += [*weights, *below, depth * weights.sum()]

    def functions(self) -> tuple[FetchedFunction, ...]:
        """The outermost first, with shares of the time of all fetches."""
        found = []
        for (file, name), sums in self._found.items():
            cpu, waited, below_cpu, below_waited = (sums[:4] / np.maximum(np.tile(self._whole, 2), 1e-9)).tolist()
            depth = float(sums[4] / max(sums[:2].sum(), 1e-9))
            found.append(FetchedFunction(file, name, cpu, waited, (below_cpu, below_waited), depth))
        return tuple(sorted(found, key=lambda one: one.depth))


def _in_fetch(frames: Sequence[Sequence[Any]]) -> dict[int, tuple[str, str]]:
    """The user's functions between the innermost frame and the fetch, by their distance from the fetch.

    A fetch in the training process has the training's own functions further out.
    """
    end = next((place for place, frame in enumerate(frames) if _FETCH.search(str(frame[0]))), len(frames))
    found: dict[tuple[str, str], int] = {}
    for place in range(end):
        frame = frames[place]
        if frame[4] and is_named(str(frame[2])):
            found[str(frame[0]), str(frame[2])] = end - place
    return {depth: function for function, depth in found.items()}


def _works(samples: Samples) -> dict[int, Work]:
    """The work of each stack.

    A line of the user's that calls a package again and again, as a loop over the columns of a row does, is met by the
    sampler mostly between the calls, where Python gives the interpreter lock away. Such samples count as the work of
    the package's calls on the same line.
    """
    frames = {int(id): frames_of(samples.names, int(id)) for id in np.unique(samples.stack)}
    works = {id: work_of(found) for id, found in frames.items()}
    calls: dict[tuple[str, int], dict[Work, float]] = {}
    for id, work in works.items():
        own = next((frame for frame in frames[id] if frame[4]), None)
        if own is not None and work.package is not None:
            weight = float(samples.weight[samples.stack == id].sum())
            _add(calls.setdefault((str(own[0]), int(own[1])), {}), work, weight)
    for id, found in frames.items():
        line = (str(found[0][0]), int(found[0][1])) if found and found[0][4] else None
        if line in calls and works[id].group in _BETWEEN_CALLS:
            works[id] = max(calls[line], key=lambda work: calls[line][work])
    return works


def _add(weights: dict[_Key, float], key: _Key, weight: float) -> None:
    weights[key] = weights.get(key, 0.0) + weight


def _shares(weights: dict[str, float]) -> dict[str, float]:
    total = sum(weights.values())
    return (
        {name: weight / total for name, weight in sorted(weights.items(), key=lambda item: -item[1])} if total else {}
    )
