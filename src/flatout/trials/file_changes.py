"""Changed files of a candidate: kept apart from the real ones, and put into the private view of a run."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flatout.errors import UsageError
from flatout.trials import install_files
from flatout.trials.install_files import READ_BEFORE_S
from flatout.trials.mount_namespace import SHARED


@dataclass(frozen=True)
class FileChanges:
    """Real path -> changed copy; None: the file is deleted."""

    files: Mapping[Path, Path | None] = field(default_factory=dict)

    def now(self, path: Path) -> Path | None:
        """The file that a path shows after these changes; None: it was deleted."""
        return self.files.get(real_path(path), path)

    def on_top(self, later: FileChanges) -> FileChanges:
        """These, and then the later ones."""
        return FileChanges({**self.files, **later.files})

    # untested: only by serial tests, which run without coverage.py
    def installing(self, command: Sequence[str], list_file: Path) -> list[str]:
        """The command, started with the changes made; only for use inside a private view.

        Args:
            command: to start.
            list_file: where to write the list of changes.
        """
        entries = []
        for path, copy in self.files.items():
            folder = next(parent for parent in path.parents if parent.is_dir())
            about = folder.stat()
            real = {"folder": str(folder), "device": about.st_dev, "inode": about.st_ino}
            entries.append({"path": str(path), "copy": str(copy) if copy else None, "real": real})
        list_file.write_text(json.dumps(entries))
        return [sys.executable, "-I", install_files.__file__, str(list_file), "--", *command]

    def unread(self, scratch: Path) -> tuple[str, ...]:
        """The changed files, if a run has read none of them, as far as the disk of the scratch folder tells.

        Args:
            scratch: folder of a run that has ended.
        """
        written = [path for path, copy in self.files.items() if copy is not None]
        if len(written) < len(self.files):
            return ()  # whether a file was missed cannot be seen
        found = [_in_scratch(scratch, path) for path in written]
        return tuple(map(str, written)) if found and all(one is not None and _never_read(one) for one in found) else ()

    def names(self, here: Path) -> list[str]:
        """The changed files, relative to a folder where they are below it."""
        return sorted(str(path.relative_to(here) if path.is_relative_to(here) else path) for path in self.files)


# untested: only by serial tests, which run without coverage.py
def _in_scratch(scratch: Path, path: Path) -> Path | None:
    """Where a file that was changed in the view is on the disk: below an overlay, or in a folder that was rebuilt."""
    parts = path.parts[1:]
    roots = [*scratch.glob("*/upper"), scratch / "root"]
    places = (root.joinpath(*parts[begin:]) for root in roots for begin in range(len(parts)))
    return next((place for place in places if place.is_file()), None)


# untested: only by serial tests, which run without coverage.py
def _never_read(path: Path) -> bool:
    """True if the time of access is still the one that was set, and reading the file changes it."""
    try:
        if path.stat().st_atime > READ_BEFORE_S:
            return False
        with path.open("rb") as file:
            file.read(1)
        return path.stat().st_atime > READ_BEFORE_S  # else the disk keeps no such times
    except OSError:
        return False


def real_path(path: Path) -> Path:
    """The path without links in its folders and in itself."""
    return Path(path).resolve()


def difference(copies: Path, root: Path, copied: Sequence[Path], before: FileChanges | None = None) -> FileChanges:
    """What differs between a folder of copies and the real files.

    Args:
        copies: the folder.
        root: the real folder.
        copied: relative paths of the files that were copied; those that are missing now were deleted.
        before: changes that the copies had already.

    Raises:
        UsageError: a changed file is where a private view shows the real folders.
    """
    before = before or FileChanges()
    found: dict[Path, Path | None] = {real_path(root / name): None for name in copied if not (copies / name).exists()}
    for copy in sorted(copies.rglob("*")):
        path = real_path(root / copy.relative_to(copies))
        was = before.now(path)
        if copy.is_file() and (was is None or not was.is_file() or not _same(was, copy)):
            found[path] = copy
    for path in found:
        if any(path.is_relative_to(place) for place in SHARED):
            raise UsageError(f"{path}: files below {', '.join(SHARED)} cannot be changed apart from the real ones")
    return FileChanges(found)


def _same(a: Path, b: Path) -> bool:
    executable = 0o111
    return a.stat().st_mode & executable == b.stat().st_mode & executable and a.read_bytes() == b.read_bytes()


def write_copy(folder: Path, path: Path, text: str) -> FileChanges:
    """One changed file, with its text."""
    folder.mkdir(parents=True, exist_ok=True)
    copy = folder / path.name
    if path.is_file():
        shutil.copy(path, copy)
    copy.write_text(text)
    return FileChanges({real_path(path): copy})
