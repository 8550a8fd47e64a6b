"""Gaps between spans that the loop has once in a while."""

from __future__ import annotations

import numpy as np
import pytest

from flatout.measure.gaps import between
from flatout.measure.timeline import Pieces
from flatout.probe import events as kinds


@pytest.mark.parametrize(("every", "apart"), [(20, True), (4, False)])
def test_a_far_longer_gap_is_set_apart_where_it_is_rare(every: int, apart: bool) -> None:
    """Each step is a backward pass and an update with a gap between; a long gap may come after a line of a log."""
    kind, length = [], []
    for step in range(80):
        long = step % every == 0
        kind += [kinds.BACKWARD, kinds.OPTIMIZER, kinds.LOG if long else kinds.OPTIMIZER, 0]
        length += [3, 3, 1, 500 if long else 5]
    end = np.cumsum(np.array(length, np.int64))
    pieces = Pieces(end - length, end, np.zeros(len(end), np.int64))
    gaps = between(np.array(kind, np.int64))
    assert not gaps.unusually_long().any()
    found = gaps.apart(pieces, np.array(kind) == 0)
    assert found.unusually_long().tolist() == [apart and each == 500 for each in length]
    assert [found.pairs[group] for group in found.group] == [gaps.pairs[group] for group in gaps.group]
