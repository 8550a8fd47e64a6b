"""The journal of a fix: one JSON line per event, so that a killed fix can continue after its finished trials."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flatout.errors import UsageError
from flatout.trials.result import Trial, TrialLog

NAME = "journal.jsonl"


class Journal:
    """Appends to ``folder/journal.jsonl``; every line is on the disk before the next trial begins."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = folder / NAME

    def write(self, kind: str, **fields: Any) -> None:
        """Add one line, on a line of its own even if the previous one was cut off."""
        with self._path.open("ab+") as file:
            cut = False
            if file.tell():
                file.seek(-1, os.SEEK_END)
                cut = file.read(1) != b"\n"
            file.write(b"\n" * cut + json.dumps({"kind": kind, **fields}).encode() + b"\n")

    def read(self) -> list[dict[str, Any]]:
        """All lines, without a last one that was cut off."""
        return read_lines(self._path)

    @property
    def command(self) -> tuple[str, ...]:
        """The command that is fixed."""
        return tuple(self.read()[0]["command"])

    def progress(self) -> TrialLog:
        """The trials that were finished."""
        return TrialLog([Trial.from_dict(line["trial"]) for line in self.read() if line["kind"] == "trial"])


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a journal that can be read."""
    lines = []
    for text in path.read_text().splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict) and "kind" in line:
            lines.append(line)
    return lines


def begin(fixes: Path, command: Sequence[str]) -> Journal:
    """Make a new folder with a journal that names the command.

    Raises:
        UsageError: it cannot be written.
    """
    name = time.strftime("%Y%m%d-%H%M%S")
    folder, suffix = fixes / name, 2
    while folder.exists():
        folder = fixes / f"{name}-{suffix}"
        suffix += 1
    journal = Journal(folder)
    try:
        folder.mkdir(parents=True)
        journal.write("begin", command=list(command))
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise UsageError(f"--fixes-dir {fixes}: cannot be written ({error.strerror}): name another folder") from None
    return journal


def remove_unmeasured(journal: Journal) -> None:
    """Remove the folder of a fix that measured nothing: there is nothing to read, nor to go on with."""
    if all(line["kind"] == "begin" for line in journal.read()):
        shutil.rmtree(journal.folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # it holds other fixes
            journal.folder.parent.rmdir()


def resume(fixes: Path, command: Sequence[str]) -> Journal:
    """The latest journal of this command; without a command, the latest that did not end.

    Raises:
        UsageError: there is no fix to continue, or it had ended.
    """
    killed = ""  # the command of the latest one that could be continued
    for folder in sorted(fixes.glob("*/"), reverse=True):
        if not (folder / NAME).is_file():
            continue
        lines = read_lines(folder / NAME)
        ended = not lines or not lines[0].get("command") or lines[-1]["kind"] == "end"
        if lines and lines[0].get("command") == list(command):
            if ended:
                raise UsageError(f"the last fix of this command had ended ({folder}): leave out --resume to begin anew")
            return Journal(folder)
        if not ended and not command:
            return Journal(folder)
        if not ended and not killed:
            killed = shlex.join(lines[0]["command"])
    if killed:
        raise UsageError(
            f"no fix of this command below {fixes} to go on with: leave out --resume, or give the one that was killed: "
            f"{killed}"
        )
    raise UsageError(
        f"no fix below {fixes} to go on with: leave out --resume, or name the folder where it began with --fixes-dir"
    )
