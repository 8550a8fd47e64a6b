"""The staged volumes of a recipe: which train, which are held out, and the patches of both."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import torch
from torch import Tensor

from flatout.errors import UsageError
from flatout.loader.patch_loader import Patch
from flatout.recipes.volume_schema import VolumeRecipe
from flatout.segmentation.augment import Normalisation
from flatout.segmentation.sliding_window import Size, starts
from flatout.units import counted
from flatout.volumes import StagedCase, StagedSet, Volume, open_volume, read_staged

IGNORE = 255  # class index of voxels that neither the loss nor the scores count


@dataclass(frozen=True, kw_only=True)
class VolumeData:
    """The cases of one training and one validation."""

    staged: StagedSet
    train: tuple[str, ...]  # ids
    validation: tuple[str, ...]
    per_epoch: int  # patches
    notes: tuple[str, ...] = ()
    things: str = "patches"

    @property
    def root(self) -> Path:
        """The data set's folder."""
        return self.staged.folder

    @property
    def classes(self) -> tuple[str, ...]:
        """The labels' values, in words; the first is the background."""
        return tuple(str(value) for value in self.staged.classes)

    @property
    def normalisation(self) -> Normalisation:
        """From stored intensities to those of the network."""
        known = self.staged.intensity
        return Normalisation(mean=known["mean"], std=known["std"], low=known["p0_5"], high=known["p99_5"])

    @property
    def train_count(self) -> int:
        """Patches of an epoch."""
        return self.per_epoch

    @property
    def counts(self) -> str:
        """How many volumes there are."""
        return f"{counted(len(self.train), 'volume')} for training, {len(self.validation)} for validation"

    @property
    def is_scored(self) -> bool:
        """True if volumes are held out."""
        return bool(self.validation)

    def digest(self) -> str:
        """SHA-256 over ids, shapes and split."""
        said = [[name, self.case(name).shape] for name in (*self.train, *self.validation)]
        return hashlib.sha256(json.dumps([said, len(self.train), self.classes]).encode()).hexdigest()

    def split(self, train: Sequence[str], validation: Sequence[str]) -> VolumeData:
        """The same data with other volumes held out."""
        return replace(self, train=tuple(train), validation=tuple(validation))

    def case(self, name: str) -> StagedCase:
        """The case of an id."""
        return next(case for case in self.staged.cases if case.id == name)

    def image(self, name: str) -> Volume:
        """The image of a case."""
        return open_volume(self.root / self.case(name).image)

    def label(self, name: str) -> Volume:
        """The labels of a case that has some."""
        found = self.case(name).label
        assert found is not None, "only labelled cases are trained and validated on"
        return open_volume(self.root / found)

    def class_indices(self) -> ClassIndices:
        """What turns stored labels into indices of classes."""
        return ClassIndices(self.staged.classes, self.staged.ignore)


class ClassIndices:
    """Stored labels to class indices; the label that is left out, and any other, to ``IGNORE``."""

    def __init__(self, values: Sequence[int], ignore: int | None) -> None:
        """Take the labels' values in the order of the classes, and the one to be left out."""
        self._low = min(0, *values)
        self._table = torch.full((max(*values, 0) - self._low + 2,), IGNORE, dtype=torch.uint8)
        for index, value in enumerate(values):
            self._table[value - self._low] = index
        # Mostly there is nothing to do.
        self._as_they_are = tuple(values) == tuple(range(len(values))) and ignore in (None, IGNORE)

    def __call__(self, labels: Tensor) -> Tensor:
        """Indices of the same shape."""
        if self._as_they_are:
            return labels
        if self._table.device != labels.device:
            self._table = self._table.to(labels.device)
        return self._table[(labels.long() - self._low).clamp(-1, len(self._table) - 1)]


def open_volumes(recipe: VolumeRecipe) -> VolumeData:
    """The volumes of a recipe.

    Raises:
        UsageError: there are none, too few, or the recipe names some that are not there.
    """
    wanted = recipe.data
    if wanted.root is None:
        raise UsageError("data.root: nothing is said: give the folder of staged volumes with --data")
    root = Path(wanted.root).expanduser()
    if not root.is_dir():
        raise UsageError(f"--data {root}: no such folder")
    staged = read_staged(root)
    known = [case.id for case in staged.cases]
    labelled = [case.id for case in staged.cases if case.label is not None]
    if wanted.validation is not None:
        missing = sorted(set(wanted.validation) - set(labelled))
        if missing:
            why = "has no labels" if missing[0] in known else "is not there"
            raise UsageError(f"data.validation: {missing[0]}: {why}: {root} has {_some(labelled)}")
        held = [name for name in labelled if name in wanted.validation]
    else:
        count = min(max(1, round(wanted.validation_share * len(labelled))), max(len(labelled) - 1, 0))
        held = sorted(random.Random(wanted.split_seed).sample(labelled, count))
    train = [name for name in labelled if name not in held]
    if not train:
        raise UsageError(f"{root}: {counted(len(labelled), 'labelled volume')} leave none to train on: give more")
    if not 2 <= len(staged.classes) < IGNORE:
        raise UsageError(f"{root}: {len(staged.classes)} classes: 2 to {IGNORE - 1} can be segmented")
    unlabelled = len(known) - len(labelled)
    notes = [f"{counted(unlabelled, 'volume')} without labels: not used"] if unlabelled else []
    if not held:
        notes.append("no volume is held out: nothing is validated, and the last epoch is taken for the best")
    return VolumeData(
        staged=staged,
        train=tuple(train),
        validation=tuple(held),
        per_epoch=recipe.patches.per_epoch,
        notes=tuple(notes),
    )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


class Tiles:
    """The patches that are scored after each epoch: the same ones, spread evenly over the validation volumes."""

    def __init__(self, data: VolumeData, patch: Size, most: int) -> None:
        """Choose at most so many of the patches that cover the volumes."""
        self._patch = patch
        self._outside = data.staged.ignore
        self._volumes = {name: (data.image(name), data.label(name)) for name in data.validation}
        whole = [
            (name, place)
            for name in data.validation
            for place in product(
                *(starts(side, own, 0.0) for side, own in zip(data.case(name).shape, patch, strict=True))
            )
        ]
        count = min(most, len(whole))
        self.places = [whole[at * len(whole) // count] for at in range(count)]

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, number: int) -> Patch:
        """Image and label; beyond a volume that is smaller than a patch lies what :class:`PatchDataset` puts there."""
        name, place = self.places[number]
        image, label = self._volumes[name]
        (z, y, x), (depth, height, width) = place, self._patch
        labels = label.read(z, y, x, depth, height, width, fill=self._outside or 0)
        return image.read(z, y, x, depth, height, width), labels
