"""Processes of the training's own that make its input."""

from __future__ import annotations

import pytest

from flatout.measure.makers import find_makers

SECOND = 10**9


def sampled(*uses: float) -> list[dict[str, object]]:
    """Samples of eleven seconds: process 10 + n uses ``uses[n]`` cores and waits a fifth of the time for one."""
    return [
        {
            "t": second * SECOND,
            "processes": [
                {"pid": 10 + n, "cpu_s": use * second, "runqueue_s": 0.2 * second, "rss": (100 + second) << 20}
                for n, use in enumerate(uses)
            ],
        }
        for second in range(11)
    ]


def test_children_that_compute_are_counted_with_their_cores_and_memory() -> None:
    found = find_makers(sampled(0.9, 0.5, 0.3, 0.001), 2 * SECOND, 10 * SECOND, {11, 12, 13})
    assert found is not None
    assert found.processes == 2  # 10 is no child, 13 does nothing
    assert found.cores == pytest.approx(0.8) and found.runqueue_share == pytest.approx(0.2)
    assert found.busy == pytest.approx(0.6) and found.bytes_each == 110 << 20


def test_no_makers_are_seen_where_no_child_computes() -> None:
    assert find_makers(sampled(0.9), 0, 10 * SECOND, {11}) is None
    assert find_makers(sampled(0.9, 0.5), 20 * SECOND, 30 * SECOND, {11}) is None
