"""Predictions of staged volumes, or of one volume, by a trained run: what is read, and where it goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flatout.errors import UsageError
from flatout.recipes.volume_outputs import check_output_name, predict_volume
from flatout.recipes.volume_predicting import Segmenter
from flatout.stage.destination.overlap import refuse_shared
from flatout.volumes import open_volume
from flatout.volumes.array_folders import NOTE
from flatout.volumes.opening import Volume
from flatout.volumes.staged import StagedSet


@dataclass(frozen=True)
class Predicted:
    """One volume.

    Attributes:
        planes: of the volume.
        found_done: of these, predicted before.
    """

    volume: Path
    planes: int
    found_done: int
    output: Path


def volumes_to_predict(data: Path, staged: StagedSet | None, output: Path) -> dict[Path, Path]:
    """Outputs with the volume of each; makes the folder of several.

    Args:
        data: a folder that ``flatout stage --volumes`` wrote, or one volume.
        staged: its list; None: it is one volume.
        output: a folder, or the name of one prediction.

    Raises:
        UsageError: output and volumes share files, or the output cannot be made.
    """
    refuse_shared(data, output)
    if staged is None:
        check_output_name(output)
        return {output: data}
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = "it is a file" if isinstance(error, FileExistsError) else str(error.strerror)
        raise UsageError(f"--output {output}: no folder can be made there ({why}): give another one") from None
    return {output / f"{case.id}.zarr": data / case.image for case in staged.cases}


def predict_all(
    segmenter: Segmenter,
    wanted: dict[Path, Path],
    *,
    batch: int | None = None,
    options: str = "",
    force: bool = False,
    progress: Callable[[Path, int, int], None] = lambda volume, done, planes: None,
) -> Iterator[Predicted]:
    """Predict one volume after the other.

    Args:
        segmenter: the networks.
        wanted: of ``volumes_to_predict``.
        batch: patches at once; None: as in training.
        options: further choices that the result depends on.
        force: replace whatever has an output's name.
        progress: called with a volume, its planes done, and their number.

    Raises:
        UsageError: a volume cannot be read, or an output not be written.
    """
    for output, source in wanted.items():
        volume = _Finite(source, open_volume(source))
        output.parent.mkdir(parents=True, exist_ok=True)

        def moved(done: int, planes: int, source: Path = source) -> None:
            progress(source, done, planes)

        told = f"{options} {_content(source)}"
        done = predict_volume(segmenter, volume, output, batch=batch, options=told, force=force, progress=moved)
        yield Predicted(source, int(volume.shape[0]), done, output)


def _content(source: Path) -> str:
    """What changes with the voxels of a volume: the note of its staging, or sizes and times of its files."""
    if (source / NOTE).is_file():
        return (source / NOTE).read_text("utf-8", "replace")
    files = [source] if source.is_file() else sorted(path for path in source.rglob("*") if path.is_file())
    return str([(path.stat().st_size, path.stat().st_mtime_ns) for path in files])


class _Finite:
    """A volume of which boxes with NaN are refused: a network makes NaN of all that they touch."""

    def __init__(self, path: Path, volume: Volume) -> None:
        self._path, self._volume = path, volume
        self.shape = volume.shape

    def read(self, z: int, y: int, x: int, dz: int, dy: int, dx: int) -> Any:
        box = self._volume.read(z, y, x, dz, dy, dx)
        if box.dtype.kind == "f" and not np.isfinite(box).all():
            raise UsageError(
                f"{self._path}: the box of {(dz, dy, dx)} voxels at {(z, y, x)} holds NaN or infinite values: replace"
                " them by a number first"
            )
        return box
