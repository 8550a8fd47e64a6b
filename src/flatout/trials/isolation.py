"""Isolation: keeps a trial's writes off the user's files, in the best way that this machine allows."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from flatout.probe.contract import REDIRECT_VARIABLE
from flatout.trials import mount_namespace

NAMESPACE = "namespace"  # a private copy-on-write view of all disks
REDIRECTED = "redirected writes"  # Python's own writes go to the scratch folder; those of C libraries do not
# Keep experiment trackers offline where a variable allows it.
OFFLINE = {
    "WANDB_MODE": "offline",
    "WANDB_SILENT": "true",
    "NEPTUNE_MODE": "offline",
    "CLEARML_OFFLINE_MODE": "1",
    "COMET_START_ONLINE": "0",
    "MLFLOW_TRACKING_URI": "file:./mlruns",
    "SWANLAB_MODE": "offline",
}


@dataclass(frozen=True)
class Isolation:
    """Isolation of the writes of trials.

    Attributes:
        kind: NAMESPACE or REDIRECTED.
        because: why it is not NAMESPACE; empty if it is.
    """

    kind: str
    because: str = ""

    def describe(self) -> str:
        """One sentence for the report."""
        if self.kind == NAMESPACE:
            return "Trials saw a private copy-on-write view of the disks: what they wrote is gone with them."
        return (
            "What trials wrote from Python went to a scratch folder; writes of C libraries and of other programs were "
            f"not held back ({self.because})."
        )


def find_isolation(folder: Path) -> Isolation:
    """Try the namespace once, with a scratch folder below ``folder``."""
    with scratch_folder(folder) as scratch:
        tried = subprocess.run(
            wrapped(["true"], scratch, ()), capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
    if tried.returncode == 0:
        return Isolation(NAMESPACE)
    return Isolation(REDIRECTED, (tried.stderr.strip().splitlines() or ["no reason given"])[-1])


def wrapped(command: Sequence[str], scratch: Path, keep: Sequence[Path]) -> list[str]:
    """The command, started in a private view in which only the folders of ``keep`` are the real ones."""
    # -I: neither the probe nor the user's variables are for this interpreter.
    return [sys.executable, "-I", mount_namespace.__file__, str(scratch), *map(str, keep), "--", *command]


@contextlib.contextmanager
def held_back(command: Sequence[str], folder: Path) -> Iterator[tuple[list[str], dict[str, str]]]:
    """A command, and variables for it, with which its writes are gone with it, except those below ``folder``.

    Args:
        command: the user's.
        folder: where flatout records; the scratch folder lies in it meanwhile.
    """
    isolation = find_isolation(folder)
    with scratch_folder(folder) as scratch:
        if isolation.kind == NAMESPACE:
            yield wrapped(command, scratch, (folder.absolute(),)), OFFLINE
        else:
            yield list(command), OFFLINE | {REDIRECT_VARIABLE: str(scratch)}


@contextlib.contextmanager
def scratch_folder(parent: Path) -> Iterator[Path]:
    """A new folder that is removed afterwards with all its content."""
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="scratch-", dir=parent.absolute()))
    try:
        yield folder
    finally:
        remove(folder)


def remove(folder: Path) -> None:
    """Remove a folder; an overlay's work folder has no permissions, so they are set first."""

    def permit(function: object, path: str, error: object) -> None:
        with contextlib.suppress(OSError):
            os.chmod(os.path.dirname(path), stat.S_IRWXU)
            os.chmod(path, stat.S_IRWXU)
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path, ignore_errors=True)
            else:
                os.unlink(path)

    shutil.rmtree(folder, onerror=permit)
    if folder.exists():
        shutil.rmtree(folder, ignore_errors=True)
