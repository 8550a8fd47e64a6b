"""Several ranks of one training, and the one that the others wait for, without a common clock.

Ranks that exchange gradients in the backward pass leave it together. The rank that entered last waits for nobody
there, so its backward pass is the shortest of that step: what the others' takes longer is their wait for it. Only
durations are compared, so hosts' clocks need not agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from flatout.measure.timeline import Floats, Ints
from flatout.probe import events as kinds
from flatout.record import Events, ProcessRecord, Run, of_kinds

# The work of a rank in a step before its gradients are exchanged: kind of event -> its name in a sentence.
PARTS = {kinds.BATCH_WAIT: "waits for batches", kinds.FORWARD: "computes the forward pass", 0: "runs other code"}
LEAST_STEPS = 10
EXCHANGES = (kinds.BACKWARD, kinds.COLLECTIVE)  # where ranks wait for each other


@dataclass(frozen=True)
class Ranks:
    """The time that the ranks of a run cost each other.

    Attributes:
        count: ranks that were recorded.
        steps: steps that all of them made.
        straggler: the rank that the others wait for most often.
        lead: the lowest rank, which the ledger shows.
        late_share: of the steps in which it came last.
        waited_share: mean share of the other ranks' time in which they waited for it.
        part: what it does longer than the median rank, in words.
        part_s: that part of its mean step.
        usual_s: the same of the median rank.
    """

    count: int
    steps: int
    straggler: int
    lead: int
    late_share: float
    waited_share: float
    part: str
    part_s: float
    usual_s: float


def build_ranks(run: Run) -> Ranks | None:
    """Compare the ranks of a run step by step, the first step left out; None for one rank, or too few steps."""
    found = {process.rank: process for process in run.processes if process.worker is None and process.rank is not None}
    return compare_ranks([(rank, table) for rank, process in sorted(found.items()) if (table := rank_steps(process))])


def compare_ranks(rows: Sequence[tuple[int, Mapping[int, Floats]]]) -> Ranks | None:
    """Compare ranks, the lowest one first: their numbers with their steps, as of ``rank_steps``, from the same one on.

    None for one rank, or too few steps.
    """
    if len(rows) < 2:
        return None
    steps = min(len(next(iter(table.values()))) for _, table in rows)
    if steps < LEAST_STEPS:
        return None

    def stacked(kind: int) -> Floats:
        return np.stack([table[kind][:steps] for _, table in rows])

    exchange = stacked(kinds.BACKWARD)
    waited = exchange - exchange.min(axis=0)
    last = exchange.argmin(axis=0)
    late = np.bincount(last, minlength=len(rows))
    place = int(late.argmax())
    others = np.delete(np.arange(len(rows)), place)
    own = waited[np.ix_(others, np.flatnonzero(last == place))].sum(axis=1)
    length = stacked(-1)[others].sum(axis=1)
    means = {kind: stacked(kind).mean(axis=1) for kind in PARTS}
    surplus = {kind: float(values[place] - np.median(np.delete(values, place))) for kind, values in means.items()}
    most = max(surplus, key=lambda kind: surplus[kind])
    return Ranks(
        count=len(rows),
        steps=steps,
        straggler=rows[place][0],
        lead=rows[0][0],
        late_share=float(late[place] / steps),
        waited_share=float((own / np.maximum(length, 1e-12)).mean()),
        part=PARTS[most],
        part_s=float(means[most][place]),
        usual_s=float(np.median(np.delete(means[most], place))),
    )


def rank_steps(process: ProcessRecord) -> dict[int, Floats] | None:
    """Seconds of each step of one rank by kind; 0: none of these; -1: the whole step. None: it has no steps.

    The first step, which has the start-up in it, is left out; so is what follows the last mark of a begin.
    """
    events = process.events
    backward = of_kinds(events, *EXCHANGES)
    if not len(backward):
        return None
    thread = int(np.bincount(backward["thread"]).argmax())
    own = events[events["thread"] == thread]
    edges = step_edges(own)
    if len(edges) < 2:
        return None
    whole = np.diff(edges) / 1e9
    # A step without a backward pass is validation.
    passes = np.sort(of_kinds(own, *EXCHANGES)["start"])
    trains = np.diff(np.searchsorted(passes, edges)) > 0
    trains[:1] = False  # the first step of all has the start-up in it
    table: dict[int, Floats] = {-1: whole[trains]}
    for kinds_of, name in ((EXCHANGES, kinds.BACKWARD), ((kinds.BATCH_WAIT,), kinds.BATCH_WAIT),
                           ((kinds.FORWARD,), kinds.FORWARD)):  # fmt: skip
        spans = of_kinds(own, *kinds_of)
        sums = np.concatenate(([0.0], np.cumsum(spans["duration"][np.argsort(spans["start"], kind="stable")]))) / 1e9
        table[name] = np.diff(sums[np.searchsorted(np.sort(spans["start"]), edges)])[trains]
    device = of_kinds(events, kinds.DEVICE_SPAN)
    device = device[device["arg"] == kinds.BACKWARD]
    if len(device) >= len(passes) > 0:
        # On a GPU the host only launches the backward pass: its length is the device's.
        lengths = device["duration"][np.argsort(device["start"], kind="stable")] / 1e9
        sums = np.concatenate(([0.0], np.cumsum(lengths)))
        table[kinds.BACKWARD] = np.diff(sums[np.searchsorted(passes, edges)])[trains]
    known = table[kinds.BACKWARD] + table[kinds.BATCH_WAIT] + table[kinds.FORWARD]
    table[0] = np.maximum(table[-1] - known, 0.0)
    return table


def step_edges(events: Events) -> Ints:
    """When the steps of a training thread begin, validation included: where it awaits batches, else runs forward."""
    marks = of_kinds(events, kinds.BATCH_WAIT)
    if len(marks) < 2:
        marks = of_kinds(events, kinds.FORWARD)
    edges: Ints = np.sort(marks["start"])
    return edges
