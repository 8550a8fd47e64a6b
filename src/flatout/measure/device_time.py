"""Busy time of the device, and its effect on the ledger: the host is charged only for the device's idle time."""

from __future__ import annotations

import numpy as np

from flatout.measure.timeline import Flags, Ints, Pieces, exclusive_pieces, intervals, overlay, union
from flatout.probe import events as kinds
from flatout.record import Events, ends

COMPUTE = (kinds.FORWARD, kinds.BACKWARD, kinds.OPTIMIZER)


def device_busy(events: Events) -> Pieces:
    """Disjoint intervals in which the device worked; ``owner`` is the event kind of the phase it worked on.

    A copy that overlaps with compute costs nothing, so only the rest of it counts as H2D.
    """
    spans = events[events["kind"] == kinds.DEVICE_SPAN]
    compute = spans[np.isin(spans["arg"], COMPUTE)]
    busy = intervals([], [])
    if len(compute):
        start, end = compute["start"].astype(np.int64), ends(compute)
        busy = exclusive_pieces(start, end, int(start.min()), int(end.max()))
        busy = busy.take(busy.owner >= 0)
        busy = Pieces(busy.start, busy.end, compute["arg"][busy.owner].astype(np.int64))
    copies = spans[spans["arg"] == kinds.H2D]
    cut = overlay(union(copies["start"], ends(copies)), busy)
    alone = cut.cover < 0
    start = np.concatenate([busy.start, cut.start[alone]])
    end = np.concatenate([busy.end, cut.end[alone]])
    phase = np.concatenate([busy.owner, np.full(np.count_nonzero(alone), kinds.H2D)])
    order = np.argsort(start, kind="stable")
    return Pieces(start[order], end[order], phase[order])


def charge_device(
    host: Pieces, account: Ints, busy: Pieces, account_of_kind: dict[int, int], keeps: Flags
) -> tuple[Pieces, Ints, Flags]:
    """Charge the time in which the device was busy to the phase it worked on.

    Args:
        host: pieces of the training thread.
        account: account code of each piece.
        busy: the result of ``device_busy``.
        account_of_kind: account code of each phase.
        keeps: host pieces that keep their account while the device works (validation).

    Returns:
        The pieces cut at the device's edges, their accounts, and which of them are the device's time.
    """
    cut = overlay(host, busy)
    phase = np.array([account_of_kind[int(kind)] for kind in busy.owner], np.int64)
    works = (cut.cover >= 0) & ~keeps[cut.base]
    charged = np.where(works, phase[cut.cover] if len(phase) else 0, account[cut.base])
    return Pieces(cut.start, cut.end, host.owner[cut.base]), charged, works
