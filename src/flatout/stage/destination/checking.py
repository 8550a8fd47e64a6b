"""Checks staged files against their recorded checksums."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections import Counter
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path

from flatout.errors import UsageError
from flatout.stage.checksums import checksum_of
from flatout.stage.destination.packed_files import packed_files
from flatout.stage.destination.recorded import is_staged, read_state
from flatout.stage.destination.state import State


@dataclass(frozen=True, kw_only=True)
class Check:
    """The result of a check."""

    files: int
    missing: tuple[str, ...]
    changed: tuple[str, ...]  # size or content differs from what was staged
    verified: dict[str, int]  # numbers of files by what of the store's they were compared with when staged
    duration_s: float
    packed: bool = False  # the files are of packed sets

    def as_json(self) -> dict[str, object]:
        """Plain values for ``--json``."""
        return asdict(self)


def check(destination: Path, content: bool = True) -> Check:
    """Compare the files at a destination with the record of their staging.

    No file is modified. Damaged files are recorded where the record can be written, so staging with ``overwrite``
    transfers them again.

    Args:
        destination: a folder that was staged to.
        content: read every file and compare its checksum; else sizes only.

    Raises:
        UsageError: nothing was staged there, or its record is damaged.
    """
    if destination.exists() and not destination.is_dir():
        raise UsageError(f"{destination}: not a folder")
    began = time.monotonic()
    missing, changed = [], []
    verified: Counter[str] = Counter()
    packed = list(packed_files(destination))
    staged = read_state(destination) if is_staged(destination) or not packed else iter(())
    for done in chain(staged, packed):
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
    if changed and not packed:
        with contextlib.suppress(UsageError):  # a read-only disk
            state = State(destination)
            state.distrust(changed)
            state.close()
    return Check(
        files=verified.total(),
        missing=tuple(missing),
        changed=tuple(changed),
        verified=dict(verified),
        duration_s=time.monotonic() - began,
        packed=bool(packed),
    )
