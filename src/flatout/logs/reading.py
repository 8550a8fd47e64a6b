"""Files and folders of foreign logs, each read by the reader of its format."""

from __future__ import annotations

from pathlib import Path
from typing import IO

from flatout.errors import UsageError
from flatout.logs.digest import Digest
from flatout.logs.facts import FileFacts
from flatout.logs.sniffing import Format, formats_of_folder, open_plain, sniff
from flatout.logs.unpacking import Unpacked
from flatout.units import size

MOST_FILES = 2000


def read_files(paths: list[Path]) -> list[FileFacts]:
    """Read each; a folder stands for the logs in it.

    Raises:
        UsageError: a path does not exist, cannot be read, or is no log; a folder without logs.
    """
    found: list[FileFacts] = []
    for path in paths:
        if path.is_dir():
            inside = [read_file(file, name) for file, name in formats_of_folder(path, MOST_FILES)]
            inside = [one for one in inside if one.observations]
            if not inside:
                raise UsageError(f"{path}: there is no log in this folder; name the files themselves")
            found += inside
        elif not path.exists():
            raise UsageError(f"{path}: there is no such file; name logs, or folders with logs")
        else:
            found.append(read_file(path, path.name))
    return found


def read_file(path: Path, name: str) -> FileFacts:
    """Read one file.

    Args:
        path: Where it is.
        name: What it is called in the report.

    Raises:
        UsageError: it is empty, not a regular file, or of no known format.
    """
    if not path.is_file():
        raise UsageError(f"{path} is not a regular file; save the output to a file first")
    counted = path.stat().st_size
    if not counted:
        raise UsageError(f"{path} is empty: there is nothing to read")
    with open_plain(path) as file:
        format = sniff(path, file)
        digest = Digest(name, format.name)
        facts = _fold(digest, format, file, path)
    facts.bytes = counted
    return facts


def _fold(digest: Digest, format: Format, file: IO[bytes], path: Path) -> FileFacts:
    """Read until the end, or until where the file is damaged, which is noted."""
    problem = ""
    try:
        for one in format.read(file, path):
            digest.add(one)
    except EOFError as error:
        problem = f"it ends in the middle ({error or 'cut off'})"
    except (ValueError, OSError, RecursionError) as error:
        problem = f"damaged, or not {format.name}: {str(error)[:200]}"
    if isinstance(file, Unpacked) and file.damage:
        problem = f"{file.damage} after {size(file.tell())} of text"
    facts = digest.facts()
    if problem and not facts.observations:
        raise UsageError(f"{path}: {problem}, and no line of a training comes before: give the whole file")
    if problem:
        facts.notes.append(f"{problem}; what came before was read")
    return facts
