"""Lays out a /proc, /sys and /dev below a folder."""

from __future__ import annotations

from pathlib import Path

MEMINFO = (
    "MemTotal:       16777216 kB\nMemFree:         4194304 kB\nMemAvailable:    8388608 kB\nHugePages_Total:       0\n"
)
ROOT_MOUNT = "27 1 259:1 / / rw,relatime - ext4 /dev/nvme0n1p1 rw\n"
V2_MOUNT = "31 27 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MOUNTS = (
    "31 27 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
)
NO_LIMIT_V1 = "9223372036854771712\n"


def write(root: Path, files: dict[str, str]) -> Path:
    """Write files by their path below the root."""
    for name, text in files.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def machine(root: Path, mounts: str, cgroup: str, files: dict[str, str] | None = None) -> Path:
    """Eight cores online, six in the affinity mask, 16 GiB of memory, and what is given."""
    return write(
        root,
        {
            "proc/self/mountinfo": ROOT_MOUNT + mounts,
            "proc/self/cgroup": cgroup,
            "proc/self/status": "Name:\tpython\nCpus_allowed:\t3f\nCpus_allowed_list:\t0-3,6-7\n",
            "proc/meminfo": MEMINFO,
            "proc/cpuinfo": "processor\t: 0\nmodel name\t: AMD EPYC 7R32\n",
            "proc/sys/kernel/osrelease": "6.1.0\n",
            "sys/devices/system/cpu/online": "0-7\n",
            "dev/shm/.keep": "",
            "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        }
        | (files or {}),
    )
