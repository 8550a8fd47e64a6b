from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from flatout.machine.gpus import Nvml
from flatout.machine.snapshot import Machine, take_snapshot
from tests.machine.fake_root import V1_MOUNTS, V2_MOUNT, machine
from tests.machine.test_gpus import FakeNvml, NoDriver


def no_gpu() -> Nvml:
    return Nvml(NoDriver())


def two_gpus() -> Nvml:
    return Nvml(FakeNvml())


def test_a_snapshot_reloads_from_json_as_it_was(tmp_path: Path) -> None:
    snapshot = take_snapshot(machine(tmp_path, V2_MOUNT, "0::/\n"), start_nvml=two_gpus)
    assert snapshot.gpus is not None
    assert snapshot.mounts is not None
    assert Machine.from_dict(json.loads(json.dumps(snapshot.to_dict()))) == snapshot


def test_fields_of_other_versions_are_ignored_or_none(tmp_path: Path) -> None:
    data = take_snapshot(machine(tmp_path, V2_MOUNT, "0::/\n"), start_nvml=two_gpus).to_dict()
    data["cores"]["new_in_some_later_version"] = 1
    del data["gpus"][0]["uuid"]
    reloaded = Machine.from_dict(data)
    assert reloaded.gpus is not None
    assert reloaded.gpus[0].uuid is None


@pytest.mark.parametrize("data", [{}, {"cores": 3, "memory": {}, "shm": {}}, {"cores": {}, "memory": {}, "shm": []}])
def test_a_damaged_description_is_one_clear_error(data: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"machine\.json: not a description of a machine"):
        Machine.from_dict(data)


@pytest.mark.parametrize(
    ("mounts", "version"),
    [
        (V2_MOUNT, "v2"),
        (V1_MOUNTS, "v1"),
        (V1_MOUNTS + "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n", "v1+v2"),
        ("", None),
    ],
)
def test_cgroup_version_is_told_from_the_mounts(tmp_path: Path, mounts: str, version: str | None) -> None:
    snapshot = take_snapshot(machine(tmp_path, mounts, "0::/\n"), start_nvml=no_gpu)
    assert snapshot.cgroup == version
    assert ("cgroup" in snapshot.not_measured) == (version is None)


def test_an_empty_root_gives_only_nones_each_with_its_reason(tmp_path: Path) -> None:
    snapshot = take_snapshot(tmp_path, start_nvml=no_gpu)
    assert {
        "cores.usable",
        "memory.total_bytes",
        "memory.limit_bytes",
        "shm.size_bytes",
        "mounts",
        "kernel",
        "cgroup",
    } <= set(snapshot.not_measured)
    assert all(snapshot.not_measured.values())
    assert snapshot.one_line() == "cores not measured, RAM not measured, no GPU"


def test_one_line_names_what_limits(tmp_path: Path) -> None:
    files = {"sys/fs/cgroup/cpu.max": "150000 100000\n", "sys/fs/cgroup/memory.max": f"{4 << 30}\n"}
    snapshot = take_snapshot(machine(tmp_path, V2_MOUNT, "0::/\n", files), start_nvml=two_gpus)
    assert snapshot.one_line() == (
        "1.5 cores usable of 8, 4.0 GiB RAM usable of 16.0 GiB, NVIDIA A10G 24.0 GiB, NVIDIA A100-SXM4-80GB"
    )


def test_one_line_counts_equal_gpus(tmp_path: Path) -> None:
    snapshot = take_snapshot(machine(tmp_path, V2_MOUNT, "0::/\n"), start_nvml=two_gpus)
    assert snapshot.gpus is not None
    same = replace(snapshot, gpus=(snapshot.gpus[0],) * 4)
    assert same.one_line() == "6 cores usable of 8, 16.0 GiB RAM, 4 x NVIDIA A10G 24.0 GiB"


def test_this_machine_can_be_described() -> None:
    snapshot = take_snapshot(start_nvml=no_gpu)
    assert snapshot.cores.affinity == len(os.sched_getaffinity(0))
    assert snapshot.cores.usable is not None
    assert 0 < snapshot.cores.usable <= snapshot.cores.affinity
    assert snapshot.kernel == os.uname().release
