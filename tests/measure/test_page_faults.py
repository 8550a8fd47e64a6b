"""Page faults between the samples of a run, and the part of the CPU time that they take."""

from __future__ import annotations

import mmap
from typing import Any

import pytest

from flatout.measure.page_faults import PageFaults, count_faults


def sample(second: float, *processes: dict[str, Any]) -> dict[str, Any]:
    return {"t": second * 1e9, "processes": [{"pid": 7, "rss": 1, **process} for process in processes]}


def test_faults_are_counted_between_the_first_and_the_last_sample() -> None:
    samples = [
        sample(1, {"cpu_s": 1.0, "system_s": 0.5, "minflt": 1000}),
        sample(2),
        sample(3, {"cpu_s": 4.0, "system_s": 1.5, "minflt": 401_000}),
    ]
    assert count_faults(samples, [7]) == PageFaults(per_s=200_000, system_cores=0.5, cores=1.5)


def test_workers_are_added_up() -> None:
    both = [
        sample(s, *({"pid": pid, "cpu_s": s, "system_s": s / 4, "minflt": 100 * s} for pid in (8, 9))) for s in (1, 2)
    ]
    assert count_faults(both, [8, 9, 10]) == PageFaults(200, 0.5, 2.0)


@pytest.mark.parametrize("missing", ["minflt", "system_s"])
def test_a_record_without_them_has_none(missing: str) -> None:
    entry = {"cpu_s": 1.0, "system_s": 0.5, "minflt": 1000}
    del entry[missing]
    assert count_faults([sample(1, entry), sample(2, entry)], [7]) is None
    assert count_faults([], [7]) is None


def test_time_in_the_kernel_is_that_of_faults_up_to_what_they_can_take() -> None:
    assert PageFaults(per_s=100_000, system_cores=0.2, cores=1.0).part() == pytest.approx(0.2)
    busy_elsewhere = PageFaults(per_s=1000, system_cores=0.5, cores=1.0)
    assert busy_elsewhere.part() == pytest.approx(1000 * mmap.PAGESIZE * 1e-9)


def test_pages_of_shared_memory_are_left_out() -> None:
    faults = PageFaults(per_s=100_000, system_cores=0.2, cores=1.0)
    assert faults.part(others_per_s=50_000) == pytest.approx(0.1)
    assert faults.part(others_per_s=200_000) == 0.0


def test_an_idle_process_has_no_part() -> None:
    assert PageFaults(0.0, 0.0, 0.0).part() == 0.0
