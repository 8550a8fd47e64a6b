"""Whether what was staged is still there and still the same."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from flatout.errors import UsageError
from flatout.stage.names import state_folder
from flatout.stage.state import State
from flatout.stage.target import checksum_of


@dataclass(frozen=True, kw_only=True)
class Check:
    """What a check of a destination found."""

    files: int
    missing: tuple[str, ...]
    changed: tuple[str, ...]  # other size or other content than what was staged
    seconds: float


def check(destination: Path, content: bool = True) -> Check:
    """Compare the files at a destination with what staging noted of them.

    Args:
        destination: a folder that was staged to.
        content: read every file and compare its checksum; else sizes only.

    Raises:
        UsageError: nothing was staged there.
    """
    if not (state_folder(destination) / "state.sqlite").is_file():
        raise UsageError(f"{destination}: nothing was staged there")
    began = time.monotonic()
    state = State(destination)
    missing, changed, files = [], [], 0
    try:
        for done in state.all():
            files += 1
            path = destination / done.key
            try:
                if os.lstat(path).st_size != done.size or (
                    content and checksum_of(path, done.checksum) != done.checksum
                ):
                    changed.append(done.key)
            except FileNotFoundError:
                missing.append(done.key)
        for key in (*missing, *changed):
            state.remove(key)  # the next staging brings them again
    finally:
        state.close()
    return Check(files=files, missing=tuple(missing), changed=tuple(changed), seconds=time.monotonic() - began)
