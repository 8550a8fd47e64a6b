"""The sides A and B as the user names them: a recorded run, or a command to run."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

from flatout.errors import AmbiguousRun, RecordError, UsageError
from flatout.record import find_run, list_runs

Side = Path | list[str]


def read_side(text: str, runs_dir: Path) -> Side:
    """The folder of a recorded run, or the words of a command.

    Args:
        text: an id, a folder, "latest", or a command line in quotes.
        runs_dir: where runs are recorded.

    Raises:
        UsageError: it is neither.
    """
    words = _words(text)
    if len(words) == 1:
        try:
            return find_run(text, runs_dir)
        except AmbiguousRun:
            if not shutil.which(text):
                raise
        except RecordError as error:
            if not shutil.which(text) or Path(text).exists():
                recorded = f"{len(list_runs(runs_dir))} runs in {runs_dir}"
                raise UsageError(
                    f"{text!r} is neither a recorded run ({recorded}: `flatout runs`) nor a command: "
                    'write a command in quotes, such as "python train.py"'
                ) from error
    if not shutil.which(words[0]):
        raise UsageError(f"cannot run {text!r}: {words[0]!r} is neither on PATH nor a program here")
    return words


def _words(text: str) -> list[str]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"cannot read the command {text!r}: {error}; close its quotes") from None
    if not words:
        raise UsageError("an empty A or B: name a recorded run, or write a command in quotes")
    return words
