"""Images in tar shards, in the layout of webdataset: ``key.jpg`` next to ``key.cls``, or class folders inside."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import NamedTuple

from flatout.errors import UsageError
from flatout.formats.image_names import EXTENSIONS
from flatout.loader.interfaces import Sample
from flatout.loader.sources.descriptors import Descriptors
from flatout.units import counted


class _Member(NamedTuple):
    shard: int
    offset: int
    size: int


class ShardSource:
    """Reads members by their offset in the shards: one pass over the headers, then any order."""

    only_threads: str | None = None

    def __init__(self, root: Path, classes: tuple[str, ...] | None = None) -> None:
        """Index the shards of a folder.

        Args:
            root: holds ``*.tar``.
            classes: the class names that labels index; other members are left out. None: all, sorted.

        Raises:
            UsageError: no shards, a damaged one, or an image without a label.
        """
        self.root = root
        self.shards = tuple(sorted(path.name for path in root.glob("*.tar")))
        if not self.shards:
            raise UsageError(f"{root}: no .tar shards in it")
        found: dict[str, _Member] = {}
        named: dict[str, str] = {}
        for number, name in enumerate(self.shards):
            try:
                with tarfile.open(root / name, "r:") as shard:
                    for member in shard:
                        stem, _, extension = member.name.rpartition(".")
                        if not member.isfile():
                            continue
                        if extension == "cls":
                            named[stem] = shard.extractfile(member).read().decode().strip()  # type: ignore[union-attr]
                        elif f".{extension.lower()}" in EXTENSIONS:
                            found[member.name] = _Member(number, member.offset_data, member.size)
            except (tarfile.TarError, OSError, UnicodeDecodeError) as error:
                raise UsageError(f"{root / name}: not readable as a tar shard: {error}") from None
        label_of = {key: named.get(key.rpartition(".")[0], key.rpartition("/")[0].rpartition("/")[2]) for key in found}
        without = [key for key, label in label_of.items() if not label]
        if without:
            raise UsageError(
                f"{root}: {counted(len(without), 'image')} without a label, such as {without[0]}: add .cls members"
            )
        self.classes: tuple[str, ...] = tuple(sorted(set(label_of.values()))) if classes is None else classes
        label = {name: place for place, name in enumerate(self.classes)}
        self._members = {key: found[key] for key in sorted(found) if label_of[key] in label}
        self.samples = [Sample(key, label[label_of[key]]) for key in self._members]
        self._places = list(self._members.values())
        self._files = Descriptors()

    def read(self, index: int) -> bytes:
        """The encoded bytes of an image."""
        shard, offset, size = self._places[index]
        return self._files.read(self.root / self.shards[shard], offset, size)

    def locate(self, index: int) -> str:
        """Shard and member of an image."""
        return f"{self.root / self.shards[self._places[index].shard]}: {self.samples[index].key}"
