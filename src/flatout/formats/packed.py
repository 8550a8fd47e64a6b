"""The packed layout: encoded images one after another in a few large files, and an index of their positions.

A folder of ``part-00000.bin`` …, ``index.npz`` (arrays ``part`` int32, ``offset`` and ``size`` int64, ``label`` int32,
one entry an image, sorted by key), ``keys.txt`` (one key a line) and ``packed.json`` (format, version, classes), which
is written last: without it there is no set.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, NamedTuple

import numpy as np

from flatout.errors import UnpackableName, UsageError

NAME = "packed.json"
FORMAT, VERSION = "flatout-packed", 1
PART_BYTES = 1 << 30


class Place(NamedTuple):
    """Position of an image."""

    part: int
    offset: int
    size: int
    label: int  # index into the classes, -1: none


class PackedWriter:
    """Writes the layout; an exception leaves no ``packed.json``, so no reader takes the set for complete."""

    def __init__(self, folder: Path, classes: tuple[str, ...], part_bytes: int = PART_BYTES) -> None:
        """Write into ``folder``, which must not hold a packed set.

        Raises:
            UsageError: it does.
        """
        if (folder / NAME).exists():
            raise UsageError(f"{folder}: a packed set is there already: give another folder, or remove it")
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._classes, self._part_bytes = folder, classes, part_bytes
        self._label = {name: place for place, name in enumerate(classes)}
        self._places: dict[str, Place] = {}
        self._file: BinaryIO | None = None
        self._open = -1  # number of the open part
        self.part = -1  # number of the last image's part: those before are complete
        self._offset = 0

    def add(self, key: str, label: str | None, data: bytes) -> None:
        """Append an image; ``label`` is a class name, None for none.

        Raises:
            UnpackableName: a key with a line break, or one that was added before.
        """
        self.count(key, label, len(data))
        if self._open != self.part:
            self._end_part()
            self._file = (self._folder / f"part-{self.part:05}.bin").open("wb", buffering=1 << 20)
            self._open = self.part
        assert self._file is not None
        self._file.write(data)

    def count(self, key: str, label: str | None, size: int) -> None:
        """Count an image without writing it, since a complete part holds it; raises as ``add`` does."""
        if "\n" in key or key in self._places:
            raise UnpackableName(f"{key!r}: {'appears twice' if key in self._places else 'a line break in a name'}")
        if self.part < 0 or self._offset + size > self._part_bytes:
            self.part, self._offset = self.part + 1, 0
        self._places[key] = Place(self.part, self._offset, size, -1 if label is None else self._label[label])
        self._offset += size

    def _end_part(self) -> None:
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()

    def _finish(self) -> None:
        self._end_part()
        keys = sorted(self._places)
        table = np.array([self._places[key] for key in keys], np.int64).reshape(-1, 4)
        with open(self._folder / "index.npz", "wb") as file:
            np.savez(file, part=table[:, 0].astype(np.int32), offset=table[:, 1], size=table[:, 2],
                     label=table[:, 3].astype(np.int32))  # fmt: skip
        (self._folder / "keys.txt").write_text("".join(f"{key}\n" for key in keys), "utf-8")
        about = {"format": FORMAT, "version": VERSION, "images": len(keys), "parts": self.part + 1}
        temporary = self._folder / f".{NAME}.tmp"
        temporary.write_text(json.dumps({**about, "classes": list(self._classes)}), "utf-8")
        os.replace(temporary, self._folder / NAME)

    def __enter__(self) -> PackedWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._finish()
        elif self._file is not None:
            self._file.close()


class PackedIndex(NamedTuple):
    """The index of a packed set."""

    classes: tuple[str, ...]
    keys: list[str]
    places: list[Place]


def read_index(folder: Path) -> PackedIndex:
    """Read the index.

    Raises:
        UsageError: it is missing, damaged or of another version.
    """
    try:
        about = json.loads((folder / NAME).read_text("utf-8"))
        if about.get("format") != FORMAT or about.get("version") != VERSION:
            raise UsageError(f"{folder / NAME}: another format: {FORMAT} version {VERSION} can be read here")
        keys = (folder / "keys.txt").read_text("utf-8").split("\n")[:-1]
        with np.load(folder / "index.npz") as arrays:
            columns = [arrays[name].tolist() for name in Place._fields]
        places = [Place(*row) for row in zip(*columns, strict=True)]
        if not len(keys) == len(places) == about["images"]:
            raise ValueError(f"{len(keys)} keys, {len(places)} places, {about['images']} images")
        return PackedIndex(tuple(about["classes"]), keys, places)
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(f"{folder}: no whole packed set: {error}") from None
