"""Room at the destination: looked at before and while copying."""

from __future__ import annotations

import os
from pathlib import Path

from flatout.errors import DiskFull
from flatout.units import size

KEEP_FREE_BYTES = 512 << 20  # other programs on the machine write, too
KEEP_FREE_SHARE = 0.01
LESS_DATA = "choose another disk or a part of the data (--classes, --sample)"


def free_bytes(folder: Path, keep: int | None = None) -> int:
    """What may be written below a folder.

    Args:
        folder: exists.
        keep: bytes to leave free for others; None: 0.5 GiB, or 1% of a smaller disk.
    """
    disk = os.statvfs(folder)
    if keep is None:
        keep = min(KEEP_FREE_BYTES, int(KEEP_FREE_SHARE * disk.f_blocks * disk.f_frsize))
    return max(disk.f_bavail * disk.f_frsize - keep, 0)


def check_room(folder: Path, needed: int, keep: int | None = None, *, advice: str = LESS_DATA) -> None:
    """Check that ``needed`` bytes fit.

    Args:
        folder: exists.
        needed: bytes to write.
        keep: as for ``free_bytes``.
        advice: what the user of this command can do about it.

    Raises:
        DiskFull: they do not fit.
    """
    free = free_bytes(folder, keep)
    if needed > free:
        raise DiskFull(f"{folder}: {size(needed)} more are needed and {size(free)} may be written there: {advice}")
