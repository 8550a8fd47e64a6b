"""The fetching threads' time by function group and by line: on a core, and blocked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from flatout.measure.batch_wait import Activity
from flatout.measure.clients import client_of
from flatout.measure.functions import WAITING_GROUPS, function_group
from flatout.measure.samples import Samples, frames_of, weigh_lines
from flatout.results import Line

RUNNING = ord("R")


@dataclass(frozen=True)
class FetchFunctions:
    """Shares by function group (each adds up to 1, or is empty) and weights by line."""

    cpu_groups: dict[str, float]
    blocked_groups: dict[str, float]
    cpu_lines: dict[Line, float]
    blocked_lines: dict[Line, float]
    samples: int
    clients: dict[str, float]  # library -> share of the blocked time


def fetch_functions(threads: Iterable[tuple[Activity, Samples]], begin_ns: int, finish_ns: int) -> FetchFunctions:
    """Break fetches inside [begin_ns, finish_ns) down by function, from the stack samples of the fetching threads.

    The kernel's state letter, taken with each sample, says whether the thread was on a core (or ready for one).
    Where it is missing, reading, the network and locks count as blocked and everything else as running.
    """
    groups: tuple[dict[str, float], dict[str, float]] = ({}, {})
    clients: dict[str, float] = {}
    lines: tuple[dict[Line, float], dict[Line, float]] = ({}, {})
    count = 0
    for activity, samples in threads:
        inside = (samples.time_ns >= begin_ns) & (samples.time_ns < finish_ns)
        fetching = samples.take(inside & (activity.fetching.at(samples.time_ns) >= 0))
        if not len(fetching):
            continue
        count += len(fetching)
        names = fetching.names
        of_stack = {int(id): function_group(frames_of(names, int(id))) for id in np.unique(fetching.stack)}
        group = np.array([of_stack[id] for id in fetching.stack.tolist()])
        waiting = np.isin(group, list(WAITING_GROUPS))
        blocked = np.where(fetching.state > 0, fetching.state != RUNNING, waiting)
        for id in np.unique(fetching.stack[blocked]).tolist():
            client = client_of(frames_of(names, id))
            if client:
                weight = float(fetching.weight[blocked & (fetching.stack == id)].sum())
                clients[client] = clients.get(client, 0.0) + weight
        for place, chosen in enumerate((~blocked, blocked)):
            for name in np.unique(group[chosen]).tolist():
                weight = float(fetching.weight[chosen & (group == name)].sum())
                groups[place][name] = groups[place].get(name, 0.0) + weight
            for line, weight in weigh_lines(fetching.take(chosen)).items():
                lines[place][line] = lines[place].get(line, 0.0) + weight
    whole = sum(groups[1].values())
    return FetchFunctions(
        cpu_groups=_shares(groups[0]),
        blocked_groups=_shares(groups[1]),
        cpu_lines=lines[0],
        blocked_lines=lines[1],
        samples=count,
        clients={name: weight / whole for name, weight in clients.items()} if whole else {},
    )


def _shares(weights: dict[str, float]) -> dict[str, float]:
    total = sum(weights.values())
    return (
        {name: weight / total for name, weight in sorted(weights.items(), key=lambda item: -item[1])} if total else {}
    )
