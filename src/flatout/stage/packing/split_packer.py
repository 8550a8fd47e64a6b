"""Packs one split: writes it in staging's own folder and moves it into place when it is complete."""

from __future__ import annotations

import functools
import json
import os
import random
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from flatout.atomic_file import write_atomically
from flatout.errors import DiskFull, StagingFailed, UnpackableName, UsageError
from flatout.formats.packed import PackedWriter
from flatout.formats.tar_shards import TarWriter
from flatout.stage.destination.packed_files import note_packed
from flatout.stage.destination.safe_paths import state_folder
from flatout.stage.destination.space import FULL, STAGE_ADVICE, check_room
from flatout.stage.packing.journal import plan_of
from flatout.stage.packing.split import LAST, Image, Writer, write_split
from flatout.stage.pictures import Corrupt, PictureChange
from flatout.stage.progress import Progress
from flatout.stage.sources.base import ObjectInfo, Source
from flatout.stage.sources.failures import Failure

_PACKED_NAMES = re.compile(r"part-[0-9]{5,}\.bin|index\.npz|keys\.txt|packed\.json")
_SHARD_NAMES = re.compile(r"shard-[0-9]{6,}\.tar|index\.json|keys\.txt|classes\.json")


@dataclass(frozen=True, kw_only=True)
class PackPlan:
    """Settings shared by all splits of a packing.

    Attributes:
        source: where the images are.
        destination: folder of the splits.
        splits: their names; one empty name if the set has none.
        classes: their names; a label is an index into it.
        seed: of the images' order.
        change: how images are scaled or re-encoded.
        min_free: bytes of the disk to leave free; None: a default.
        shard_bytes: size of tar shards; None: the packed layout.
    """

    source: Source
    destination: Path
    splits: tuple[str, ...]
    classes: tuple[str, ...]
    seed: int
    change: PictureChange
    min_free: int | None
    shard_bytes: int | None


class SplitPacker:
    """One split of a packing.

    Attributes:
        target: folder that the split appears in.
    """

    def __init__(self, plan: PackPlan, split: str, objects: list[ObjectInfo], labels: Mapping[str, str | None]) -> None:
        """Write nothing yet.

        Args:
            plan: of the whole packing.
            split: name of the split; empty: the set has none.
            objects: its images, sorted.
            labels: class name of each key; None: no class.
        """
        self._plan, self._split, self._objects, self._labels = plan, split, objects, labels
        self.target = plan.destination / split
        own = state_folder(plan.destination)
        self._making = own / f"packing-{plan.splits.index(split)}"
        self._record = _PlanRecord(own / "packed.json")
        about = (
            plan.source.address, split, plan.classes, plan.seed, plan.change.name, plan.change.drop_corrupt,
            plan.shard_bytes,
        )  # fmt: skip
        self._digest = plan_of(about, objects)
        self._names = _PACKED_NAMES if plan.shard_bytes is None else _SHARD_NAMES

    def is_done(self) -> bool:
        """True if this split is in place, packed from the same images in the same way.

        Raises:
            UsageError: another packed set is in its place.
        """
        if not _is_whole(self.target):
            return False
        if self._record[self._split] != self._digest:
            raise UsageError(f"{self.target}: another packed set is there already: remove it, or give another folder")
        return True

    def pack(self, progress: Progress, watch: Callable[[Progress], None]) -> None:
        """Write what is not written yet, then publish.

        Raises:
            UsageError: a name cannot be packed, a file is in the way, or the disk is too small.
            StagingFailed: an image could not be read, or the disk not written; whole parts are kept.
        """
        # An interruption may have come between the last byte and the end of publishing.
        is_written = self._record[self._split] == self._digest and _is_whole(self._making)
        self._check_nothing_overwritten(is_written)
        try:
            if not is_written:
                self._write(progress, watch)
                self._record[self._split] = self._digest
            self._publish()
        except (Failure, Corrupt) as error:
            raise StagingFailed(f"{error}: nothing of {self.target} is there yet; run the same command again") from None
        except OSError as error:
            why = error.strerror or error
            if error.errno in FULL:
                raise DiskFull(
                    f"{self._plan.destination}: {why}: whole parts are kept: make room there, or {STAGE_ADVICE}"
                ) from None
            raise StagingFailed(
                f"{self._plan.destination}: {why}: whole parts are kept; run the same command again"
            ) from None
        except UnpackableName:  # resuming would meet it again
            shutil.rmtree(self._making, ignore_errors=True)
            raise

    def _check_nothing_overwritten(self, is_written: bool) -> None:
        """Raise UsageError if a file at the target has a name that the split will use."""
        written = {path.name for path in self._making.iterdir()} if is_written else set()
        for path in sorted(self.target.iterdir()) if self.target.is_dir() else ():
            if path.name in written if is_written else self._names.fullmatch(path.name):
                raise UsageError(f"{path}: exists already, and would be overwritten: give another folder, or remove it")

    def _write(self, progress: Progress, watch: Callable[[Progress], None]) -> None:
        plan = self._plan
        written = sum(path.stat().st_size for path in self._making.glob("*"))
        needed = max(sum(obj.size for obj in self._objects) - written, 0)
        check_room(plan.destination, needed, plan.min_free)
        prefix = f"{self._split}/" if self._split else ""
        images = [Image(obj, obj.key.removeprefix(prefix), self._labels[obj.key]) for obj in self._objects]
        random.Random(plan.seed).shuffle(images)
        open_writer = functools.partial(_open_writer, self._making, plan.classes, plan.shard_bytes)
        write_split(plan.source, images, self._making, self._digest, open_writer, plan.change, progress, watch)

    def _publish(self) -> None:
        """Move the files to their place; the one that declares the set whole comes last."""
        self.target.mkdir(parents=True, exist_ok=True)
        # Not the journal, nor temporaries of a killed packing.
        files = [path for path in self._making.iterdir() if self._names.fullmatch(path.name)]
        note_packed(self._plan.destination, self.target, files, self._plan.source.unverified)
        for path in sorted(files, key=lambda path: path.name in LAST):
            os.replace(path, self.target / path.name)
        shutil.rmtree(self._making)


class _PlanRecord:
    """The digest of the plan by which each split of a destination was written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            found = json.loads(path.read_text("utf-8"))
        except (FileNotFoundError, ValueError):  # damaged: its sets count as packed by others
            found = None
        self._digests: dict[str, str] = found if isinstance(found, dict) else {}

    def __getitem__(self, split: str) -> str | None:
        return self._digests.get(split)

    def __setitem__(self, split: str, digest: str) -> None:
        self._digests[split] = digest
        write_atomically(self._path, json.dumps(self._digests))


def _open_writer(folder: Path, classes: tuple[str, ...], shard_bytes: int | None) -> Writer:
    return PackedWriter(folder, classes) if shard_bytes is None else TarWriter(folder, classes, shard_bytes)


def _is_whole(folder: Path) -> bool:
    return any((folder / name).exists() for name in LAST)
