"""Whether what was staged is still there and still the same."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from flatout.errors import UsageError
from flatout.stage.checksums import checksum_of
from flatout.stage.destination.manifest import read_state
from flatout.stage.destination.state import State


@dataclass(frozen=True, kw_only=True)
class Check:
    """What a check of a destination found."""

    files: int
    missing: tuple[str, ...]
    changed: tuple[str, ...]  # other size or other content than what was staged
    verified: dict[str, int]  # how many files were compared with what of the store's when they came
    seconds: float


def check(destination: Path, content: bool = True) -> Check:
    """Compare the files at a destination with what staging noted of them.

    No file is touched. That a file is damaged is noted, where that can be: staging with ``overwrite`` brings it again.

    Args:
        destination: a folder that was staged to.
        content: read every file and compare its checksum; else sizes only.

    Raises:
        UsageError: nothing was staged there, or what is noted of it is damaged.
    """
    if destination.exists() and not destination.is_dir():
        raise UsageError(f"{destination}: not a folder")
    began = time.monotonic()
    missing, changed = [], []
    verified: Counter[str] = Counter()
    for done in read_state(destination):
        verified[done.verified] += 1
        path = destination / done.key
        try:
            found = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            missing.append(done.key)
            continue
        is_same = stat.S_ISREG(found.st_mode) and found.st_size == done.size
        if not is_same or (content and checksum_of(path, done.checksum) != done.checksum):
            changed.append(done.key)
    if changed:
        with contextlib.suppress(UsageError):  # a disk that nothing can be written to
            state = State(destination)
            state.distrust(changed)
            state.close()
    return Check(
        files=verified.total(),
        missing=tuple(missing),
        changed=tuple(changed),
        verified=dict(verified),
        seconds=time.monotonic() - began,
    )
