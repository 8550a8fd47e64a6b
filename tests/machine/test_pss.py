"""Whose proportional set size is read, and how often."""

from __future__ import annotations

from flatout.machine.pss import INTERVAL_S, MOST_OF_A_CORE, PssReader
from tests.machine.test_processes import stat

ROOT, FIRST, SECOND = stat(1, 0, rss=90), stat(2, 1, rss=30), stat(3, 1, rss=40)


class Reader(PssReader):
    """Reads made-up processes, at a made-up cost."""

    def __init__(self, cost_s: float = 0.0) -> None:
        self.now_s = 0.0

        def read(pid: int) -> int:
            self.now_s += cost_s
            return 100 * pid

        super().__init__(1, read, lambda: self.now_s)

    def at(self, seconds: float) -> dict[int, int | None]:
        return self.due([ROOT, FIRST, SECOND], int(seconds * 1e9))


def test_workers_take_turns_and_the_training_is_left_alone() -> None:
    reader = Reader()
    assert reader.at(10.0) == {3: 300}
    assert reader.at(10.0 + INTERVAL_S - 0.1) == {}
    assert [reader.at(10.0 + turn * INTERVAL_S) for turn in (1, 2, 3)] == [{2: 200}, {3: 300}, {2: 200}]


def test_a_process_with_children_trains() -> None:
    launcher, rank, worker = stat(1, 0), stat(2, 1), stat(3, 2)
    assert PssReader(1, lambda pid: 100 * pid).due([launcher, rank, worker], 10**10) == {3: 300}


def test_what_costs_much_is_read_less_often() -> None:
    reader = Reader(cost_s=0.1)
    assert reader.at(10.0) == {3: 300}
    pause_s = 0.1 / MOST_OF_A_CORE
    assert reader.at(10.0 + pause_s - 0.1) == {}
    assert reader.at(10.0 + pause_s + 0.1) == {2: 200}
