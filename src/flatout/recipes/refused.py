"""A training that is refused leaves nothing in its output folder."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flatout.errors import UsageError


@contextmanager
def left_as_it_was(folder: Path) -> Iterator[None]:
    """Remove what the block made in ``folder`` if it ends with a UsageError and without a checkpoint."""
    there = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    made = [path for path in (folder, *folder.parents) if not path.exists()]  # innermost first
    try:
        yield
    except UsageError:
        if not any(folder.glob("**/*.ckpt")):
            for path in folder.iterdir() if folder.is_dir() else ():
                if path.name not in there:
                    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
            with contextlib.suppress(OSError):  # it is not empty: of another training
                for path in made:
                    path.rmdir()
        raise
