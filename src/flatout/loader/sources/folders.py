"""Images in folders: one folder a class, or none of them with a class."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from flatout.errors import UsageError
from flatout.formats.image_names import EXTENSIONS
from flatout.loader.interfaces import Sample
from flatout.units import counted


class ImageFolderSource:
    """Image files below a folder, in the order of their paths."""

    only_threads: str | None = None

    def __init__(self, root: Path, classes: tuple[str, ...] | None = None, labelled: bool = True) -> None:
        """List the folder.

        Args:
            root: with one folder a class, or with images anywhere below it.
            classes: the class names that labels index; files of other folders are left out. None: all.
            labelled: take the first folder as the class; else labels are -1.

        Raises:
            UsageError: no such folder, or no images in it.
        """
        if not root.is_dir():
            raise UsageError(f"{root}: no such folder of images")
        self.root = root
        self.notes: tuple[str, ...] = ()  # what was left out, in words
        others: Counter[str] = Counter()  # extensions of files that are not images
        if labelled:
            items = [item for item in os.scandir(root) if item.name[0] != "."]
            names = sorted(item.name for item in items if item.is_dir())
            outside = sum(item.name.lower().endswith(EXTENSIONS) for item in items if not item.is_dir())
            wanted = names if classes is None else [name for name in names if name in set(classes)]
            files = {name: _images(root / name, name, others) for name in wanted}
            empty = [name for name in wanted if not files[name]]
            self.classes: tuple[str, ...] = tuple(n for n in names if files[n]) if classes is None else classes
            label = {name: place for place, name in enumerate(self.classes)}
            found = [(path, label[name]) for name in wanted for path in files[name]]
            self.notes = _left_out(root, empty, outside, others)
        else:
            self.classes = classes or ()
            found = [(path, -1) for path in _images(root, "", others)]
            self.notes = _left_out(root, [], 0, others)
        if not found:
            raise UsageError(
                f"{root}: no images in it: expected {'class/' if labelled else ''}file with {', '.join(EXTENSIONS[:4])}"
                + (f"; {counted(others.total(), 'other file')} there" if others else "")
            )
        self.samples = [Sample(key, place) for key, place in sorted(found)]

    def read(self, index: int) -> bytes:
        """The encoded bytes of an image."""
        with open(self.root / self.samples[index].key, "rb", buffering=0) as file:
            return file.read()

    def locate(self, index: int) -> str:
        """Path of an image."""
        return str(self.root / self.samples[index].key)


def _left_out(root: Path, empty: list[str], outside: int, others: Counter[str]) -> tuple[str, ...]:
    """Notes for the user on what was left out."""
    notes = []
    if empty:
        more = f" and {len(empty) - 5} more" if len(empty) > 5 else ""
        notes.append(
            f"{root}: {counted(len(empty), 'folder')} without images are no classes: {', '.join(empty[:5])}{more}"
        )
    if outside:
        notes.append(f"{root}: {counted(outside, 'image')} outside of the class folders left out")
    if others:
        kinds = ", ".join(f"{count} {kind or 'without extension'}" for kind, count in others.most_common(3))
        notes.append(f"{root}: {counted(others.total(), 'file')} left out, no images: {kinds}")
    return tuple(notes)


def _images(folder: Path, prefix: str, others: Counter[str]) -> list[str]:
    """Paths of the images below a folder, relative to the root; links are followed, hidden names left out.

    Files that are not images are counted in ``others`` by extension.
    """
    found: list[str] = []
    pending = [(str(folder), prefix)]
    while pending:
        where, below = pending.pop()
        with os.scandir(where) as items:
            for item in items:
                if item.name.startswith("."):
                    continue
                key = f"{below}/{item.name}" if below else item.name
                if item.name.lower().endswith(EXTENSIONS):
                    found.append(key)
                elif item.is_dir():
                    pending.append((item.path, key))
                else:
                    others[os.path.splitext(item.name)[1].lower()] += 1
    return found
