"""Images in the packed layout."""

from __future__ import annotations

from pathlib import Path

from flatout.errors import UsageError
from flatout.formats.packed import read_index
from flatout.loader.interfaces import Sample
from flatout.loader.sources.descriptors import Descriptors


class PackedSource:
    """Reads images by index: one read each, no file to open."""

    only_threads: str | None = None

    def __init__(self, root: Path, classes: tuple[str, ...] | None = None, labelled: bool = True) -> None:
        """Read the index.

        Args:
            root: of the packed set.
            classes: the class names that labels index; images of others are left out. None: the set's own.
            labelled: images without a label are an error; else labels are -1.

        Raises:
            UsageError: no packed set, or an image without a label.
        """
        index = read_index(root)
        self.root = root
        self.classes: tuple[str, ...] = index.classes if classes is None else classes
        label = {name: place for place, name in enumerate(self.classes)}
        of = [label.get(name, -1) for name in index.classes]
        found = []
        for key, place in zip(index.keys, index.places, strict=True):
            if labelled and place.label < 0:
                raise UsageError(f"{root}: {key} has no label")
            own = of[place.label] if labelled else -1
            if own >= 0 or not labelled:
                found.append((Sample(key, own), place))
        if not found:
            raise UsageError(f"{root}: no images of the wanted classes in it")
        self.samples = [sample for sample, _ in found]
        self._places = [place for _, place in found]
        self._files = Descriptors()

    def read(self, index: int) -> bytes:
        """The encoded bytes of an image."""
        place = self._places[index]
        return self._files.read(self.root / f"part-{place.part:05}.bin", place.offset, place.size)

    def locate(self, index: int) -> str:
        """Part, offset and key of an image."""
        place = self._places[index]
        return f"{self.root}/part-{place.part:05}.bin at {place.offset}: {self.samples[index].key}"
