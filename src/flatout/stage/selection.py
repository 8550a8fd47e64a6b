"""Selects the objects to stage: by splits, classes, patterns, and samples."""

from __future__ import annotations

import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from flatout.atomic_file import write_atomically
from flatout.errors import UsageError
from flatout.formats.class_list import class_list_text, draw_classes
from flatout.stage.destination.state import State
from flatout.stage.sources.base import ObjectInfo, Source

SPLITS = ("train", "val", "valid", "validation", "test")  # folders of these names hold the splits of a set


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The wanted part of a data set. The layout is split/class/file, or class/file without splits."""

    splits: tuple[str, ...] = ()  # folders directly below the source; (): the source itself holds the classes
    classes: int | None = None  # number of classes, drawn by seed
    seed: int = 42
    class_names: tuple[str, ...] = ()  # these classes instead
    per_class: int | None = None  # number of files of each class and split, drawn by seed
    include: tuple[str, ...] = ()  # shell patterns of keys
    exclude: tuple[str, ...] = ()
    share: float = 1.0  # of the files, chosen by a hash of seed and key: independent of the order

    def wants(self, key: str) -> bool:
        """True if a key passes the patterns and the sample."""
        if self.include and not any(fnmatchcase(key, pattern) for pattern in self.include):
            return False
        if any(fnmatchcase(key, pattern) for pattern in self.exclude):
            return False
        return self.share >= 1.0 or _draw(self.seed, key) < self.share


def _draw(seed: int, key: str) -> float:
    digest = hashlib.blake2b(f"{seed}:{key}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2.0**64


def chosen_classes(source: Source, selection: Selection) -> list[str] | None:
    """The classes to stage; None if all are wanted and their names are not needed.

    Every split gets the same classes: they are drawn from the names in the first.

    Raises:
        UsageError: a split or a class that is not there.
    """
    for split in selection.splits:
        there = source.folders()
        if split not in there:
            raise UsageError(f"--splits {split}: no such folder in the source: it has {', '.join(there[:8]) or 'none'}")
    if selection.classes is None and not selection.class_names:
        return None
    names = source.folders(selection.splits[0] if selection.splits else "")
    if selection.class_names:
        missing = sorted(set(selection.class_names) - set(names))
        if missing:
            more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
            raise UsageError(f"classes that the source does not have: {', '.join(missing[:5])}{more}")
        return sorted(selection.class_names)
    assert selection.classes is not None
    return draw_classes(names, selection.classes, selection.seed, "--classes")


def with_splits(source: Source, selection: Selection, report: Callable[[str], None]) -> Selection:
    """The selection with the splits that the source has, where none were chosen and its folders are splits alone.

    Args:
        source: where the set is.
        selection: what of it.
        report: called with a line that states how the folders were interpreted.
    """
    if selection.splits:
        return selection
    names = source.folders()
    found = tuple(name for name in SPLITS if name in names)
    if not found:
        return selection
    listed = ", ".join(found)
    if len(found) < len(names):
        report(
            f"{listed} lie beside other folders: all are taken as classes; --splits {listed.replace(' ', '')} if not"
        )
        return selection
    report(f"{listed}: taken as splits, each with its class folders (--splits chooses)")
    return replace(selection, splits=found)


def selected(source: Source, selection: Selection, classes: list[str] | None) -> Iterator[ObjectInfo]:
    """The objects to stage, in listing order; unwanted classes are not listed at all."""
    roots = list(selection.splits) or [""]
    prefixes = roots if classes is None else [f"{root}/{name}".lstrip("/") for root in roots for name in classes]
    for prefix in prefixes:
        found = (obj for obj in source.objects(prefix) if selection.wants(obj.key))
        if selection.per_class is None:
            yield from found
        else:
            yield from _some_of_each(found, selection)


def _some_of_each(found: Iterator[ObjectInfo], selection: Selection) -> Iterator[ObjectInfo]:
    """At most ``per_class`` objects of each folder: those with the lowest draw. Holds one prefix's choice in memory."""
    assert selection.per_class is not None
    kept: dict[str, list[tuple[float, ObjectInfo]]] = defaultdict(list)
    for obj in found:
        group = kept[obj.key.rpartition("/")[0]]
        group.append((_draw(selection.seed, obj.key), obj))
        if len(group) >= 4 * selection.per_class:
            group.sort()
            del group[selection.per_class :]
    for group in kept.values():
        yield from (obj for _, obj in sorted(group)[: selection.per_class])


def read_class_list(path: Path) -> tuple[str, ...]:
    """Class names of a file: a JSON list, or one name a line.

    Raises:
        UsageError: it cannot be read, or holds none.
    """
    try:
        text = path.read_text("utf-8")
    except IsADirectoryError:
        raise UsageError(f"--classes-from {path}: is a folder, not a file with class names") from None
    except OSError as error:
        raise UsageError(f"--classes-from {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise UsageError(f"--classes-from {path}: is no text in UTF-8") from None
    names: object = text.splitlines()
    if text.lstrip().startswith(("[", "{")):
        try:
            names = json.loads(text)
        except ValueError as error:
            raise UsageError(f"--classes-from {path}: no valid JSON: {error}") from None
    if not isinstance(names, list) or not all(isinstance(name, str | int) for name in names):
        raise UsageError(f"--classes-from {path}: give a JSON list of class names, or one name a line")
    found = tuple(str(name).strip() for name in names if str(name).strip())
    if not found:
        raise UsageError(f"--classes-from {path}: no class names in it")
    return found


def write_class_list(path: Path, names: list[str], state: State) -> None:
    """Write the class list, so that training, validation and prediction share its indices.

    Raises:
        UsageError: a file of that name exists that staging did not write.
    """
    text = class_list_text(names)
    written = hashlib.sha256(text.encode()).hexdigest()
    if os.path.lexists(path):
        there = None if path.is_symlink() or not path.is_file() else hashlib.sha256(path.read_bytes()).hexdigest()
        if there is None or there not in (state["classes"], written):
            raise UsageError(f"{path}: a file that staging did not make: move it away, the list of classes goes there")
    write_atomically(path, text)
    state["classes"] = written
