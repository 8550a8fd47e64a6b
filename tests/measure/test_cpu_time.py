"""CPU time of processes that end between two samples, from hand-made machine samples."""

from __future__ import annotations

from typing import Any

import pytest

from flatout.measure.cpu_time import tree_s, workers_s


def sample(second: int, *processes: tuple[int, float, float | None]) -> dict[str, Any]:
    entries = [{"pid": pid, "cpu_s": cpu_s, "children_s": children_s} for pid, cpu_s, children_s in processes]
    return {"t": second * 10**9, "processes": entries}


# The training process 1; worker 2 ends after 6.5 s of computing, 1.5 s of them never sampled; worker 3 is begun then.
RESTARTED = [
    sample(0, (1, 10.0, 40.0), (2, 3.0, 0.0)),
    sample(2, (1, 11.0, 40.0), (2, 5.0, 0.0)),
    sample(4, (1, 12.0, 46.5), (3, 0.75, 0.0)),
]


def test_what_a_worker_used_after_its_last_sample_counts() -> None:
    assert workers_s(RESTARTED, 1, [2, 3]) == pytest.approx(3.5 + 0.75)
    assert tree_s(RESTARTED) == pytest.approx(2.0 + 3.5 + 0.75)


def test_a_worker_that_no_sample_shows_counts_too() -> None:
    never = [sample(0, (1, 10.0, 40.0)), sample(2, (1, 11.0, 40.4))]
    assert workers_s(never, 1, []) == pytest.approx(0.4)
    assert tree_s(never) == pytest.approx(1.4)


def test_of_an_older_record_samples_alone_count() -> None:
    first, second = sample(0, (1, 1.0, None), (2, 3.0, None)), sample(2, (1, 2.0, None), (2, 5.0, None))
    older = [first, second, sample(4, (1, 3.0, None))]
    assert workers_s(older, 1, [2]) == pytest.approx(2.0)
    assert tree_s(older) == pytest.approx(4.0)


def test_without_samples_there_is_nothing() -> None:
    assert (workers_s([], 1, [2]), tree_s([])) == (0.0, 0.0)
