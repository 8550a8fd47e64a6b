"""Images in one folder and a CSV table of ids and labels."""

from __future__ import annotations

import csv
import os
from pathlib import Path

from flatout.errors import UsageError
from flatout.loader.interfaces import Sample
from flatout.units import counted


class TableSource:
    """The images that a table names; an id is a file name, its extension optional."""

    only_threads: str | None = None

    def __init__(
        self,
        root: Path,
        table: Path,
        id_column: str,
        label_column: str,
        classes: tuple[str, ...] | None = None,
    ) -> None:
        """Read the table and find the files.

        Args:
            root: folder of the images.
            table: CSV with a header.
            id_column: its column of ids.
            label_column: its column of class names.
            classes: the class names that labels index; rows of others are left out. None: all, sorted.

        Raises:
            UsageError: no such table or column, an id twice or without file, an empty label.
        """
        if not root.is_dir():
            raise UsageError(f"{root}: no such folder of images")
        try:
            with table.open(newline="", encoding="utf-8-sig") as file:
                rows = list(csv.DictReader(file))
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise UsageError(f"{table}: {error}") from None
        columns = list(rows[0]) if rows else []
        for column in (id_column, label_column):
            if column not in columns:
                raise UsageError(f"{table}: no column {column!r}: it has {', '.join(map(str, columns)) or 'no rows'}")
        files: dict[str, str] = {}
        for item in os.scandir(root):
            files[item.name] = item.name
            files.setdefault(item.name.rpartition(".")[0] or item.name, item.name)
        missing = [row[id_column] for row in rows if row[id_column] not in files]
        if missing:
            raise UsageError(
                f"{table}: no file in {root} for {counted(len(missing), 'id')}, such as {', '.join(missing[:3])}: "
                "correct the table or data.train"
            )
        unlabelled = [row[id_column] for row in rows if not row[label_column]]
        if unlabelled:
            raise UsageError(
                f"{table}: {counted(len(unlabelled), 'row')} without {label_column!r}, such as {unlabelled[0]}"
            )
        if len({row[id_column] for row in rows}) < len(rows):
            raise UsageError(f"{table}: an id appears twice in {id_column!r}")
        self.root = root
        names = tuple(sorted({row[label_column] for row in rows}))
        self.classes: tuple[str, ...] = names if classes is None else classes
        label = {name: place for place, name in enumerate(self.classes)}
        self.samples = sorted(
            Sample(files[row[id_column]], label[row[label_column]]) for row in rows if row[label_column] in label
        )

    def read(self, index: int) -> bytes:
        """The encoded bytes of an image."""
        with open(self.root / self.samples[index].key, "rb", buffering=0) as file:
            return file.read()

    def locate(self, index: int) -> str:
        """Path of an image."""
        return str(self.root / self.samples[index].key)
