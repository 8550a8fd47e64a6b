"""Making a run folder that the probe can write to, and keeping a second recording out."""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from flatout.errors import FlatoutError, RecordingElsewhere, UsageError
from flatout.probe import events as layout
from flatout.probe.control import PAGE_BYTES
from flatout.record.events import read_events

NEEDED_BYTES = 64 << 20
# Reserved from the start, so that a record can be closed on a disk that has filled up meanwhile.
RESERVE_BYTES = 64 << 10


@contextmanager
def exclusive(runs_folder: Path) -> Iterator[None]:
    """Hold the folder's lock: concurrent recordings would distort each other's measurements.

    Raises:
        UsageError: another recording holds it, or the folder cannot be made or written.
    """
    try:
        _make(runs_folder)
        file = (runs_folder / ".lock").open("a+")
    except OSError as error:
        raise _not_writable(runs_folder, error) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise RecordingElsewhere(
                f"another command of flatout (process {holder}) is recording into {runs_folder}: "
                "two at once would measure each other; wait for it, or end it"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        _free_left_reserves(runs_folder)
        yield


def new_run(runs_folder: Path, command: Sequence[str]) -> Path:
    """Make an empty run folder, named by time and script, with its control page.

    Raises:
        UsageError: it cannot be written, memory-mapped, or the disk is nearly full.
    """
    stem = next((Path(word).stem for word in command if word.endswith(".py")), Path(command[0]).name)
    name = time.strftime("%Y%m%d-%H%M%S-") + "".join(letter if letter.isalnum() else "-" for letter in stem)[:40]
    path = runs_folder / name
    suffix = 2
    while path.exists():
        path = runs_folder / f"{name}-{suffix}"
        suffix += 1
    try:
        path.mkdir(parents=True)
    except OSError as error:
        raise _not_writable(path, error) from None
    try:
        (path / "processes").mkdir()
        (path / "control").write_bytes(bytes(PAGE_BYTES))
        (path / "reserve").write_bytes(bytes(RESERVE_BYTES))
    except OSError as error:
        shutil.rmtree(path, ignore_errors=True)
        raise _not_writable(path, error) from None
    free = shutil.disk_usage(path).free
    problem = None
    if free < NEEDED_BYTES:
        problem = f"{free >> 20} MiB are free below {runs_folder}, a recording needs {NEEDED_BYTES >> 20} MiB"
    else:
        try:
            with (path / "control").open("r+b") as file:
                mmap.mmap(file.fileno(), PAGE_BYTES).close()
        except OSError as error:
            problem = f"files below {runs_folder} cannot be memory-mapped ({error.strerror})"
    if problem:
        shutil.rmtree(path, ignore_errors=True)
        raise UsageError(f"{problem}: name a folder on a local disk with --runs-dir")
    return path


def _not_writable(path: Path, error: OSError) -> UsageError:
    if isinstance(error, (FileExistsError, NotADirectoryError)):
        return UsageError(f"cannot write to {path}: not a folder, or inside a file; name a folder with --runs-dir")
    return UsageError(f"cannot write to {path} ({error.strerror}): name a folder that you may write to with --runs-dir")


def write_run_json(run: Path, info: dict[str, Any]) -> None:
    """Write run.json so that a reader never sees half of it.

    Raises:
        UsageError: the disk is full, or the folder has gone.
    """
    temporary = run / "run.json.tmp"
    try:
        temporary.write_text(json.dumps(info, indent=1) + "\n")
        temporary.replace(run / "run.json")
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UsageError(
            f"the record {run} could not be closed ({error.strerror}): "
            "make room there, or name a folder on another disk with --runs-dir"
        ) from None


def keep_run(run: Path, runs_folder: Path) -> Path:
    """Move a closed run to the folder of runs; return its path there."""
    _make(runs_folder)
    place, suffix = runs_folder / run.name, 2
    while place.exists():
        place = runs_folder / f"{run.name}-{suffix}"
        suffix += 1
    shutil.move(run, place)
    return place


def _make(runs_folder: Path) -> None:
    """Make the folder of runs, which is not part of the user's project."""
    runs_folder.mkdir(parents=True, exist_ok=True)
    if runs_folder.parent.name == ".flatout" and not (runs_folder.parent / ".gitignore").exists():
        (runs_folder.parent / ".gitignore").write_text("*\n")


def free_reserve(run: Path) -> None:
    """Release the reserved space for the next writes."""
    (run / "reserve").unlink(missing_ok=True)


def _free_left_reserves(runs_folder: Path) -> None:
    """Release what killed recordings had reserved: nobody records here while the lock is held by this process."""
    for reserve in runs_folder.glob("*/reserve"):
        if (reserve.parent / "run.json").is_file():
            with contextlib.suppress(OSError):
                reserve.unlink()


def trim(run: Path) -> list[str]:
    """Cut the space that the event files had reserved; temporary files go.

    Returns:
        Problems with files, as sentences.
    """
    problems: list[str] = []
    for path in (*(run / "processes").glob("*.tmp"), *run.glob("trace-*.json"), *run.glob("trace-*.part")):
        path.unlink(missing_ok=True)
    for path in (run / "processes").glob("*.events"):
        if _writes_on(path):
            continue
        try:
            _cut_hole(path)
            read = read_events(path)
            keep = (path.stat().st_size if read.problems and not len(read.events) else 0) or (
                layout.HEADER_BYTES + read.events.nbytes
            )
            del read
            os.truncate(path, keep)
        except (OSError, ValueError, FlatoutError) as error:
            problems.append(f"{path.name} could not be read: {error}")
    return problems


def _writes_on(path: Path) -> bool:
    """True if the file's process still lives: truncating a file that it has mapped would end it."""
    stem = path.stem.split("-")[0]
    if not stem.isdigit() or int(stem) == os.getpid():
        return False
    try:
        return psutil.Process(int(stem)).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _cut_hole(path: Path) -> None:
    """Cut a file off where nothing was ever written.

    Reading a hole through a memory map allocates space on a tmpfs, and ends this process if it is full.
    """
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        if size > layout.HEADER_BYTES:
            os.truncate(path, os.lseek(file.fileno(), layout.HEADER_BYTES, os.SEEK_HOLE))
