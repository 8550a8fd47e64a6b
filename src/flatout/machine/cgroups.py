"""Control groups: which folders hold the limits of a process, v1 and v2 alike.

A limit set on any group above a process applies to it, so every level is examined, from the
process's own group up to the highest visible one (in a container, often not the real top).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from flatout.machine.files import read_text
from flatout.machine.mountinfo import MountLine, read_mountinfo


@dataclass(frozen=True)
class Level:
    """One group that a process is in, or one above it."""

    version: int  # 1 or 2
    directory: Path  # where its files are
    name: str  # the directory without the root below which everything is read


def _group_paths(root: Path, pid: int | str) -> dict[str, str] | None:
    """Controller (``""`` for v2) -> path of the process's group in that hierarchy."""
    text = read_text(root / f"proc/{pid}/cgroup")
    if text is None:
        return None
    paths: dict[str, str] = {}
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            for controller in parts[1].split(","):
                paths[controller] = parts[2]
    return paths


def _levels_in(root: Path, mount: MountLine, group: str) -> list[Level]:
    """From the group's folder up to the mount point, nearest first."""
    inside = os.path.relpath(group, mount.root)
    if inside.startswith(".."):
        # The group lies outside of what is mounted: only the mounted part can be read.
        inside = "."
    names = [mount.point]
    for part in inside.split("/"):
        if part != ".":
            names.append(f"{names[-1]}/{part}")
    version = 2 if mount.fs_type == "cgroup2" else 1
    levels = [Level(version, root / name.lstrip("/"), name) for name in reversed(names)]
    return [level for level in levels if level.directory.is_dir()]


def levels(root: Path, controller: str, pid: int | str = "self") -> list[Level] | None:
    """The groups whose limits on ``controller`` ("cpu", "memory") a process is under.

    Returns:
        v2 levels, then v1 levels, each nearest first; empty when no hierarchy is mounted.
        None when /proc does not say.
    """
    mounts = read_mountinfo(root, pid)
    groups = _group_paths(root, pid)
    if mounts is None or groups is None:
        return None
    # One hierarchy can be mounted several times; the first mount that shows the group will do.
    found: dict[int, list[Level]] = {}
    for mount in mounts:
        if mount.fs_type == "cgroup2" and "" in groups:
            group = groups[""]
        elif mount.fs_type == "cgroup" and controller in mount.options.split(",") and controller in groups:
            group = groups[controller]
        else:
            continue
        candidate = _levels_in(root, mount, group)
        if candidate and len(candidate) > len(found.get(candidate[0].version, [])):
            found[candidate[0].version] = candidate
    return found.get(2, []) + found.get(1, [])


def version(root: Path) -> str | None:
    """The mounted hierarchies: "v1", "v2" or "v1+v2"; None if unknown or none."""
    kinds = {line.fs_type for line in read_mountinfo(root) or []}
    seen = [name for name, fs_type in (("v1", "cgroup"), ("v2", "cgroup2")) if fs_type in kinds]
    return "+".join(seen) or None
