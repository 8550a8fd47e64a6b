"""The folder in which a command makes its runs: its own while it measures, and removed afterwards."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flatout.errors import UsageError
from flatout.trials.sweeper import LOCK, OUTPUT, Sweeper, clean


@contextmanager
def own_folder(folder: Path, command: str) -> Iterator[Path]:
    """The folder, for this process alone, without what a killed one left there; emptied afterwards, but for the output.

    Args:
        folder: absolute.
        command: that measures, as a message names it.

    Raises:
        UsageError: another try uses it, or it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / LOCK).open("a+")
    except OSError as error:
        raise UsageError(f"--work-dir {folder}: cannot be written ({error.strerror}): name another folder") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(
                f"another `{command}` is measuring in {folder}: two at once would measure each other; wait for it"
            ) from None
        clean(folder, keep=(LOCK,))
        sweeper = Sweeper(folder)
        try:
            yield folder
        except BaseException:
            clean(folder)
            raise
        finally:
            clean(folder, keep=(OUTPUT, LOCK))
            sweeper.release()
