"""Free space at the destination, checked before and during a staging."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from flatout.errors import DiskFull
from flatout.units import size

MIN_FREE_BYTES = 512 << 20  # other programs on the machine write, too
MIN_FREE_SHARE = 0.01
FULL = (errno.ENOSPC, errno.EDQUOT)
STAGE_ADVICE = "choose another disk or a part of the data (--classes, --sample)"


def free_bytes(folder: Path, min_free: int | None = None) -> int:
    """Bytes that may be written below a folder.

    Args:
        folder: exists.
        min_free: bytes to leave free for others; None: 0.5 GiB, or 1% of a smaller disk.
    """
    disk = os.statvfs(folder)
    if min_free is None:
        min_free = min(MIN_FREE_BYTES, int(MIN_FREE_SHARE * disk.f_blocks * disk.f_frsize))
    return max(disk.f_bavail * disk.f_frsize - min_free, 0)


def check_room(folder: Path, needed: int, min_free: int | None = None, advice: str = STAGE_ADVICE) -> None:
    """Raise DiskFull if ``needed`` bytes do not fit; ``advice`` tells the user of the command what to do."""
    free = free_bytes(folder, min_free)
    if needed > free:
        raise DiskFull(f"{folder}: {size(needed)} more are needed, {size(free)} may be written there: {advice}")
