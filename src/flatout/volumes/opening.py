"""Opens a volume for reading patches, whatever its layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from flatout.errors import UsageError
from flatout.volumes.layout import METADATA, Triple, read_layout
from flatout.volumes.patch_reader import ShardedVolume


class Volume(Protocol):
    """What a volume offers to trainings; axes z, y, x."""

    @property
    def shape(self) -> Triple: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    @property
    def spacing(self) -> tuple[float, float, float]: ...

    def read(self, z: int, y: int, x: int, dz: int, dy: int, dx: int, fill: int = 0) -> npt.NDArray[Any]: ...


def open_volume(path: str | Path) -> Volume:
    """Open a volume.

    Args:
        path: the folder of a zarr array, as ``flatout stage --volumes`` writes it.

    Raises:
        UsageError: it is missing, damaged, or of a layout that has to be staged first.
    """
    folder = Path(path)
    if not folder.is_dir() or not (folder / METADATA).exists():
        raise UsageError(f"{folder}: it is no volume of zarr v3: stage it by flatout stage {folder} DEST --volumes")
    layout = read_layout(folder)
    if layout is None:
        raise UsageError(
            f"{folder}: its layout would read much more than a patch: stage it by flatout stage {folder} DEST --volumes"
        )
    return ShardedVolume(folder, layout)
