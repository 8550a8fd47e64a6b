"""The time of the threads that make batches, by function group and by line: on a core, and blocked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from flatout.measure.batch_wait import Activity
from flatout.measure.clients import client_of
from flatout.measure.functions import OTHER, WAITING_GROUPS, Work, work_of
from flatout.measure.input_functions import InputFunction, InputFunctions, in_fetch
from flatout.measure.samples import RUNNING, Samples, frames_of, weigh_lines
from flatout.results import Line

_BETWEEN_CALLS = (OTHER, "convert")  # what the text of a line says that does little beside its calls
_Key = TypeVar("_Key")


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
    called: tuple[InputFunction, ...] = ()  # the user's own, the outermost first


def fetch_functions(threads: Iterable[tuple[Activity, Samples]], begin_ns: int, finish_ns: int) -> FetchFunctions:
    """Break fetches inside [begin_ns, finish_ns) down by function, from the stack samples of the fetching threads."""
    fetches, collates, called = list[Samples](), list[Samples](), InputFunctions()
    for activity, samples in threads:
        inside = (samples.time_ns >= begin_ns) & (samples.time_ns < finish_ns)
        fetching, collating = (part.at(samples.time_ns) >= 0 for part in (activity.fetching, activity.collating))
        fetches.append(samples.take(inside & fetching))
        collates.append(samples.take(inside & collating))
        called.add(samples.take(inside & (fetching | collating)), in_fetch)
    return replace(
        sampled_functions(fetches), collate_groups=sampled_functions(collates).cpu_groups, called=called.found()
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
