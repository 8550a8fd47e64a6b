"""Detects a destination inside its source or the reverse, also through links and mounts of the same disk."""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from flatout.errors import UsageError
from flatout.stage.sources.base import Source
from flatout.stage.sources.folder import FolderSource

_MOUNTS = Path("/proc/self/mountinfo")
_OCTAL = re.compile(r"\\([0-7]{3})")


class Place(NamedTuple):
    """A folder of a disk, however it was reached."""

    disk: str  # "major:minor"; the path alone where mounts are not known
    path: PurePosixPath  # within the disk


def refuse_overlap(source: Source, destination: Path) -> None:
    """Refuse a destination that shares files with a source that is a folder.

    Raises:
        UsageError: it does.
    """
    if isinstance(source, FolderSource):
        refuse_shared(source.root, destination)


def refuse_shared(root: Path, destination: Path) -> None:
    """Refuse a destination that shares files with a source's folder or file.

    Raises:
        UsageError: it does.
    """
    source_place, target_place = place_of(root), place_of(destination)
    apart = "choose a folder apart from it"
    if any(
        is_below(mounted, source_place) or is_below(source_place, mounted) for mounted in _mounted_below(destination)
    ):
        raise UsageError(f"{destination}: the source {root}, or a part of it, is mounted in it: {apart}")
    if any(is_below(mounted, target_place) or is_below(target_place, mounted) for mounted in _mounted_below(root)):
        raise UsageError(f"{destination}: it, or a part of it, is mounted in the source {root}: {apart}")
    if source_place == target_place or _is_same(root, destination):
        how = "is the same folder as"
    elif is_below(target_place, source_place):
        how = "lies in"
    elif is_below(source_place, target_place):
        how = "holds"
    else:
        return
    raise UsageError(f"{destination}: {how} the source {root}: {apart}")


def _mounted_below(folder: Path) -> list[Place]:
    """The mounts anywhere in a folder."""
    path = PurePosixPath(os.path.realpath(folder))
    return [Place(disk, root) for disk, root, point in _mounts() if point != path and point.is_relative_to(path)]


def is_below(one: Place, other: Place) -> bool:
    """True if a place is the other one or lies inside it."""
    return one.disk == other.disk and one.path.is_relative_to(other.path)


def place_of(folder: Path) -> Place:
    """The location of a folder on its disk; the folder need not exist."""
    path = PurePosixPath(os.path.realpath(folder))
    best: tuple[PurePosixPath, str, PurePosixPath] | None = None
    for disk, root, point in _mounts():
        if path.is_relative_to(point) and (best is None or len(point.parts) >= len(best[0].parts)):
            best = (point, disk, root)
    if best is None:
        return Place("", path)
    return Place(best[1], best[2] / path.relative_to(best[0]))


def _mounts() -> list[tuple[str, PurePosixPath, PurePosixPath]]:
    """Disk, the folder of it that is mounted, and where; those that come later lie above earlier ones."""
    try:
        lines = _MOUNTS.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return []
    rows = [line.split(" ") for line in lines]
    return [(row[2], _plain(row[3]), _plain(row[4])) for row in rows if len(row) > 4]


def _plain(path: str) -> PurePosixPath:
    return PurePosixPath(_OCTAL.sub(lambda found: chr(int(found[1], 8)), path))


def _is_same(one: Path, other: Path) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False
