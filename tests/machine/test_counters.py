from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from flatout.machine import cgroups, counters
from tests.machine.fake_root import V1_MOUNTS, V2_MOUNT, machine, write


def test_core_use_is_the_busy_fraction_since_the_previous_call(monkeypatch: pytest.MonkeyPatch) -> None:
    class Times(NamedTuple):
        user: float
        idle: float
        iowait: float
        guest: float

    readings = iter([[Times(10, 10, 0, 0), Times(0, 5, 5, 0)], [Times(13, 11, 0, 1), Times(0, 4, 9, 0)]])
    monkeypatch.setattr(counters, "psutil", SimpleNamespace(cpu_times=lambda percpu: next(readings)))
    use = counters.CoreUse()
    assert use.read() is None
    # A guest's second is in user already; waiting for a disk is idle; idle that steps back is not busy.
    assert use.read() == [0.75, 0.0]


def test_throttling_of_v2_is_scaled_to_ns_and_the_most_throttled_group_counts(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/pod/cpu.stat": "nr_periods 9\nnr_throttled 4\nthrottled_usec 2500\n",
        "sys/fs/cgroup/pod/job/cpu.stat": "nr_throttled 0\nthrottled_usec 0\n",
        "sys/fs/cgroup/cpu.stat": "usage_usec 7\n",
    }
    levels = cgroups.levels(machine(tmp_path, V2_MOUNT, "0::/pod/job\n", files), "cpu")
    assert levels is not None
    assert counters.throttled_ns(levels) == 2_500_000


def test_throttling_of_v1_is_in_ns_already(tmp_path: Path) -> None:
    files = {"sys/fs/cgroup/cpu,cpuacct/cpu.stat": "nr_periods 0\nnr_throttled 0\nthrottled_time 77\n"}
    levels = cgroups.levels(machine(tmp_path, V1_MOUNTS, "2:cpu,cpuacct:/\n", files), "cpu")
    assert levels is not None
    assert counters.throttled_ns(levels) == 77


def test_no_group_that_tells_is_none_and_not_zero() -> None:
    assert counters.throttled_ns([]) is None


def test_pressure_totals_are_read_and_missing_ones_are_none(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "proc/pressure/cpu": "some avg10=6.92 avg60=2.60 avg300=0.69 total=5377272\n",
            "proc/pressure/io": "some avg10=0.00 avg60=0.00 avg300=0.00 total=20\n"
            "full avg10=0.00 avg60=0.00 avg300=0.00 total=10\n",
        },
    )
    assert counters.pressure(root) == {
        "cpu": {"some": 5377272, "full": None},
        "io": {"some": 20, "full": 10},
        "memory": None,
    }


def test_run_queue_waits_are_summed_over_cores(tmp_path: Path) -> None:
    text = "version 15\ntimestamp 1\ncpu0 0 0 0 0 0 0 500 70 3\ndomain0 3 0 0\ncpu1 0 0 0 0 0 0 600 30 3\n"
    assert counters.runqueue_ns(write(tmp_path / "with", {"proc/schedstat": text})) == 100
    assert counters.runqueue_ns(tmp_path / "without") is None


def test_only_whole_disks_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = SimpleNamespace(read_bytes=4096, read_count=2, write_bytes=512, busy_time=9)
    disks = {"nvme0n1": one, "nvme0n1p1": one, "loop0": one}
    fake = SimpleNamespace(disk_io_counters=lambda perdisk, nowrap: disks)
    monkeypatch.setattr(counters, "psutil", fake)
    root = write(tmp_path, {"sys/block/nvme0n1/size": "1", "sys/block/loop0/size": "1"})
    assert counters.disk_counts(root) == {
        "nvme0n1": {"read_bytes": 4096, "read_count": 2, "write_bytes": 512, "busy_ms": 9}
    }


def test_what_is_not_there_is_none(tmp_path: Path) -> None:
    assert counters.disk_counts(tmp_path) is None
    assert counters.shm_use(tmp_path) is None
    assert counters.memory_use(tmp_path, None) == {"used": None, "limit": None, "available": None}
