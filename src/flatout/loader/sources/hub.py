"""Images of a Hugging Face data set: one from the hub, or one that ``save_to_disk`` wrote."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flatout import extras
from flatout.errors import UsageError
from flatout.loader.interfaces import BadImage, Sample

SCHEME = "hf://"
SAVED = "dataset_info.json"  # beside state.json
STATE = "state.json"


def is_saved(folder: Path) -> bool:
    """True if a folder is a data set that ``save_to_disk`` wrote."""
    return (folder / SAVED).is_file() and (folder / STATE).is_file()


class HubSource:
    """Reads rows of a memory-mapped table: encoded bytes in any order, nothing is decoded on the way."""

    only_threads: str | None = "a Hugging Face data set is read by threads"

    def __init__(
        self,
        address: str,
        image_column: str = "image",
        label_column: str = "label",
        classes: tuple[str, ...] | None = None,
        labelled: bool = True,
    ) -> None:
        """Open a data set.

        Args:
            address: ``hf://OWNER/NAME/SPLIT`` (or ``hf://NAME/SPLIT``), or a folder.
            image_column: its column of images.
            label_column: its column of classes: a ClassLabel, names or numbers.
            classes: the class names that labels index; rows of others are left out. None: those of the data set.
            labelled: take the labels; else they are -1.

        Raises:
            UsageError: it cannot be opened, or has no such column, no images, or a row without a label.
        """
        extras.require("hub")
        from datasets import Image

        self.address = address
        table = _opened(address)
        for column in (image_column, label_column) if labelled else (image_column,):
            if column not in table.column_names:
                raise UsageError(
                    f"{address}: no column {column!r}: it has {', '.join(table.column_names)}: "
                    f"set data.{'image' if column == image_column else 'label'}_column"
                )
        names = _labels(table, address, label_column) if labelled else [""] * len(table)
        if classes is None:
            own = getattr(table.features[label_column], "names", None) if labelled else ()
            classes = tuple(own) if own is not None else tuple(sorted(set(names), key=_numbers_first))
        self.classes: tuple[str, ...] = classes
        label = {name: place for place, name in enumerate(classes)}
        self._rows = [row for row, name in enumerate(names) if not labelled or name in label]
        if not self._rows:
            raise UsageError(f"{address}: no images in it")
        self.samples: Sequence[Sample] = [Sample(f"{row:08d}", label.get(names[row], -1)) for row in self._rows]
        self._images = table.select_columns([image_column]).cast_column(image_column, Image(decode=False))
        self._column = image_column

    def read(self, index: int) -> bytes:
        """The encoded bytes of an image.

        Raises:
            BadImage: the row has none.
        """
        found: dict[str, Any] | None = self._images[self._rows[index]][self._column]
        if found and found.get("bytes"):
            return bytes(found["bytes"])
        if found and found.get("path"):
            return Path(found["path"]).read_bytes()
        raise BadImage("the row has no image")

    def locate(self, index: int) -> str:
        """Data set and row of an image."""
        return f"{self.address}: row {self._rows[index]}"


def _opened(address: str) -> Any:
    """The table of one split.

    Raises:
        UsageError: there is none.
    """
    import datasets

    try:
        if not address.startswith(SCHEME):
            found = datasets.load_from_disk(address)
        else:
            name, _, split = address.removeprefix(SCHEME).rpartition("/")
            found = datasets.load_dataset(name, split=split)
    except Exception as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        raise UsageError(f"{address}: cannot be opened as a Hugging Face data set: {first}") from None
    if isinstance(found, datasets.DatasetDict):
        raise UsageError(f"{address}: holds the splits {', '.join(map(str, found))}: name one with data.train")
    return found


def _labels(table: Any, address: str, column: str) -> list[str]:
    values = table[column][:]
    names = getattr(table.features[column], "names", None)
    for row, value in enumerate(values):
        if value is None or value == -1 or value == "" or isinstance(value, list | dict):
            raise UsageError(f"{address}: row {row}: {column} is {value!r}: give one class for each image")
    return [str(names[value]) if names is not None else str(value) for value in values]


def _numbers_first(name: str) -> tuple[bool, int, str]:
    """Order numbers by their value."""
    return not name.isdecimal(), int(name) if name.isdecimal() else 0, name
