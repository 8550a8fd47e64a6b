"""Input made without a DataLoader, divided like a worker's fetch: computing, waiting for a core, blocked, awaited."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from flatout.measure.batch_wait import LABELS
from flatout.measure.fetch_functions import FetchFunctions, sampled_functions
from flatout.measure.own_input import awaits_maker
from flatout.measure.samples import Samples, frames_of, top_lines, weigh_lines
from flatout.results import Account, Line

PRODUCER = "batch_wait.producer"
PRODUCER_LABEL = "waiting for a thread or a process that makes the input"


def input_accounts(
    account: Callable[[str, str, float], Account],
    seconds: float,
    samples: Samples,
    makers: Sequence[Samples],
    queued: float,
    labels: dict[str, str],
) -> tuple[Account, ...]:
    """Children of the wait for batches where no DataLoader makes them.

    Args:
        account: makes an account from its id, its label and its seconds.
        seconds: of the wait.
        samples: stack samples of the training thread in it.
        makers: stack samples of each other thread that makes input.
        queued: part of the time ready or on a core in which the thread was ready only.
        labels: of function groups that are not called by their id.
    """
    whole = float(samples.weight.sum())
    if not len(samples) or not whole:
        return ()
    waits = {int(id): awaits_maker(frames_of(samples.names, int(id))) for id in np.unique(samples.stack)}
    awaited = np.array([waits[id] for id in samples.stack.tolist()], bool)
    own, other = samples.take(~awaited), samples.take(awaited)
    found = sampled_functions([own])
    own_s = seconds * float(own.weight.sum()) / whole
    ready_s = own_s * (found.cpu_share or 0.0)
    parts = [
        _grouped(account, "fetch_cpu", ready_s * (1.0 - queued), found.cpu_groups, found, labels),
        account("batch_wait.fetch_runqueue", LABELS["fetch_runqueue"], ready_s * queued),
        _grouped(account, "fetch_blocked", own_s - ready_s, found.blocked_groups, found, labels),
        _awaited(account, seconds - own_s, other, makers, labels),
    ]
    return tuple(sorted((part for part in parts if part.seconds > 0), key=lambda part: -part.seconds))


def _grouped(
    account: Callable[[str, str, float], Account],
    state: str,
    seconds: float,
    groups: dict[str, float],
    found: FetchFunctions,
    labels: dict[str, str],
) -> Account:
    lines = found.lines_of_group if state == "fetch_cpu" else {}
    children = tuple(
        replace(
            account(f"batch_wait.{state}.{group}", labels.get(group, group), seconds * share),
            lines=top_lines(lines.get(group, {}), seconds * share),
        )
        for group, share in groups.items()
    )
    inner = () if lines else top_lines(found.blocked_lines, seconds)
    return replace(account(f"batch_wait.{state}", LABELS[state], seconds), children=children, lines=inner)


def _awaited(
    account: Callable[[str, str, float], Account],
    seconds: float,
    samples: Samples,
    makers: Sequence[Samples],
    labels: dict[str, str],
) -> Account:
    """The wait for other threads or processes, by what the threads do meanwhile; its lines are where it is waited."""
    found = sampled_functions(makers)
    share = found.cpu_share or 0.0
    groups: dict[str, float] = {}
    for part, states in ((share, found.cpu_groups), (1.0 - share, found.blocked_groups)):
        for group, weight in states.items():
            groups[group] = groups.get(group, 0.0) + part * weight
    lines: dict[str, dict[Line, float]] = {group: dict(found.lines_of_group.get(group, {})) for group in groups}
    children = tuple(
        replace(
            account(f"{PRODUCER}.{group}", labels.get(group, group), seconds * part),
            lines=top_lines(lines[group], seconds * part),
        )
        for group, part in sorted(groups.items(), key=lambda item: -item[1])
    )
    whole = account(PRODUCER, PRODUCER_LABEL, seconds)
    return replace(whole, children=children, lines=top_lines(weigh_lines(samples), seconds))
