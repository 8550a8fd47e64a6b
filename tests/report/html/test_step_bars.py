"""Which steps share a bar of a chart."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as some

from flatout.report.html.step_bars import bars


@given(some.integers(1, 5_000), some.sampled_from([3, 10, 100, 1_500]), some.integers(0, 9))
def test_bars_are_few_and_the_slowest_steps_stand_alone(count: int, most: int, seed: int) -> None:
    durations = np.random.default_rng(seed).lognormal(size=count)
    found = bars(durations, most)
    ends = np.append(found.first[1:], count)
    assert found.first[0] == 0 and len(found.first) <= most
    assert int((ends - found.first).max()) <= found.most
    single = set(found.first[ends - found.first == 1].tolist())
    assert set(np.argsort(-durations)[: found.alone].tolist()) <= single


def test_few_steps_have_a_bar_each() -> None:
    found = bars(np.ones(5), 5)
    assert found.first.tolist() == list(range(5)) and (found.alone, found.most) == (0, 1)
