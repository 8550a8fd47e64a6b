"""Parsing /proc/PID/mountinfo: what is mounted where, as the kernel lists it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from flatout.machine.files import read_text

_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True)
class MountLine:
    """One line of mountinfo, see proc_pid_mountinfo(5)."""

    id: int
    parent: int
    device: str  # "major:minor"
    root: str  # the folder of the file system that is mounted
    point: str
    fs_type: str
    source: str
    options: str  # of the file system, not of the mount


def unescape(text: str) -> str:
    r"""Undo the octal escapes (``\040`` is a blank) of mountinfo."""
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)


def parse_mountinfo(text: str) -> list[MountLine]:
    """All lines that can be understood, in the kernel's order."""
    lines = []
    for line in text.splitlines():
        # A varying number of optional fields ends at a lone "-".
        before, separator, after = line.partition(" - ")
        left, right = before.split(" "), after.split(" ")
        if not separator or len(left) < 6 or len(right) < 2 or not (left[0].isdigit() and left[1].isdigit()):
            continue
        lines.append(
            MountLine(
                id=int(left[0]),
                parent=int(left[1]),
                device=left[2],
                root=unescape(left[3]),
                point=unescape(left[4]),
                fs_type=right[0],
                source=unescape(right[1]),
                options=right[2] if len(right) > 2 else "",
            )
        )
    return lines


def read_mountinfo(root: Path, pid: int | str = "self") -> list[MountLine] | None:
    """The mounts that a process sees; None when they cannot be read."""
    text = read_text(root / f"proc/{pid}/mountinfo")
    return None if text is None else parse_mountinfo(text)


def _folders_above(point: str) -> Iterator[str]:
    """Each proper ancestor of a folder, nearest first."""
    while point != "/":
        point = point.rpartition("/")[0] or "/"
        yield point


def reachable(lines: list[MountLine]) -> list[MountLine]:
    """The mounts that a path can lead to: those covered by another mount are left out.

    Walking a path inside one mount crosses into the first child mount on the way. So a mount
    is covered when a sibling sits on a folder above it, when something is mounted on its own
    root, or when its parent is covered.
    """
    by_id = {line.id: line for line in lines}
    top: dict[tuple[int, str], int] = {}
    for line in lines:
        top[line.parent, line.point] = line.id  # the later of two siblings wins

    def covered(line: MountLine, inside: int | None = None, depth: int = 0) -> bool:
        """True if another mount hides this one; ``inside``: the child through which it is entered."""
        if top.get((line.id, line.point), inside) != inside or top[line.parent, line.point] != line.id:
            return True
        parent = by_id.get(line.parent)
        if parent is None or parent is line or depth > 64:
            return False
        for folder in _folders_above(line.point):
            if folder == parent.point:
                break
            if (line.parent, folder) in top:
                return True
        # What covers the root of the parent hides this mount too, unless it is the cover.
        return covered(parent, line.id if line.point == parent.point else None, depth + 1)

    return [line for line in lines if not covered(line)]
