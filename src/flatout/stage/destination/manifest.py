"""The manifest: a CSV table of the staged files, for other programs."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from flatout.atomic_file import replacing
from flatout.stage.destination.state import State

MANIFEST = "manifest.csv"
COLUMNS = ("path", "size", "version", "checksum", "verified")


def write_manifest(state: State) -> Path:
    """Write it next to the database, ordered by path; replaces an old one atomically.

    Columns: path, size in bytes, version of the object, checksum of the file, verified (what of the store's it was
    compared with).
    """
    target = state.folder / MANIFEST
    with replacing(target) as file:
        text = io.TextIOWrapper(file, "utf-8", newline="")
        table = csv.writer(text, lineterminator="\n")
        table.writerow(COLUMNS)
        table.writerows((done.key, done.size, done.version, done.checksum, done.verified) for done in state.all())
        text.flush()
        text.detach()
    return target
