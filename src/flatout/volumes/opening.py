"""Opens a volume for reading patches, whatever its layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from flatout.errors import UsageError
from flatout.formats.volume_chunks import Triple
from flatout.volumes.layout import METADATA, read_layout
from flatout.volumes.patch_reader import ShardedVolume
from flatout.volumes.plain import open_plain


class Volume(Protocol):
    """What a volume offers to trainings; axes z, y, x."""

    @property
    def shape(self) -> Triple: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    @property
    def spacing(self) -> tuple[float, float, float]: ...

    def read(self, z: int, y: int, x: int, dz: int, dy: int, dx: int, fill: int = 0) -> npt.NDArray[Any]: ...


def is_whole(value: object, least: int) -> bool:
    """True for a whole number of at least ``least``, also one of numpy."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and int(value) >= least


def open_volume(path: str | Path) -> Volume:
    """Open a volume for reading patches.

    Args:
        path: the folder of a zarr array, as ``flatout stage --volumes`` writes it; other zarr, and npy, are read as
            they are, with a warning where that reads much more than a patch.

    Raises:
        UsageError: it is missing or damaged, or of a format that has to be staged first.
    """
    found = Path(path)
    if not found.exists():
        raise UsageError(f"{found}: it does not exist: give the folder of a zarr array, or an npy file")
    layout = read_layout(found) if (found / METADATA).exists() else None
    return ShardedVolume(found, layout) if layout is not None else open_plain(found)
