"""A recipe's images: training and validation with the same class indices, the subset of classes, the test set."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Sequence
from pathlib import Path

from flatout.errors import UsageError
from flatout.loader.contract import Source
from flatout.loader.sources.folders import FolderSource
from flatout.loader.sources.shards import ShardSource
from flatout.loader.sources.table import TableSource
from flatout.recipes.contract import ImageData
from flatout.recipes.schema import Recipe

CLASSES_FILE = "classes.json"


def draw_classes(names: Sequence[str], count: int, seed: int) -> tuple[str, ...]:
    """``count`` of the names, sorted: ``random.Random(seed).sample(sorted(names), count)``.

    Raises:
        UsageError: there are fewer.
    """
    if count > len(names):
        raise UsageError(f"data.classes: {count} are wanted and the training data has {len(names)}")
    return tuple(sorted(random.Random(seed).sample(sorted(names), count)))


def open_data(recipe: Recipe) -> ImageData:
    """The training and validation images of a recipe.

    Raises:
        UsageError: missing, empty, of one class only, or with classes in validation that training does not have.
    """
    wanted = recipe.data
    if wanted.root is None:
        raise UsageError("data.root: nothing is said: give the data's folder with --data")
    root = Path(wanted.root).expanduser()
    if not root.is_dir():
        raise UsageError(f"--data {wanted.root}: no such folder")
    folder = root / wanted.train if wanted.train else root
    train = _open(recipe, root, folder, None)
    classes = train.classes
    if wanted.classes is not None:
        classes = draw_classes(classes, wanted.classes, wanted.subset_seed)
        train = _open(recipe, root, folder, classes)
    if len(classes) < 2:
        raise UsageError(f"{folder}: {len(classes)} class(es): there is nothing to tell apart")
    validation = None
    if wanted.validation:
        whole = _open(recipe, root, root / wanted.validation, None)
        unknown = sorted(set(whole.classes) - set(train.classes)) if wanted.classes is None else []
        absent = sorted(set(classes) - set(whole.classes))
        if unknown:
            more = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
            raise UsageError(
                f"{root / wanted.validation}: classes that training does not have: {', '.join(unknown[:5])}{more}"
            )
        if len(absent) == len(classes):
            raise UsageError(f"{root / wanted.validation}: has none of the training classes")
        validation = _open(recipe, root, root / wanted.validation, classes)
    return ImageData(
        train=train,
        train_indices=range(len(train.samples)),
        validation=validation,
        validation_indices=range(len(validation.samples)) if validation else (),
        classes=classes,
    )


def open_test(folder: Path) -> Source:
    """Images to predict, without labels.

    Raises:
        UsageError: there are none.
    """
    return FolderSource(folder, labelled=False)


def _open(recipe: Recipe, root: Path, folder: Path, classes: tuple[str, ...] | None) -> Source:
    wanted = recipe.data
    kind = wanted.format
    if kind == "auto":
        kind = "csv" if wanted.labels else "shards" if folder.is_dir() and any(folder.glob("*.tar")) else "folders"
    if kind == "csv":
        if wanted.labels is None:
            raise UsageError("data.labels: format csv needs the table's name")
        return TableSource(folder, root / wanted.labels, wanted.id_column, wanted.label_column, classes)
    if kind == "shards":
        return ShardSource(folder, classes)
    if kind == "packed":
        raise UsageError("data.format: packed is not built in yet: allowed here are folders, csv, shards")
    return FolderSource(folder, classes)


def save_classes(folder: Path, classes: Sequence[str]) -> Path:
    """Write the class names in the order of their indices."""
    path = folder / CLASSES_FILE
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(list(classes), indent=0) + "\n", "utf-8")
    os.replace(temporary, path)
    return path


def load_classes(path: Path) -> tuple[str, ...]:
    """Class names that :func:`save_classes` wrote.

    Raises:
        UsageError: not there, or no list of names.
    """
    try:
        names = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {error}") from None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UsageError(f"{path}: no list of class names")
    return tuple(names)
