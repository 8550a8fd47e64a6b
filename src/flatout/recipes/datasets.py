"""A recipe's images: training and validation with the same class indices, the subset of classes, the test set."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from flatout.atomic_file import write_atomically
from flatout.errors import UsageError
from flatout.formats.class_list import CLASSES_FILE, class_list_text, draw_classes
from flatout.formats.packed import NAME as PACKED
from flatout.loader.interfaces import Source
from flatout.loader.sources.folders import ImageFolderSource
from flatout.loader.sources.hub import SCHEME, HubSource, is_saved
from flatout.loader.sources.objects import ObjectSource
from flatout.loader.sources.packed import PackedSource
from flatout.loader.sources.shards import ShardSource
from flatout.loader.sources.table import TableSource
from flatout.recipes.interfaces import ImageData
from flatout.recipes.schema import Recipe
from flatout.stage.sources.open import STORE_SCHEMES

ORIGINAL_INDICES_FILE = "original_indices.json"


def open_data(recipe: Recipe) -> ImageData:
    """The training and validation images of a recipe.

    Raises:
        UsageError: missing, empty, of one class only, or with classes in validation that training does not have.
    """
    wanted = recipe.data
    if wanted.root is None:
        raise UsageError("data.root: nothing is said: give the data's folder with --data")
    if not is_remote(wanted.root) and not Path(wanted.root).expanduser().is_dir():
        raise UsageError(f"--data {wanted.root}: no such folder")
    folder = below(wanted.root, wanted.train)
    mapped = read_class_map(Path(wanted.class_map).expanduser()) if wanted.class_map else None
    train = _open(recipe, folder, None)
    if mapped is not None:
        unknown = sorted(set(train.classes) - set(mapped))
        if unknown:
            raise UsageError(f"{folder}: classes that data.class_map does not have: {_some(unknown)}")
        train = _open(recipe, folder, mapped)
    notes = list(getattr(train, "notes", ()))
    everything = classes = train.classes
    drawn: set[str] | None = None
    if wanted.classes is not None:
        present = {train.classes[sample.label] for sample in train.samples}
        subset = tuple(draw_classes(sorted(present), wanted.classes, wanted.subset_seed, "data.classes"))
        if wanted.keep_indices:
            drawn = set(subset)
        else:
            classes = subset if mapped is None else tuple(name for name in mapped if name in set(subset))
            train = _open(recipe, folder, classes)
    if len(classes) < 2:
        raise UsageError(f"{folder}: {len(classes)} of at least 2 classes: there is nothing to classify")
    validation = None
    if wanted.validation:
        held = below(wanted.root, wanted.validation)
        whole = _open(recipe, held, None)
        unknown = sorted(set(whole.classes) - set(train.classes)) if wanted.classes is None else []
        absent = sorted(set(classes) - set(whole.classes))
        if unknown:
            raise UsageError(f"{held}: classes that training does not have: {_some(unknown)}")
        if len(absent) == len(classes):
            raise UsageError(f"{held}: has none of the training classes")
        validation = _open(recipe, held, classes)
        notes += getattr(validation, "notes", ())
    return ImageData(
        train=train,
        train_indices=_places(train, classes, drawn),
        validation=validation,
        validation_indices=_places(validation, classes, drawn) if validation else (),
        classes=classes,
        original_indices=None if wanted.classes is None else tuple(map(everything.index, classes)),
        notes=tuple(dict.fromkeys(notes)),
    )


def _places(source: Source, classes: Sequence[str], drawn: set[str] | None) -> Sequence[int]:
    """The images of the drawn classes; None means all classes."""
    if drawn is None:
        return range(len(source.samples))
    return [place for place, sample in enumerate(source.samples) if classes[sample.label] in drawn]


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{', '.join(names[:5])}{more}"


def read_class_map(path: Path) -> tuple[str, ...]:
    """Class names, one a line, in the order of the model's outputs.

    Raises:
        UsageError: it cannot be read, is empty, or names a class twice.
    """
    try:
        names = [line.strip() for line in path.read_text("utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"data.class_map: {path}: {getattr(error, 'strerror', None) or error}") from None
    while names and not names[-1]:
        names.pop()
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if not names or "" in names or twice:
        what = f"{twice[0]!r} is there twice" if twice else "a line is empty" if names else "it is empty"
        raise UsageError(f"data.class_map: {path}: {what}: give one class name a line")
    return tuple(names)


def open_test(where: str, image_column: str = "image") -> Source:
    """Images to predict, without labels: a folder, a packed or Hugging Face data set, a prefix in an object store.

    Raises:
        UsageError: no images were found.
    """
    if in_store(where):
        return ObjectSource(where, labelled=False)
    folder = Path(where)
    if where.startswith(SCHEME) or is_saved(folder):
        return HubSource(where, image_column, labelled=False)
    return (PackedSource if (folder / PACKED).is_file() else ImageFolderSource)(folder, labelled=False)


def in_store(address: str) -> bool:
    """True if an address is in an object store."""
    scheme, separator, _ = address.partition("://")
    return bool(separator) and scheme in STORE_SCHEMES


def is_remote(address: str) -> bool:
    """True if an address is in an object store or on the Hugging Face hub."""
    return in_store(address) or address.startswith(SCHEME)


def below(root: str, part: str | None) -> str:
    """The address of a part of the data; a part that is itself an address or an absolute path is used alone."""
    if part and (is_remote(part) or Path(part).expanduser().is_absolute()):
        return part.rstrip("/") if is_remote(part) else str(Path(part).expanduser())
    whole = root.rstrip("/") if is_remote(root) else str(Path(root).expanduser())
    return f"{whole}/{part}" if part else whole


def _open(recipe: Recipe, address: str, classes: tuple[str, ...] | None) -> Source:
    wanted = recipe.data
    kind: str = wanted.format
    if in_store(address):
        if kind not in ("auto", "folders"):
            raise UsageError(f"data.format: {kind} is not read from an object store: bring it near with flatout stage")
        return ObjectSource(address, classes)
    folder = Path(address)
    if address.startswith(SCHEME):
        if kind not in ("auto", "hf"):
            raise UsageError(f"data.format: {kind}: {address} is a Hugging Face data set: give auto or hf")
        kind = "hf"
    if kind == "auto":
        kind = "csv" if wanted.labels else _kind_of(folder)
    if kind == "csv":
        if wanted.labels is None or wanted.root is None:
            raise UsageError("data.labels: format csv needs the table's name")
        table = Path(wanted.root).expanduser() / wanted.labels
        return TableSource(folder, table, wanted.id_column, wanted.label_column, classes)
    if kind == "shards":
        return ShardSource(folder, classes)
    if kind == "packed":
        return PackedSource(folder, classes)
    if kind == "hf":
        return HubSource(address, wanted.image_column, wanted.label_column, classes)
    return ImageFolderSource(folder, classes)


def _kind_of(folder: Path) -> str:
    """The kind of data in a folder, by its files."""
    if (folder / PACKED).is_file():
        return "packed"
    if is_saved(folder):
        return "hf"
    return "shards" if folder.is_dir() and any(folder.glob("*.tar")) else "folders"


def save_classes(folder: Path, classes: Sequence[str]) -> Path:
    """Write the class names in the order of their indices."""
    path = folder / CLASSES_FILE
    write_atomically(path, class_list_text(classes))
    return path


def save_original_indices(folder: Path, data: ImageData) -> None:
    """Write the place of each drawn class among all classes of the set; nothing if none were drawn."""
    if data.original_indices is not None:
        places = dict(zip(data.classes, data.original_indices, strict=True))
        write_atomically(folder / ORIGINAL_INDICES_FILE, json.dumps(places, indent=0) + "\n")


def load_classes(path: Path) -> tuple[str, ...]:
    """Class names that :func:`save_classes` wrote.

    Raises:
        UsageError: missing, or not a list of names.
    """
    try:
        names = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {error}") from None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UsageError(f"{path}: no list of class names")
    return tuple(names)
