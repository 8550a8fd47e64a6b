from __future__ import annotations

from pathlib import Path

import pytest

from flatout.machine.cores import read_cores
from flatout.machine.files import parse_cpu_list
from tests.machine.fake_root import V1_MOUNTS, V2_MOUNT, machine, write


def test_v2_quota_below_affinity_is_what_is_usable(tmp_path: Path) -> None:
    root = machine(tmp_path, V2_MOUNT, "0::/job\n", {"sys/fs/cgroup/job/cpu.max": "150000 100000\n"})
    cores, missing = read_cores(root)
    assert (cores.usable, cores.online, cores.affinity, cores.quota) == (1.5, 8, 6, 1.5)
    assert cores.derived["quota"] == "/sys/fs/cgroup/job/cpu.max: 150000 of 100000 µs"
    assert missing == {}


def test_v2_parent_with_a_tighter_quota_counts(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/pod/cpu.max": "200000 100000\n",
        "sys/fs/cgroup/pod/train/cpu.max": "400000 100000\n",
        "sys/fs/cgroup/pod/train/rank0/cpu.max": "max 100000\n",
    }
    cores, _ = read_cores(machine(tmp_path, V2_MOUNT, "0::/pod/train/rank0\n", files))
    assert cores.usable == 2
    assert "/pod/cpu.max" in cores.derived["quota"]


def test_v1_quota_is_read(tmp_path: Path) -> None:
    folder = "sys/fs/cgroup/cpu,cpuacct/job"
    files = {f"{folder}/cpu.cfs_quota_us": "300000\n", f"{folder}/cpu.cfs_period_us": "100000\n"}
    cores, _ = read_cores(machine(tmp_path, V1_MOUNTS, "4:memory:/\n2:cpu,cpuacct:/job\n", files))
    assert (cores.usable, cores.quota) == (3.0, 3.0)


def test_v1_quota_of_minus_one_is_no_quota(tmp_path: Path) -> None:
    folder = "sys/fs/cgroup/cpu,cpuacct"
    files = {f"{folder}/cpu.cfs_quota_us": "-1\n", f"{folder}/cpu.cfs_period_us": "100000\n"}
    cores, missing = read_cores(machine(tmp_path, V1_MOUNTS, "2:cpu,cpuacct:/\n", files))
    assert (cores.usable, cores.quota) == (6.0, None)
    assert "cores.quota" not in missing


def test_container_without_cgroup_namespace_finds_its_own_group(tmp_path: Path) -> None:
    # The mount shows only the container's part of the hierarchy, while /proc names the whole path.
    mount = "32 27 0:29 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n"
    files = {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "400000\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}
    cores, _ = read_cores(machine(tmp_path, mount, "2:cpu:/docker/abc\n", files))
    assert cores.quota == 4


def test_group_outside_of_what_is_mounted_uses_the_visible_part(tmp_path: Path) -> None:
    files = {"sys/fs/cgroup/cpu.max": "100000 100000\n"}
    cores, _ = read_cores(machine(tmp_path, V2_MOUNT, "0::/../../other\n", files))
    assert cores.quota == 1


def test_both_versions_mounted_take_the_tighter_quota(tmp_path: Path) -> None:
    mounts = V1_MOUNTS + "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
    files = {
        "sys/fs/cgroup/unified/cpu.stat": "usage_usec 1\n",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "500000\n",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
    }
    cores, _ = read_cores(machine(tmp_path, mounts, "2:cpu,cpuacct:/\n0::/\n", files))
    assert cores.usable == 5


def test_what_cannot_be_read_is_none_and_named(tmp_path: Path) -> None:
    cores, missing = read_cores(write(tmp_path, {"proc/stat": "cpu  1 2 3 4\n"}))
    assert (cores.usable, cores.online, cores.affinity, cores.quota, cores.model) == (None,) * 5
    assert set(missing) == {"cores.usable", "cores.online", "cores.affinity", "cores.quota", "cores.model"}


def test_cores_online_are_counted_from_proc_stat_without_sysfs(tmp_path: Path) -> None:
    cores, _ = read_cores(write(tmp_path, {"proc/stat": "cpu  9 9\ncpu0 1 2\ncpu1 1 2\nintr 5\n"}))
    assert (cores.online, cores.usable) == (2, 2.0)


@pytest.mark.parametrize(("text", "cores"), [("0", {0}), ("0-2,5\n", {0, 1, 2, 5}), ("\n", set())])
def test_cpu_lists_are_parsed(text: str, cores: set[int]) -> None:
    assert parse_cpu_list(text) == cores
