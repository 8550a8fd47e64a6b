"""Images in an object store: one folder a class, or none of them with a class."""

from __future__ import annotations

from flatout import extras
from flatout.errors import UsageError
from flatout.formats.image_names import EXTENSIONS
from flatout.loader.interfaces import Sample
from flatout.stage.sources.base import ObjectInfo, Source
from flatout.stage.sources.failures import Failure
from flatout.stage.sources.open import open_source
from flatout.stage.sources.retries import read_with_retries


class ObjectSource:
    """Reads objects by key; retries failed requests with growing delays."""

    only_threads: str | None = "a forked process cannot use the connection to a store"

    def __init__(self, address: str, classes: tuple[str, ...] | None = None, labelled: bool = True) -> None:
        """List the objects.

        Args:
            address: such as ``s3://bucket/train``; credentials come from the environment or the instance's role.
            classes: the class names that labels index; other objects are left out. None: all, sorted.
            labelled: take the first folder below the address as the class; else labels are -1.

        Raises:
            UsageError: it cannot be listed, or there are no images.
        """
        extras.require("stage")
        self.address = address
        self._source: Source = open_source(address)
        try:
            entries = [entry for entry in self._source.objects() if entry.key.lower().endswith(EXTENSIONS)]
        except Failure as error:
            raise UsageError(f"{address}: cannot be listed: {error}") from None
        if labelled:
            entries = [entry for entry in entries if "/" in entry.key]
        names = tuple(sorted({entry.key.partition("/")[0] for entry in entries})) if labelled else ()
        self.classes: tuple[str, ...] = names if classes is None else classes
        label = {name: place for place, name in enumerate(self.classes)}
        found: list[tuple[Sample, ObjectInfo]] = []
        for entry in sorted(entries):
            own = label.get(entry.key.partition("/")[0], -1) if labelled else -1
            if own >= 0 or not labelled:
                found.append((Sample(entry.key, own), entry))
        if not found:
            raise UsageError(f"{address}: no images there: expected {'class/' if labelled else ''}name.jpg")
        self.samples = [sample for sample, _ in found]
        self._entries = [entry for _, entry in found]

    def read(self, index: int) -> bytes:
        """The encoded bytes of an image.

        Raises:
            Failure: the object could not be read after several tries.
        """
        return read_with_retries(self._source, self._entries[index])

    def locate(self, index: int) -> str:
        """Address of an image."""
        return f"{self.address}/{self.samples[index].key}"
