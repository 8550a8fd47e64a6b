"""A training that is refused leaves nothing in its output folder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flatout.errors import UsageError
from flatout.formats.class_list import CLASSES_FILE
from flatout.recipes.reading import FILE_NAME

# What a training writes before it begins. Anything else in the folder may be somebody's.
WRITTEN_FIRST = (FILE_NAME, CLASSES_FILE)


@contextmanager
def left_as_it_was(folder: Path) -> Iterator[None]:
    """Remove the first files of a training, and the folders made for it, if the block ends with a UsageError."""
    made, written = [], []
    with contextlib.suppress(ValueError):  # a name that no file can have
        made = [path for path in (folder, *folder.parents) if not path.exists()]  # innermost first
        written = [path for path in (folder / name for name in WRITTEN_FIRST) if not path.exists()]
    try:
        yield
    except UsageError:
        with contextlib.suppress(OSError, ValueError):  # a folder that is not empty stays
            for path in written if not any(folder.glob("**/*.ckpt")) else ():
                path.unlink(missing_ok=True)
            for path in made:
                path.rmdir()
        raise
