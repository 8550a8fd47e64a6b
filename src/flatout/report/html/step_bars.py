"""Which steps share a bar of a chart: the slowest ones never do, so that a mean does not hide them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flatout.export.timeline import Floats, Ints

KEPT = 0.2  # share of the bars for steps of their own


@dataclass(frozen=True)
class Bars:
    """Steps in bars.

    Attributes:
        first: step of each bar; a bar ends before the first step of the next one.
        alone: slowest steps that have a bar of their own; 0: every step has one.
        most: steps of a bar.
    """

    first: Ints
    alone: int
    most: int


def bars(durations_s: Floats, most: int) -> Bars:
    """At most ``most`` bars for the steps: the slowest alone, the others joined to neighbours."""
    count = len(durations_s)
    if count <= most:
        return Bars(np.arange(count), 0, 1)
    alone = int(KEPT * most)
    # Each step that stands alone cuts a row of joined ones, which costs up to one bar more.
    joined = -(-(count - alone) // (most - 2 * alone))
    single = np.zeros(count, bool)
    single[np.argsort(-durations_s, kind="stable")[:alone]] = True
    place = np.arange(count)
    cut = single | np.append(True, single[:-1])
    since = place - np.maximum.accumulate(np.where(cut, place, 0))
    return Bars(np.flatnonzero(since % joined == 0), alone, joined)
