"""The folders of staged arrays: what each is made from, whether it is complete, and how it gets its name."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from pathlib import Path

from flatout.errors import UsageError
from flatout.volumes.layout import Layout, read_layout
from flatout.volumes.plan import Planned

NOTE, COUNTS = "flatout.json", "counts.npz"
MARKER = ".flatout-volumes"  # in folders that stagings of volumes write to


def source_hash(part: Planned) -> str:
    """What an array is made from, and its layout, in a hash."""
    layout = part.layout
    plain = [part.source_note(), layout.chunk, layout.shard, part.options.compression, layout.shape, layout.dtype.name]
    return hashlib.sha256(json.dumps(plain).encode()).hexdigest()


def complete_layout(folder: Path, note: str) -> Layout | None:
    """The layout of an array that is complete, of the same source; None: there is none."""
    return resumed_layout(folder, note) if (folder / COUNTS).exists() else None


def partial_folder(folder: Path) -> Path:
    """Where an array lies until it is complete."""
    return folder.with_name(f".{folder.name}.partial")


def resumed_layout(partial: Path, note: str) -> Layout | None:
    """The layout of an array that a staging of the same source began; None: there is none."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, UsageError):
        if json.loads((partial / NOTE).read_text())["source"] == note:
            return read_layout(partial)
    return None


def replace_folder(new: Path, folder: Path) -> None:
    """Give a complete array its name; an older one of another source goes."""
    if folder.exists():
        old = folder.with_name(f".{folder.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        os.replace(folder, old)
        os.replace(new, folder)
        shutil.rmtree(old, ignore_errors=True)
    else:
        os.replace(new, folder)


def reopen(folder: Path, damaged: list[Path]) -> None:
    """Make a complete array one that a staging began, without its damaged shards."""
    for path in damaged:
        path.unlink(missing_ok=True)
    (folder / COUNTS).unlink()
    partial = partial_folder(folder)
    shutil.rmtree(partial, ignore_errors=True)
    os.replace(folder, partial)


def make_folder(destination: Path) -> None:
    """Make the destination.

    Raises:
        UsageError: it cannot be made.
    """
    try:
        destination.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = "it is a file" if isinstance(error, FileExistsError) else f"it cannot be made ({error.strerror})"
        raise UsageError(f"DEST {destination}: {why}: give a new or an empty folder") from None


def claim(destination: Path) -> None:
    """Take an empty folder, or one that a staging of volumes began.

    Raises:
        UsageError: other files are there.
    """
    marker = destination / MARKER
    if not marker.exists():
        other = next(iter(sorted(os.listdir(destination))), None)
        if other is not None:
            raise UsageError(
                f"{destination}: {other} is there, which no staging of volumes wrote: give an empty folder"
            )
        marker.touch()


def size_of(folder: Path) -> int:
    """Bytes of the files below a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
