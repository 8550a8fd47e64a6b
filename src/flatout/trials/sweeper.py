"""Removes what trials have made, also if flatout itself was killed: ``python -m flatout.trials.sweeper FOLDER``.

It waits until standard input closes. After a byte on it, they ended in order and there is nothing to do. A fix may be
resumed in its folder, so ``… FOLDER --scratch`` removes only the scratch folders that are there by then. The processes
of the training are ended by the guardian of their recording (``flatout.runner.guardian``).
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Container, Sequence
from pathlib import Path

from flatout.trials.isolation import remove

LOCK, OUTPUT = ".lock", "output.log"
_SCRATCH, _ONLY_SCRATCH = "scratch-*", "--scratch"
_MADE = ("cache", "changes", "configs", "runs", _SCRATCH, OUTPUT, LOCK)
# The guardian ends the last process within 13 s, and a process that ends may still write.
_LATEST_S = 120.0
_QUIET_LOOKS = 10
_PAUSE_S = 0.3


def clean(folder: Path, *, keep: Container[str] = ()) -> bool:
    """Remove what tries make in a folder, and the folder if nothing else is in it; True if there was anything.

    Args:
        folder: of tries; it need not exist.
        keep: names to leave there.
    """
    found = [path for name in _MADE for path in folder.glob(name) if name not in keep]
    for path in found:
        if path.is_dir():
            remove(path)
        else:
            path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # it holds other files
        folder.rmdir()
    return bool(found)


# untested: only by serial tests, which run without coverage.py
class Sweeper:
    """The process that sweeps, as the one that makes the trials sees it."""

    def __init__(self, folder: Path, *, only_scratch: bool = False) -> None:
        words = [sys.executable, "-m", "flatout.trials.sweeper", str(folder.absolute())]
        words += [_ONLY_SCRATCH] if only_scratch else []
        try:
            self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
            )
            self._process.wait()
        except OSError:
            self._process = None

    def release(self) -> None:
        """The trials have ended in order: the sweeper ends too."""
        if self._process is not None:
            with contextlib.suppress(OSError):  # it was killed
                self._process.communicate(b"x")


def main(folder: Path, *, only_scratch: bool = False) -> None:
    """Wait for the end of the trials, and sweep until nothing writes any more."""
    # No child of flatout: it ends all its children with each recording.
    if os.fork():
        os._exit(0)
    if os.read(0, 1):
        return
    scratch = list(folder.glob(_SCRATCH))
    begin_s, quiet = time.monotonic(), 0
    while quiet < _QUIET_LOOKS and time.monotonic() - begin_s < _LATEST_S:
        found = _removed(scratch) if only_scratch else clean(folder)
        quiet = 0 if found else quiet + 1
        time.sleep(_PAUSE_S)


def _removed(folders: Sequence[Path]) -> bool:
    left = [path for path in folders if path.exists()]
    for path in left:
        remove(path)
    return bool(left)


if __name__ == "__main__":
    main(Path(sys.argv[1]), only_scratch=_ONLY_SCRATCH in sys.argv[2:])
