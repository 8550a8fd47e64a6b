from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from flatout.machine import processes
from flatout.machine.processes import (
    Members,
    Neighbours,
    Stat,
    read_pss_bytes,
    read_runqueue_s,
    read_stat,
    sample_processes,
)
from tests.machine.trees import NESTED, ready_pids, started


def stat(pid: int, ppid: int, start: int = 100, state: str = "S", rss: int = 1000) -> Stat:
    return Stat(
        pid,
        ppid,
        state,
        start,
        rss,
        cpu_s=0.5,
        threads=2,
        major_faults=1,
        minor_faults=7,
        system_s=0.125,
        children_s=0.25,
    )


class Table:
    """A fake process table that counts what is read of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *stats: Stat) -> None:
        self.read: list[int] = []
        self.set(*stats)
        monkeypatch.setattr(processes, "all_pids", lambda: list(self.stats))
        monkeypatch.setattr(processes, "read_stat", self._read)

    def set(self, *stats: Stat) -> None:
        self.stats = {item.pid: item for item in stats}

    def _read(self, pid: int) -> Stat | None:
        self.read.append(pid)
        return self.stats.get(pid)


INIT, US, ROOT, WORKER = stat(1, 0, 0), stat(10, 1, 50), stat(20, 10), stat(21, 20, 110)


def pids(stats: list[Stat]) -> list[int]:
    return [item.pid for item in stats]


def test_members_are_the_root_and_all_below_in_order_of_start(monkeypatch: pytest.MonkeyPatch) -> None:
    grandchild, stranger = stat(19, 21, 120), stat(30, 10)
    Table(monkeypatch, grandchild, INIT, stranger, US, ROOT, WORKER)
    assert pids(Members(20).update()) == [20, 21, 19]


def test_a_member_stays_one_when_its_parent_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(monkeypatch, INIT, US, ROOT, WORKER)
    members = Members(20)
    members.update()
    table.set(INIT, US, stat(21, 1, 110), stat(22, 21, 130))
    assert pids(members.update()) == [21, 22]


def test_a_reused_pid_is_not_a_member(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(monkeypatch, INIT, US, ROOT, WORKER)
    members = Members(20)
    members.update()
    table.set(INIT, US, stat(20, 1, 900), stat(21, 1, 900))
    assert members.update() == []


def test_zombies_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    Table(monkeypatch, INIT, US, ROOT, stat(21, 20, 110, state="Z"))
    assert pids(Members(20).update()) == [20]


def test_orphans_handed_to_the_adopter_are_members_only_if_younger_than_the_root(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    orphan, below_it, older = stat(40, 10, 105), stat(41, 40, 106), stat(42, 10, 99)
    Table(monkeypatch, INIT, US, ROOT, orphan, below_it, older)
    assert pids(Members(20, adopter_pid=10).update()) == [20, 40, 41]
    assert pids(Members(20).update()) == [20]


def test_processes_outside_are_read_again_only_on_refresh(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(monkeypatch, INIT, US, ROOT, WORKER)
    members = Members(20)
    members.update()
    table.read.clear()
    members.update()
    assert sorted(table.read) == [20, 21]
    table.read.clear()
    members.update(refresh=True)
    assert sorted(table.read) == [1, 10, 20, 21]


def test_pss_stands_where_it_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "read_runqueue_s", lambda pid: 0.25)
    members = [stat(1, 0, rss=10), stat(2, 1, rss=30), stat(3, 1, rss=20)]
    sampled = sample_processes(members, {2: 200})
    assert [item["pss"] for item in sampled] == [None, 200, None]
    assert sampled[0] == {
        "pid": 1, "ppid": 0, "name": "", "rss": 10, "pss": None, "cpu_s": 0.5, "system_s": 0.125, "children_s": 0.25,
        "runqueue_s": 0.25, "threads": 2, "majflt": 1, "minflt": 7,
    }  # fmt: skip


def test_this_process_is_read_as_it_is() -> None:
    own = read_stat(os.getpid())
    assert own is not None
    assert (own.ppid, own.ended) == (os.getppid(), False)
    assert own.rss_bytes > 1_000_000
    assert read_stat(2**22 + 1) is None


def test_pss_is_at_most_rss_and_none_for_a_process_that_is_gone() -> None:
    pss = read_pss_bytes(os.getpid())
    own = read_stat(os.getpid())
    assert pss is not None
    assert own is not None
    assert 0 < pss < own.rss_bytes * 2  # RSS is counted with some delay
    assert read_pss_bytes(2**22 + 1) is None


def test_waiting_for_a_core_is_read_of_the_first_thread() -> None:
    waited = read_runqueue_s(os.getpid())
    assert waited is None or waited >= 0
    assert (waited is None) is not Path(f"/proc/{os.getpid()}/schedstat").exists()
    assert read_runqueue_s(2**22 + 1) is None


def test_a_real_tree_is_followed(tmp_path: Path) -> None:
    with started(NESTED, tmp_path, "1", NESTED, count=2) as process:
        members = Members(process.pid)
        assert set(pids(members.update())) == set(ready_pids(tmp_path))


def test_the_busiest_neighbours_are_those_outside_the_tree_since_the_last_look() -> None:
    neighbours = Neighbours()
    before = [
        Stat(pid, 1, "R", 5, 1, cpu_s, 1, 0, name=name) for pid, cpu_s, name in ((7, 100.0, "idle"), (8, 1.0, "busy"))
    ]
    assert neighbours.busiest(before, 1_000_000_000) == []
    after = [replace(stat, cpu_s=stat.cpu_s + (4.0 if stat.name == "busy" else 0.0)) for stat in before]
    new = Stat(9, 1, "R", 6, 1, 50.0, 1, 0, name="new")
    found = neighbours.busiest([*after, new, replace(new, pid=os.getpid())], 6_000_000_000)
    assert found == [{"pid": 8, "name": "busy", "cores": 0.8}]
