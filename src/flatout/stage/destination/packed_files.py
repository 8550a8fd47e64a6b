"""The files of packed sets at a destination, noted when a set is published, so that they can be checked later."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flatout.atomic_file import write_atomically
from flatout.errors import UsageError
from flatout.stage.checksums import checksum_of
from flatout.stage.destination.safe_paths import refusal, state_folder
from flatout.stage.destination.state import Complete

_NAME = "packed-files.json"
_CHECKSUM = "crc32"


def note_packed(destination: Path, folder: Path, files: list[Path], verified: str) -> None:
    """Note the size and checksum of each file of a set.

    Args:
        destination: of the staging.
        folder: the files' place below the destination.
        files: where they are now.
        verified: what the images' bytes were compared with when they were read.
    """
    place = folder.relative_to(destination)
    # An earlier set of this place may have been removed; files of this one may have been moved there already.
    noted = {
        key: about
        for key, about in _noted(destination).items()
        if Path(key).parent != place or (destination / key).exists()
    }
    for file in files:
        key = str(place / file.name)
        noted[key] = {"size": file.stat().st_size, "checksum": checksum_of(file, _CHECKSUM), "verified": verified}
    write_atomically(state_folder(destination) / _NAME, json.dumps(noted))


def packed_files(destination: Path) -> Iterator[Complete]:
    """The files of all packed sets of a destination.

    Raises:
        UsageError: the note is damaged.
    """
    for key, about in _noted(destination).items():
        kinds = [type(about.get(name)) for name in ("size", "checksum", "verified")] if isinstance(about, dict) else []
        if kinds != [int, str, str] or refusal(key):
            raise UsageError(f"{state_folder(destination) / _NAME}: is damaged: remove the set, and pack it again")
        yield Complete(key, about["size"], "", about["checksum"], 0, about["verified"])


def _noted(destination: Path) -> dict[str, dict[str, Any]]:
    try:
        found = json.loads((state_folder(destination) / _NAME).read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise UsageError(f"{state_folder(destination) / _NAME}: is damaged: remove the set, and pack it again")
    return found
