"""Which fetch and which hand-over made the batch that a wait ended with."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from flatout.export.timeline import Ints
from flatout.measure.batch_wait import latest_before
from flatout.measure.training import Training
from flatout.measure.worker_records import worker_groups
from flatout.probe import events as kinds
from flatout.record import ProcessRecord, Run, ends
from flatout.record.packed_fields import batch_worker


def batch_flows(run: Run, training: Training) -> dict[str, dict[int, Ints]]:
    """Flows from the workers to the training.

    Returns:
        By process and event kind the flow of each event, in the order of the record; 0: none.
    """
    waits = training.process.of_kinds(kinds.BATCH_WAIT)
    worker = batch_worker(waits)
    own = np.zeros(len(waits), np.int64)
    found: dict[str, dict[int, Ints]] = {}
    for loader in (*training.loaders, *training.other_loaders):
        teams = worker_groups(run, training, loader)
        begins = np.array([team.begin_ns for team in teams], np.int64)
        serving = np.searchsorted(begins, ends(waits), "right") - 1
        for number, team in enumerate(teams):
            for id, member in enumerate(team.members):
                rows = np.flatnonzero((waits["arg"] == loader) & (serving == number) & (worker == id))
                if member is None or not len(rows) or member.pid == training.process.pid:
                    continue
                flow = rows + 1
                fetch, put = _made(member, waits["a"][rows].astype(np.int64), ends(waits)[rows], team.begin_ns)
                own[rows[fetch >= 0]] = flow[fetch >= 0]
                flows = found.setdefault(member.key, _none(member))
                for kind, made in ((kinds.FETCH, fetch), (kinds.PUT, put)):
                    flows[kind][made[made >= 0]] = flow[made >= 0]
    if own.any():
        found[training.process.key] = {kinds.BATCH_WAIT: own}
    return found


def _none(member: ProcessRecord) -> dict[int, Ints]:
    return {kind: np.zeros(len(member.of_kinds(kind)), np.int64) for kind in (kinds.FETCH, kinds.PUT)}


def _made(member: ProcessRecord, batch: Ints, until: Ints, since: int) -> tuple[Ints, Ints]:
    """Rows of the fetch and of the hand-over of each batch among a worker's events; -1: there is none."""
    made: Mapping[int, Ints] = {}
    for kind in (kinds.FETCH, kinds.PUT):
        events = member.of_kinds(kind)
        # A hand-over may end after the wait: it counts from its begin.
        time = ends(events) if kind == kinds.FETCH else events["start"].astype(np.int64)
        row = latest_before(events["a"].astype(np.int64), time, batch, until)
        late = (row >= 0) & (time[np.maximum(row, 0)] < since) if len(events) else row >= 0
        made = {**made, kind: np.where(late, -1, row)}
    return made[kinds.FETCH], made[kinds.PUT]
