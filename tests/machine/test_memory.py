from __future__ import annotations

from pathlib import Path

from flatout.machine.counters import memory_use
from flatout.machine.memory import read_memory, read_shm, tightest_limit
from tests.machine.fake_root import NO_LIMIT_V1, V1_MOUNTS, V2_MOUNT, machine

GIB = 1 << 30


def test_v2_max_means_no_limit(tmp_path: Path) -> None:
    memory, missing = read_memory(machine(tmp_path, V2_MOUNT, "0::/job\n", {"sys/fs/cgroup/job/memory.max": "max\n"}))
    assert (memory.total_bytes, memory.available_bytes) == (16 * GIB, 8 * GIB)
    assert memory.limit_bytes is None
    assert memory.usable_bytes == 16 * GIB
    assert memory.huge_pages == "madvise"
    assert missing == {}


def test_a_kernel_without_huge_pages_says_nothing_of_them(tmp_path: Path) -> None:
    root = machine(tmp_path, V2_MOUNT, "0::/job\n")
    (root / "sys/kernel/mm/transparent_hugepage/enabled").unlink()
    assert read_memory(root)[0].huge_pages is None


def test_v2_limit_of_an_ancestor_counts(tmp_path: Path) -> None:
    files = {"sys/fs/cgroup/pod/memory.max": f"{4 * GIB}\n", "sys/fs/cgroup/pod/job/memory.max": f"{6 * GIB}\n"}
    memory, _ = read_memory(machine(tmp_path, V2_MOUNT, "0::/pod/job\n", files))
    assert memory.limit_bytes == memory.usable_bytes == 4 * GIB
    assert memory.limit_from == "/sys/fs/cgroup/pod/memory.max"


def test_v1_huge_number_means_no_limit(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/memory/memory.limit_in_bytes": NO_LIMIT_V1,
        "sys/fs/cgroup/memory/memory.stat": f"cache 5\nhierarchical_memory_limit {NO_LIMIT_V1}",
    }
    assert read_memory(machine(tmp_path, V1_MOUNTS, "4:memory:/\n", files))[0].limit_bytes is None


def test_v1_limit_above_the_visible_groups_is_found_by_the_kernels_own_least(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/memory/memory.limit_in_bytes": NO_LIMIT_V1,
        "sys/fs/cgroup/memory/memory.stat": f"hierarchical_memory_limit {2 * GIB}\n",
    }
    memory, _ = read_memory(machine(tmp_path, V1_MOUNTS, "4:memory:/\n", files))
    assert memory.limit_bytes == 2 * GIB
    assert memory.limit_from is not None
    assert memory.limit_from.endswith("hierarchical_memory_limit")


def test_both_versions_mounted_read_the_v1_limit(tmp_path: Path) -> None:
    mounts = V1_MOUNTS + "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
    files = {"sys/fs/cgroup/unified/x": "", "sys/fs/cgroup/memory/job/memory.limit_in_bytes": f"{3 * GIB}\n"}
    memory, _ = read_memory(machine(tmp_path, mounts, "4:memory:/job\n0::/\n", files))
    assert memory.limit_bytes == 3 * GIB


def test_unreadable_cgroups_are_not_the_same_as_no_limit(tmp_path: Path) -> None:
    root = machine(tmp_path, V2_MOUNT, "0::/\n")
    (root / "proc/self/cgroup").unlink()
    memory, missing = read_memory(root)
    assert memory.limit_bytes is None
    assert "memory.limit_bytes" in missing


def test_use_under_a_limit_leaves_out_inactive_page_cache(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/job/memory.max": f"{4 * GIB}\n",
        "sys/fs/cgroup/job/memory.current": f"{3 * GIB}\n",
        "sys/fs/cgroup/job/memory.stat": f"anon 1\ninactive_file {1 * GIB}\n",
    }
    root = machine(tmp_path, V2_MOUNT, "0::/job\n", files)
    assert memory_use(root, tightest_limit(root)) == {"used": 2 * GIB, "limit": 4 * GIB, "available": 2 * GIB}


def test_use_without_a_limit_is_of_the_whole_machine(tmp_path: Path) -> None:
    root = machine(tmp_path, V2_MOUNT, "0::/\n")
    assert memory_use(root, tightest_limit(root)) == {"used": 8 * GIB, "limit": 16 * GIB, "available": 8 * GIB}


def test_use_is_none_when_the_group_does_not_say(tmp_path: Path) -> None:
    root = machine(tmp_path, V2_MOUNT, "0::/job\n", {"sys/fs/cgroup/job/memory.max": f"{4 * GIB}\n"})
    assert memory_use(root, tightest_limit(root)) == {"used": None, "limit": 4 * GIB, "available": None}


def test_missing_shm_is_named(tmp_path: Path) -> None:
    shm, missing = read_shm(tmp_path)
    assert shm.size_bytes is None
    assert "shm.size_bytes" in missing
