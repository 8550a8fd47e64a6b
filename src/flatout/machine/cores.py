"""The number of cores that a process can really use, and the source of that number."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from flatout.machine import cgroups
from flatout.machine.files import parse_cpu_list, read_int, read_text


@dataclass(frozen=True)
class Cores:
    """Usable cores = min(online, affinity, CPU quota)."""

    usable: float | None  # a quota need not be whole
    online: int | None
    affinity: int | None  # cores that the process may run on; a cpuset shows here too
    quota: float | None  # cores' worth of CPU time; None: no quota, unless named in not_measured
    model: str | None
    derived: dict[str, str] = field(default_factory=dict)  # field -> where its number is from


@dataclass(frozen=True)
class Quota:
    """A CPU quota in cores, and the group that sets it."""

    cores: float
    level: cgroups.Level
    setting: str  # the file and what it says


def _quota_of(level: cgroups.Level) -> Quota | None:
    """The group's own quota: CPU time allowed in each period, both in µs."""
    if level.version == 2:
        setting = (read_text(level.directory / "cpu.max") or "").split()
        if len(setting) != 2 or not all(part.isdigit() for part in setting):
            return None  # "max 100000", or no such file at the true top
        allowed_us, period_us = int(setting[0]), int(setting[1])
        file = "cpu.max"
    else:
        allowed = read_int(level.directory / "cpu.cfs_quota_us")
        period = read_int(level.directory / "cpu.cfs_period_us")
        if allowed is None or period is None or allowed <= 0:
            return None  # -1: no quota
        allowed_us, period_us = allowed, period
        file = "cpu.cfs_quota_us"
    if period_us <= 0:
        return None
    return Quota(allowed_us / period_us, level, f"{level.name}/{file}: {allowed_us} of {period_us} µs")


def tightest_quota(root: Path, pid: int | str = "self") -> Quota | None:
    """The quota that limits the process: the least of its groups', the nearest among equals."""
    quotas = [quota for level in cgroups.levels(root, "cpu", pid) or [] if (quota := _quota_of(level))]
    return min(quotas, key=lambda quota: quota.cores, default=None)


def _online(root: Path) -> tuple[int | None, str]:
    text = read_text(root / "sys/devices/system/cpu/online")
    if text:
        try:
            return len(parse_cpu_list(text)), f"/sys/devices/system/cpu/online: {text.strip()}"
        except ValueError:
            pass
    lines = (read_text(root / "proc/stat") or "").splitlines()
    count = sum(1 for line in lines if line.startswith("cpu") and line[3:4].isdigit())
    return count or None, "/proc/stat"


def _affinity(root: Path, pid: int | str) -> tuple[int | None, str]:
    for line in (read_text(root / f"proc/{pid}/status") or "").splitlines():
        name, _, value = line.partition(":")
        if name == "Cpus_allowed_list":
            try:
                return len(parse_cpu_list(value)) or None, f"Cpus_allowed_list: {value.strip()}"
            except ValueError:
                break
    return None, ""


def _model(root: Path) -> str | None:
    for line in (read_text(root / "proc/cpuinfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model", "cpu model") and value.strip():
            return value.strip()
    return None


def read_cores(root: Path, pid: int | str = "self") -> tuple[Cores, dict[str, str]]:
    """Read what bounds the cores of a process.

    Returns:
        The cores, and the reason for each field that could not be read.
    """
    missing: dict[str, str] = {}
    derived: dict[str, str] = {}
    online, online_from = _online(root)
    affinity, affinity_from = _affinity(root, pid)
    if online is None:
        missing["cores.online"] = "neither /sys/devices/system/cpu/online nor /proc/stat could be read"
    else:
        derived["online"] = online_from
    if affinity is None:
        missing["cores.affinity"] = f"/proc/{pid}/status names no Cpus_allowed_list"
    else:
        derived["affinity"] = affinity_from

    quota = tightest_quota(root, pid)
    if quota is not None:
        derived["quota"] = quota.setting
    elif cgroups.levels(root, "cpu", pid) is None:
        missing["cores.quota"] = f"/proc/{pid}/cgroup or mountinfo could not be read"
    else:
        derived["quota"] = "no group that is visible here sets one"

    bounds = {"online": online, "affinity": affinity, "quota": quota.cores if quota else None}
    known = {name: float(value) for name, value in bounds.items() if value is not None}
    usable = min(known.values(), default=None)
    if usable is None:
        missing["cores.usable"] = "neither the cores online, nor the affinity, nor a quota could be read"
    else:
        derived["usable"] = "the least of " + ", ".join(f"{name} {value:g}" for name, value in known.items())

    model = _model(root)
    if model is None:
        missing["cores.model"] = "/proc/cpuinfo names no model"
    return Cores(usable, online, affinity, bounds["quota"], model, derived), missing
