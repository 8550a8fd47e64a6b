"""The staged volumes of a recipe: which train, which are held out, and the patches of both."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from flatout.errors import UsageError
from flatout.loader.patch_loader import Patch
from flatout.recipes.volume_schema import VolumeRecipe
from flatout.segmentation.augment import Normalisation
from flatout.segmentation.sliding_window import Size, Volume, starts

INDEX_FILE = "volumes.json"
BEYOND = 255  # label of voxels outside a volume or patch, where the data ignore no label of their own


@dataclass(frozen=True, kw_only=True)
class VolumeData:
    """The cases of one training and one validation."""

    root: Path
    train: tuple[str, ...]  # ids
    validation: tuple[str, ...]
    classes: tuple[str, ...]  # the first is the background
    ignore: int  # a label that is no class
    normalisation: Normalisation
    shapes: dict[str, Size]
    per_epoch: int  # patches
    notes: tuple[str, ...] = ()
    things: str = "patches"
    _index: Any = field(repr=False)

    @property
    def train_count(self) -> int:
        """Patches of an epoch."""
        return self.per_epoch

    @property
    def counts(self) -> str:
        """How many volumes there are."""
        return f"{len(self.train)} volumes for training, {len(self.validation)} for validation"

    @property
    def is_scored(self) -> bool:
        """True if volumes are held out."""
        return bool(self.validation)

    def digest(self) -> str:
        """SHA-256 over ids, shapes and split."""
        said = [[name, self.shapes[name]] for name in (*self.train, "", *self.validation) if name]
        return hashlib.sha256(json.dumps([said, len(self.train), self.classes]).encode()).hexdigest()

    def split(self, train: Sequence[str], validation: Sequence[str]) -> VolumeData:
        """The same data with other volumes held out."""
        return replace(self, train=tuple(train), validation=tuple(validation))

    def image(self, case: str) -> Volume:
        """The image of a case."""
        from flatout.volumes import open_volume

        opened: Volume = open_volume(self.root / self._case(case)["image"])
        return opened

    def label(self, case: str) -> Volume:
        """The labels of a case.

        Raises:
            UsageError: it has none.
        """
        from flatout.volumes import open_volume

        found = self._case(case)["label"]
        if found is None:
            raise UsageError(f"{self.root}: {case} has no labels: leave it out of training and validation")
        opened: Volume = open_volume(self.root / found)
        return opened

    def _case(self, case: str) -> Any:
        return next(entry for entry in self._index["cases"] if entry["id"] == case)


def open_volumes(recipe: VolumeRecipe) -> VolumeData:
    """The volumes of a recipe.

    Raises:
        UsageError: there are none, too few, or the recipe names some that are not there.
    """
    wanted = recipe.data
    if wanted.root is None:
        raise UsageError("data.root: nothing is said: give the folder of staged volumes with --data")
    root = Path(wanted.root).expanduser()
    index = read_index(root)
    known = [str(entry["id"]) for entry in index["cases"]]
    labelled = [str(entry["id"]) for entry in index["cases"] if entry["label"] is not None]
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
        raise UsageError(f"{root}: {len(labelled)} labelled volumes leave none to train on: at least two are needed")
    if len(index["classes"]) < 2:
        raise UsageError(f"{root}: {len(index['classes'])} of at least 2 classes: there is nothing to segment")
    unlabelled = len(known) - len(labelled)
    intensity = index["intensity"]
    return VolumeData(
        root=root,
        train=tuple(train),
        validation=tuple(held),
        classes=tuple(str(name) for name in index["classes"]),
        ignore=BEYOND if index["ignore"] is None else int(index["ignore"]),
        normalisation=Normalisation(
            mean=intensity["mean"], std=intensity["std"], low=intensity["p0_5"], high=intensity["p99_5"]
        ),
        shapes={str(entry["id"]): (*map(int, entry["shape"]),) for entry in index["cases"]},  # type: ignore[misc]
        per_epoch=recipe.patches.per_epoch,
        notes=(f"{unlabelled} volumes have no labels and are not used",) if unlabelled else (),
        _index=index,
    )


def read_index(root: Path) -> Any:
    """The list of staged volumes.

    Raises:
        UsageError: there is none, or it cannot be read.
    """
    path = root / INDEX_FILE
    if not root.is_dir():
        raise UsageError(f"--data {root}: no such folder")
    if not path.is_file():
        raise UsageError(f"--data {root}: no {INDEX_FILE} there: write it with `flatout stage SRC {root} --volumes`")
    try:
        index = json.loads(path.read_text("utf-8"))
        assert isinstance(index, dict)
        assert {"cases", "intensity", "classes", "ignore"} <= index.keys()
        assert all({"id", "image", "label", "shape"} <= entry.keys() for entry in index["cases"])
    except (OSError, ValueError, AssertionError, AttributeError, TypeError):
        raise UsageError(f"{path}: is no list of staged volumes: stage them again") from None
    return index


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


class Tiles:
    """The patches that are scored after each epoch: the same ones, spread evenly over the validation volumes."""

    def __init__(self, data: VolumeData, patch: Size, most: int) -> None:
        """Choose at most so many of the patches that cover the volumes."""
        self._patch, self._ignore = patch, data.ignore
        self._volumes = {name: (data.image(name), data.label(name)) for name in data.validation}
        whole = [
            (name, place)
            for name in data.validation
            for place in product(*(starts(side, own, 0.0) for side, own in zip(data.shapes[name], patch, strict=True)))
        ]
        count = min(most, len(whole))
        self.places = [whole[at * len(whole) // count] for at in range(count)]

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, number: int) -> Patch:
        """Image and label; what lies beyond a volume repeats its border and is not scored."""
        name, place = self.places[number]
        image, label = self._volumes[name]
        box = tuple(min(side, length - at) for side, length, at in zip(self._patch, image.shape, place, strict=True))
        missing = [(0, side - own) for side, own in zip(self._patch, box, strict=True)]
        voxels = np.asarray(image.read(*place, *box))
        truth = np.asarray(label.read(*place, *box))
        return np.pad(voxels, missing, mode="edge"), np.pad(truth, missing, constant_values=self._ignore)
