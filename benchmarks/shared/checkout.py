"""The files of a git repository on this machine, with or without a work tree."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Checkout:
    """A clone, bare or not, read at its newest commit."""

    path: Path

    def files(self, folder: str) -> list[str]:
        """Paths of the files below a folder."""
        return self._git("ls-tree", "-r", "--name-only", "HEAD", folder + "/").splitlines()

    def text(self, path: str) -> str:
        """Content of a file; empty where there is none."""
        return self._git("show", f"HEAD:{path}")

    def commit(self) -> str:
        """The commit that is read."""
        return self._git("rev-parse", "--short", "HEAD").strip()

    def _git(self, *arguments: str) -> str:
        made = subprocess.run(["git", "-C", str(self.path), *arguments], capture_output=True, text=True, check=False)
        return made.stdout
