"""Waits for cores that other processes have, from hand-made machine samples."""

from __future__ import annotations

from typing import Any

import pytest

from flatout.measure.crowding import Contention, Crowding, measure_contention, measure_crowding, processes_beside

S = 1_000_000_000


def samples(
    busy: float, tree: dict[int, float], neighbours: list[dict[str, Any]] | None = None
) -> list[dict[str, Any]]:
    """Ten seconds of a machine of 4 cores, busy to this part; mean cores of each process of the tree."""
    return [
        {
            "t": t * S,
            "cpu": [busy] * 4,
            "processes": [{"pid": pid, "rss": 1, "cpu_s": 7.0 + cores * t} for pid, cores in tree.items()],
            "neighbours": neighbours if t % 5 == 0 else None,
        }
        for t in range(11)
    ]


def crowding(busy: float, tree: dict[int, float], waits: float, **more: Any) -> Crowding:
    found = measure_crowding(samples(busy, tree, **more), tree[1], waits)
    assert found is not None
    return found


def test_waits_on_a_machine_that_others_keep_full_are_theirs() -> None:
    found = crowding(1.0, {1: 0.5}, waits=0.5)
    assert found.outside_cores == pytest.approx(3.5)
    assert found.part == pytest.approx(1.0)
    assert found.wait_share == pytest.approx(0.5)


def test_waits_for_own_workers_are_not_theirs() -> None:
    found = crowding(1.0, {1: 0.5, 2: 1.7, 3: 1.7}, waits=0.5)
    assert found.outside_cores == pytest.approx(0.1)
    assert found.wait_share < 0.02


def test_others_and_own_workers_share_the_blame_by_their_cores() -> None:
    found = crowding(1.0, {1: 0.5, 2: 1.75}, waits=0.5)
    assert found.part == pytest.approx(0.5)
    assert found.wait_share == pytest.approx(0.25)


def test_beside_idle_cores_nobody_else_is_to_blame() -> None:
    """An affinity mask of one core, for example, on a machine that others use to three quarters."""
    assert crowding(0.75, {1: 0.5}, waits=0.5).wait_share == 0.0


def test_a_process_that_starts_inside_the_window_is_the_trees_own() -> None:
    found = samples(1.0, {1: 0.5})
    for sample in found[5:]:
        sample["processes"].append({"pid": 9, "rss": 1, "cpu_s": (sample["t"] / S - 5) * 3.5})
    measured = measure_crowding(found, 0.5, 0.5)
    assert measured is not None
    assert measured.outside_cores == pytest.approx(4.0 - 0.5 - 1.75)


def test_the_busiest_are_named_and_their_names_are_safe_to_print() -> None:
    named = [{"pid": 8, "name": "stress\x1b[2J", "cores": 1.5}, {"pid": 9, "name": "sshd", "cores": 0.01}]
    found = crowding(1.0, {1: 0.5}, waits=0.5, neighbours=named)
    (only,) = found.processes
    assert "stress" in only
    assert "(pid 8): 1.5 cores" in only
    assert "\x1b" not in only


def test_cores_of_others_count_while_none_is_idle() -> None:
    found = measure_contention(samples(1.0, {1: 0.5, 2: 1.0}), 2 * S, 8 * S)
    assert found is not None
    assert (found.contending_cores, found.left_cores, found.machine_cores) == (
        pytest.approx(2.5),
        pytest.approx(1.5),
        4,
    )
    idle = measure_contention(samples(0.75, {1: 0.5}), 0, 10 * S)
    assert idle is not None and idle.contending_cores == 0.0 and idle.outside_cores == pytest.approx(2.5)
    assert measure_contention(samples(1.0, {1: 0.5}), 20 * S, 30 * S) is None
    assert Contention(4.0, 1.0, 4).left_cores == 0.1


def test_without_waits_or_samples_nothing_is_measured() -> None:
    assert measure_crowding(samples(1.0, {1: 0.5}), 0.5, None) is None
    assert measure_crowding([], 0.5, 0.5) is None


def tree_of(parents: dict[int, int]) -> list[dict[str, Any]]:
    return [{"t": 0, "processes": [{"pid": pid, "ppid": parent} for pid, parent in parents.items()]}]


def test_what_the_training_started_beside_its_workers_is_told_by_its_parents() -> None:
    # 1 starts 2, a shell, and that the training 3; its workers are 4 and 5; 6 is a monitor with 7; 4 starts ffmpeg, 8.
    parents = {1: 0, 2: 1, 3: 2, 4: 3, 5: 3, 6: 3, 7: 6, 8: 4}
    assert processes_beside(tree_of(parents), 3, [4, 5]) == {6, 7}
    assert processes_beside([{"t": 0, "processes": [{"pid": 3}, {"pid": 6}]}], 3, []) == frozenset()  # an older record
    assert processes_beside(tree_of({8: 9, 9: 8}), 3, []) == frozenset()  # numbers that were used again


def test_a_monitor_that_the_training_started_takes_cores_from_it() -> None:
    tree = {1: 0.5, 2: 1.7, 3: 1.7}
    found = measure_crowding(samples(1.0, tree), 0.5, 0.5, beside={2, 3})
    assert found is not None
    assert [found.outside_cores, found.started_cores] == pytest.approx([3.5, 3.4])
    assert found.wait_share == pytest.approx(0.5)
    assert found.processes[0] == "a process (pid 2), which this training started: 1.7 cores"
    idle = measure_crowding(samples(1.0, {1: 0.5, 2: 0.01, 3: 3.4}), 0.5, 0.5, beside={2})
    assert idle is not None and idle.started_cores == 0.0
