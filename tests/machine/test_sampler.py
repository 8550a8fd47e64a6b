from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flatout.machine import sampler as sampler_module
from flatout.machine.gpus import Nvml
from flatout.machine.sampler import SystemSampler
from tests.machine.test_gpus import FakeNvml, NoDriver
from tests.machine.trees import NESTED, ready_pids, started, wait_for

FIELDS = {
    "t",
    "cpu",
    "cpu_usable",
    "throttled_ns",
    "runqueue_ns",
    "memory",
    "shm",
    "psi",
    "disks",
    "net",
    "gpus",
    "neighbours",
}


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler_module, "END_WITHIN_S", 100.0)


def no_gpu() -> Nvml:
    return Nvml(NoDriver())


def samples_in(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def sampler_of(path: Path, pid: int, **options: Any) -> SystemSampler:
    return SystemSampler(path, pid, 0.02, **({"start_nvml": no_gpu} | options))


def test_a_real_tree_is_sampled_until_stopped(tmp_path: Path) -> None:
    path = tmp_path / "system.jsonl"
    with started(NESTED, tmp_path / "ready", "1", NESTED, count=2) as process:
        with sampler_of(path, process.pid) as sampler:
            wait_for(lambda: sampler.samples >= 4)
        pids = set(ready_pids(tmp_path / "ready"))
    assert sampler.problem is None
    samples = samples_in(path)
    assert len(samples) == sampler.samples
    assert set(samples[0]) == FIELDS | {"processes"}
    assert {item["pid"] for item in samples[0]["processes"]} == pids
    assert all(item["rss"] > 0 and item["threads"] == 1 for item in samples[0]["processes"])
    times = [sample["t"] for sample in samples]
    assert times == sorted(times)
    assert samples[0]["cpu"] is None
    assert len(samples[-1]["cpu"]) == os.cpu_count()
    assert all(0 <= share <= 1 for share in samples[-1]["cpu"])
    assert samples[0]["memory"]["limit"] > 0
    assert not any(thread.name == "flatout-sampler" for thread in threading.enumerate())


def test_a_run_shorter_than_the_interval_has_a_first_and_a_last_sample(tmp_path: Path) -> None:
    sampler = SystemSampler(tmp_path / "system.jsonl", os.getpid(), 3600, start_nvml=no_gpu)
    sampler.start()
    wait_for(lambda: sampler.samples == 1)
    sampler.stop()
    assert len(samples_in(tmp_path / "system.jsonl")) == 2


def test_cores_usable_are_those_of_the_sampled_process(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        with started(NESTED, tmp_path, "0", NESTED) as process:
            os.sched_setaffinity(0, before)
            assert sampler_of(tmp_path / "unused", process.pid).sample()["cpu_usable"] == 1
    finally:
        os.sched_setaffinity(0, before)


def test_gpus_are_sampled_through_nvml_and_nvml_is_given_back(tmp_path: Path) -> None:
    fake = FakeNvml()
    path = tmp_path / "system.jsonl"
    with sampler_of(path, os.getpid(), start_nvml=lambda: Nvml(fake)) as sampler:
        wait_for(lambda: sampler.samples >= 1)
    assert [gpu["index"] for gpu in samples_in(path)[0]["gpus"]] == [0, 1]
    assert not fake.running


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_full_disk_ends_the_samples_and_not_the_caller() -> None:
    with sampler_of(Path("/dev/full"), os.getpid()) as sampler:
        wait_for(lambda: sampler.problem is not None)
    assert sampler.problem == "machine samples end after 0: full: No space left on device"


def test_a_folder_that_is_not_there_is_a_problem_and_not_an_exception(tmp_path: Path) -> None:
    with sampler_of(tmp_path / "missing" / "system.jsonl", os.getpid()) as sampler:
        wait_for(lambda: sampler.problem is not None)
    assert "system.jsonl: No such file or directory" in (sampler.problem or "")


def test_a_fault_while_sampling_keeps_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = sampler_of(tmp_path / "system.jsonl", os.getpid())
    answers = iter([{"t": 1}])
    monkeypatch.setattr(sampler, "sample", lambda: next(answers))
    with sampler:
        wait_for(lambda: sampler.problem is not None)
    assert sampler.problem == "machine samples end after 1: StopIteration()"
    assert samples_in(tmp_path / "system.jsonl") == [{"t": 1}]


def test_a_short_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = bytearray()

    def write_few(data: bytes) -> int:
        written.extend(data[:7])
        return min(len(data), 7)

    sampler = sampler_of(tmp_path / "unused", os.getpid())
    monkeypatch.setattr(sampler, "sample", lambda: {"t": 123456789})
    sampler._stop = SimpleNamespace(wait=lambda seconds: True)  # type: ignore[assignment]
    sampler._write_samples(write_few)
    assert written == b'{"t":123456789}\n' * 2


def test_a_tree_that_has_ended_is_sampled_without_processes(tmp_path: Path) -> None:
    with started(NESTED, tmp_path, "0", NESTED) as process:
        sampler = sampler_of(tmp_path / "unused", process.pid)
        before = sampler.sample()
        process.kill()
        process.wait()
    after = sampler.sample()
    assert (len(before["processes"]), after["processes"]) == (1, [])
    assert after["cpu_usable"] == before["cpu_usable"]


def test_stopping_twice_or_before_the_start_is_no_error(tmp_path: Path) -> None:
    sampler = sampler_of(tmp_path / "system.jsonl", os.getpid())
    sampler.stop()
    sampler.stop()
    assert sampler.problem is None


def test_an_interval_of_zero_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="interval_s must be above 0, got 0"):
        SystemSampler(tmp_path / "system.jsonl", os.getpid(), 0)
