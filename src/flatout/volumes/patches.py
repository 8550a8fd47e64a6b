"""Draws patches from a staged data set, the same for the same seed and sample number.

Sample n depends on the seed and n alone: threads, workers, ranks and a resumed training that ask for n get the same.
Nothing here imports torch; a torch ``DataLoader`` takes it as it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from flatout.errors import UsageError
from flatout.formats.volume_chunks import Triple
from flatout.volumes.foreground import ForegroundIndex
from flatout.volumes.opening import Volume, is_whole, open_volume
from flatout.volumes.staged import StagedCase, StagedSet, read_staged

BY_VOXELS, EQUAL = "voxels", "equal"


@dataclass(frozen=True)
class _Case:
    staged: StagedCase
    image: Volume
    label: Volume
    index: ForegroundIndex


@dataclass(frozen=True)
class Place:
    """Where a patch is.

    Attributes:
        case: number in the data set's cases.
        start: its first voxel along z, y, x; negative where the patch is larger than the volume.
        foreground: it was drawn around a voxel of a class.
    """

    case: int
    start: Triple
    foreground: bool


class PatchDataset:
    """Patches with their labels, by sample number.

    A patch outside the foreground's share begins anywhere from −p/2 to S − p/2 along each axis (p its edge, S the
    volume's) and is then moved inside: drawn from 0 to S − p, voxels near a border would be seen far less often than
    others. Where labels are incomplete it is drawn around a labelled voxel instead. A patch of the foreground's share
    holds a voxel of a class, all classes alike, at a random place of the patch.

    Args:
        folder: that ``flatout stage --volumes`` wrote.
        patch: edges along z, y, x, voxels.
        cases: ids to draw from; None: all with labels.
        seed: of all draws.
        foreground_share: share of the patches that hold foreground for sure.
        weights: ``voxels``: a volume is drawn as often as it has labelled voxels; ``equal``: all alike.
        length: of an epoch, samples; None: as many patches as cover the volumes once. Any number may be asked for.

    Raises:
        UsageError: the data set is missing or damaged, a case is unknown or without labels, or a value is not allowed.
    """

    def __init__(
        self,
        folder: str | Path,
        patch: Triple,
        cases: Sequence[str] | None = None,
        seed: int = 0,
        foreground_share: float = 1 / 3,
        *,
        weights: str = BY_VOXELS,
        length: int | None = None,
    ) -> None:
        if not isinstance(patch, Sequence) or len(patch) != 3 or not all(is_whole(edge, 1) for edge in patch):
            raise UsageError(f"patch {patch!r}: give three edges of at least 1 voxel, (z, y, x)")
        if not isinstance(foreground_share, (int, float)) or not 0 <= foreground_share <= 1:
            raise UsageError(f"foreground_share {foreground_share!r}: give a share from 0 to 1")
        if not is_whole(seed, 0):
            raise UsageError(f"seed {seed!r}: give a whole number of at least 0")
        if length is not None and not is_whole(length, 1):
            raise UsageError(f"length {length!r}: give a whole number of at least 1, or None")
        if weights not in (BY_VOXELS, EQUAL):
            raise UsageError(f"weights {weights!r}: give {BY_VOXELS} or {EQUAL}")
        self.patch, self.seed, self.foreground_share = patch, seed, foreground_share
        self.set = read_staged(folder)
        self._cases = [_open(self.set, case) for case in _chosen(self.set, cases)]
        voxels = [case.index.labelled for case in self._cases]
        self._ends = np.cumsum(voxels if weights == BY_VOXELS else [1] * len(voxels), dtype=np.int64)
        self._length = length if length is not None else max(sum(voxels) // math.prod(patch), 1)

    def __len__(self) -> int:
        """Samples of an epoch."""
        return self._length

    def __getitem__(self, sample: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Image and labels of a sample; voxels outside the volume are 0, and without a label where one can say so."""
        place = self.place(sample)
        case, outside = self._cases[place.case], self.set.ignore
        image = case.image.read(*place.start, *self.patch)
        return image, case.label.read(*place.start, *self.patch, fill=0 if outside is None else outside)

    @property
    def cases(self) -> tuple[StagedCase, ...]:
        """The cases that are drawn from."""
        return tuple(case.staged for case in self._cases)

    def place(self, sample: int) -> Place:
        """Where the patch of a sample is."""
        if sample < 0:
            raise IndexError(f"sample {sample}: samples count from 0")
        rng = np.random.default_rng((self.seed, sample))
        wants_foreground = rng.random() < self.foreground_share
        number = int(np.searchsorted(self._ends, rng.integers(self._ends[-1]), side="right"))
        case = self._cases[number]
        classes = case.index.foreground
        if wants_foreground and classes:
            value = classes[int(rng.integers(len(classes)))]
            start = self._around(rng, case, case.index.draw(rng, case.label, value))
            return Place(number, start, foreground=True)
        if case.index.labelled < math.prod(case.staged.shape):
            return Place(number, self._around(rng, case, case.index.draw(rng, case.label)), foreground=False)
        centre = [int(rng.integers(size)) for size in case.staged.shape]
        corner = [at - edge // 2 for at, edge in zip(centre, self.patch, strict=True)]
        return Place(number, _inside(corner, self.patch, case.staged.shape), foreground=False)

    def _around(self, rng: np.random.Generator, case: _Case, voxel: Triple) -> Triple:
        start = [at - int(rng.integers(edge)) for at, edge in zip(voxel, self.patch, strict=True)]
        return _inside(start, self.patch, case.staged.shape)


def _inside(start: Sequence[int], patch: Triple, shape: Triple) -> Triple:
    """Move a patch into the volume; one that is larger is centred."""
    z, y, x = (
        min(max(at, 0), size - edge) if edge <= size else (size - edge) // 2
        for at, edge, size in zip(start, patch, shape, strict=True)
    )
    return z, y, x


def _chosen(staged: StagedSet, ids: Sequence[str] | None) -> list[StagedCase]:
    known = {case.id: case for case in staged.cases}
    if ids is None:
        ids = [case.id for case in staged.cases if case.label is not None]
        if not ids:
            raise UsageError(f"{staged.folder}: none of its cases has labels: stage them with their labels")
    for name in ids:
        if name not in known:
            raise UsageError(f"{staged.folder}: there is no case {name}; there are {', '.join(list(known)[:10])}")
    chosen = [known[name] for name in ids]
    if not chosen:
        raise UsageError(f"{staged.folder}: no cases are chosen: name at least one")
    return chosen


def _open(staged: StagedSet, case: StagedCase) -> _Case:
    if case.label is None or case.foreground is None:
        raise UsageError(f"{staged.folder}: case {case.id} has no labels: leave it out, or stage it with its labels")
    label = open_volume(staged.folder / case.label)
    image = open_volume(staged.folder / case.image)
    if not image.shape == label.shape == case.shape:
        raise UsageError(
            f"{staged.folder}: case {case.id}: image {image.shape} and labels {label.shape} differ: stage again"
        )
    index = ForegroundIndex.load(staged.folder / case.foreground, staged.block, staged.classes)
    if not index.labelled:
        raise UsageError(f"{staged.folder}: case {case.id} has not one labelled voxel: leave it out")
    return _Case(case, image, label, index)
