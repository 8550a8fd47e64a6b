"""The folder of a training: a new one, or that of a resumed training; never a folder of other files."""

from __future__ import annotations

import re
from pathlib import Path

from flatout.errors import UsageError
from flatout.formats.class_list import CLASSES_FILE
from flatout.formats.training_folder import DEADLINE_FILE, INTENSITY_FILE, METRICS_FILE, STEPS_FILE
from flatout.recipes.checkpoints import kept_checkpoints
from flatout.recipes.datasets import ORIGINAL_INDICES_FILE
from flatout.recipes.folds import SPLIT_FILE
from flatout.recipes.reading import FILE_NAME

# Files of a training that ended before its first checkpoint.
BEGUN = {
    *(FILE_NAME, CLASSES_FILE, SPLIT_FILE, DEADLINE_FILE, METRICS_FILE, STEPS_FILE, ORIGINAL_INDICES_FILE),
    *(INTENSITY_FILE, "bad_files.txt", "tensorboard", "wandb"),
}


# Temporary files of atomic writes, left by a killed process.
UNFINISHED = re.compile(r"\.(.+\.(ckpt|csv|json|yaml)|bad_files\.txt)\.[0-9a-f]{12}\.tmp")


def remove_unfinished(folder: Path) -> None:
    """Remove partly written files of killed processes from a training's folder and its folds'."""
    for inner in (folder, *folder.glob("fold-*")):
        for path in inner.iterdir() if inner.is_dir() else ():
            if UNFINISHED.fullmatch(path.name):
                path.unlink(missing_ok=True)


def check_output(folder: Path, resume: bool) -> None:
    """Check that a training may write into a folder, and make it.

    Raises:
        UsageError: it holds a training and ``resume`` is not given, or other files; or it cannot be created.
    """
    try:
        present = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--output {folder}: {error.strerror or error}: give another folder") from None
    if resume:
        return
    trained = kept_checkpoints(folder) or any(kept_checkpoints(fold) for fold in folder.glob("fold-*"))
    if trained:
        raise UsageError(f"--output {folder}: holds a training already: go on with --resume, or give another folder")
    foreign = [name for name in present if name not in BEGUN and not name.startswith(("fold-", "."))]
    if foreign:
        raise UsageError(
            f"--output {folder}: is not empty: it holds {foreign[0]}"
            f"{f' and {len(foreign) - 1} more' if len(foreign) > 1 else ''}: give a new folder"
        )
