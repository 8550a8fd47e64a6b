"""Images in folders: one folder a class, or none of them with a class."""

from __future__ import annotations

import os
from pathlib import Path

from flatout.errors import UsageError
from flatout.loader.contract import Sample
from flatout.loader.file_names import EXTENSIONS


class FolderSource:
    """Image files below a folder, in the order of their paths."""

    only_threads: str | None = None

    def __init__(self, root: Path, classes: tuple[str, ...] | None = None, labelled: bool = True) -> None:
        """List the folder.

        Args:
            root: with one folder a class, or with images anywhere below it.
            classes: the class names that labels are places in; files of other folders are left out. None: all.
            labelled: take the first folder as the class; else labels are -1.

        Raises:
            UsageError: no such folder, or no images in it.
        """
        if not root.is_dir():
            raise UsageError(f"{root}: no such folder of images")
        self.root = root
        if labelled:
            names = tuple(sorted(item.name for item in os.scandir(root) if item.is_dir() and item.name[0] != "."))
            self.classes: tuple[str, ...] = names if classes is None else classes
            label = {name: place for place, name in enumerate(self.classes)}
            found = [(path, label[name]) for name in names if name in label for path in _images(root / name, name)]
        else:
            self.classes = classes or ()
            found = [(path, -1) for path in _images(root, "")]
        if not found:
            raise UsageError(
                f"{root}: no images in it: expected {'class/' if labelled else ''}file with {', '.join(EXTENSIONS[:4])}"
            )
        self.samples = [Sample(key, place) for key, place in sorted(found)]

    def read(self, index: int) -> bytes:
        """The encoded bytes of an image."""
        with open(self.root / self.samples[index].key, "rb", buffering=0) as file:
            return file.read()

    def locate(self, index: int) -> str:
        """Path of an image."""
        return str(self.root / self.samples[index].key)


def _images(folder: Path, prefix: str) -> list[str]:
    """Paths of the images below a folder, relative to the root; links are followed, hidden names left out."""
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
    return found
