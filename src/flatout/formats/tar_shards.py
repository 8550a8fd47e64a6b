"""Tar shards in webdataset's layout: each sample is an image and its class, under one number.

``shard-000000.tar`` … hold ``000000000.jpg`` and ``000000000.cls`` (index into the classes, as text; without a class
there is no such file). ``keys.txt`` has the samples' keys in order, ``classes.json`` the classes, and ``index.json``,
which is written last, the shards with their numbers of samples, as webdataset's indexed reader takes them.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
from pathlib import Path
from types import TracebackType

from flatout.atomic_file import write_atomically
from flatout.errors import UnpackableName, UsageError
from flatout.formats.class_list import CLASSES_FILE, class_list_text

NAME = "index.json"
SHARD_BYTES = 1 << 30


def _shard(number: int) -> str:
    return f"shard-{number:06}.tar"


class TarWriter:
    """Writes the layout; samples are stored in the order in which they are added."""

    def __init__(self, folder: Path, classes: tuple[str, ...], shard_bytes: int = SHARD_BYTES) -> None:
        """Write into ``folder``, which must not hold shards.

        Raises:
            UsageError: it does.
        """
        if (folder / NAME).exists():
            raise UsageError(f"{folder}: shards are there already: give another folder, or remove them")
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._classes, self._shard_bytes = folder, classes, shard_bytes
        self._label = {name: place for place, name in enumerate(classes)}
        self._keys: list[str] = []
        self._samples: list[int] = []  # of each shard
        self._tar: tarfile.TarFile | None = None
        self._open = -1  # number of the open shard
        self.part = -1  # number of the last image's shard: those before are complete
        self._offset = 0

    def add(self, key: str, label: str | None, data: bytes) -> None:
        """Append an image; ``label`` is a class name, None for none.

        Raises:
            UnpackableName: a key with a line break.
        """
        self.count(key, label, len(data))
        if self._open != self.part:
            self._end_shard()
            self._tar = tarfile.open(self._folder / _shard(self.part), "w", format=tarfile.USTAR_FORMAT)  # noqa: SIM115
            self._open = self.part
        suffix = os.path.splitext(key)[1].lower().removeprefix(".").replace("jpeg", "jpg")
        number = f"{len(self._keys) - 1:09}"
        self._write(f"{number}.{suffix}", data)
        if label is not None:
            self._write(f"{number}.cls", str(self._label[label]).encode())

    def count(self, key: str, label: str | None, size: int) -> None:
        """Count an image without writing it, since a complete shard holds it; raises as ``add`` does."""
        if "\n" in key:
            raise UnpackableName(f"{key!r}: a line break in a name")
        if self.part < 0 or (self._offset and self._offset + size > self._shard_bytes):
            self.part, self._offset = self.part + 1, 0
            self._samples.append(0)
        block = tarfile.BLOCKSIZE
        self._offset += block + -(-size // block) * block + (2 * block if label is not None else 0)
        self._samples[self.part] += 1
        self._keys.append(key)

    def _write(self, name: str, data: bytes) -> None:
        assert self._tar is not None
        info = tarfile.TarInfo(name)
        info.size, info.mode = len(data), 0o444
        self._tar.addfile(info, io.BytesIO(data))
        self._tar.members.clear()  # type: ignore[attr-defined]  # pyright: ignore  # else all stay in memory

    def _end_shard(self) -> None:
        if self._tar is not None:
            self._tar.close()
            fd = os.open(self._folder / _shard(self._open), os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)

    def _finish(self) -> None:
        self._end_shard()
        write_atomically(self._folder / "keys.txt", "".join(f"{key}\n" for key in self._keys))
        write_atomically(self._folder / CLASSES_FILE, class_list_text(self._classes))
        shards = [
            {"url": _shard(number), "nsamples": samples, "filesize": (self._folder / _shard(number)).stat().st_size}
            for number, samples in enumerate(self._samples)
        ]
        write_atomically(self._folder / NAME, json.dumps({"wids_version": 1, "shardlist": shards}, indent=1))

    def __enter__(self) -> TarWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._finish()
        elif self._tar is not None:
            self._tar.close()
