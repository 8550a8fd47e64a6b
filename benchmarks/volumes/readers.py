"""Ways to read a patch of one volume, each from files as its users have them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Read = Callable[[int, int, int, int], Array]  # z, y, x, edge


@dataclass(frozen=True)
class Reader:
    """One row of the tables.

    Attributes:
        name: As in the tables.
        write: Writes the volume below a folder.
        opened: Opens it.
        slow: Fewer patches are read.
    """

    name: str
    write: Callable[[Array, Path], None]
    opened: Callable[[Path], Read]
    slow: bool = False


def _staged(codec: str) -> Callable[[Array, Path], None]:
    def write(volume: Array, folder: Path) -> None:
        from flatout.volumes.plan import VolumeOptions
        from flatout.volumes.staging import stage_volumes

        np.save(folder / "a.npy", volume)
        options = VolumeOptions(compression=codec)
        stage_volumes(folder / "a.npy", folder / "staged", options, lambda progress: None, lambda line: None)
        os.unlink(folder / "a.npy")

    return write


def _flatout(folder: Path) -> Read:
    from flatout.volumes import open_volume

    volume = open_volume(folder / "staged" / "a" / "image.zarr")
    return lambda z, y, x, n: volume.read(z, y, x, n, n, n)


def _zarr_python(folder: Path) -> Read:
    import zarr

    array: Any = zarr.open_array(folder / "staged" / "a" / "image.zarr", mode="r")
    return lambda z, y, x, n: np.asarray(array[z : z + n, y : y + n, x : x + n])


def _tensorstore(folder: Path) -> Read:
    import tensorstore

    spec = {
        "driver": "zarr3",
        "kvstore": {"driver": "file", "path": str(folder / "staged" / "a" / "image.zarr")},
        "context": {"cache_pool": {"total_bytes_limit": 0}, "data_copy_concurrency": {"limit": 1}},
    }
    array: Any = tensorstore.open(spec, read=True).result()
    return lambda z, y, x, n: np.asarray(array[z : z + n, y : y + n, x : x + n].read().result())


def _memory_map(folder: Path) -> Read:
    array = np.load(folder / "a.npy", mmap_mode="r")
    return lambda z, y, x, n: np.array(array[z : z + n, y : y + n, x : x + n])


def _slices(volume: Array, folder: Path) -> None:
    import tifffile

    for number, plane in enumerate(volume):
        tifffile.imwrite(folder / f"{number:04d}.tif", plane)


def _read_slices(folder: Path) -> Read:
    import tifffile

    def read(z: int, y: int, x: int, n: int) -> Array:
        planes = (tifffile.imread(folder / f"{at:04d}.tif")[y : y + n, x : x + n] for at in range(z, z + n))
        return np.stack(list(planes))

    return read


def _blosc2(volume: Array, folder: Path) -> None:
    import blosc2

    # As nnU-Net 2.8 chooses chunks and blocks for this volume and a patch of 128³; it stores float32.
    blosc2.asarray(
        np.ascontiguousarray(volume),
        urlpath=str(folder / "a.b2nd"),
        chunks=(192, 192, 160),
        blocks=(64, 64, 32),
        cparams={"codec": blosc2.Codec.LZ4HC, "clevel": 5},
        mmap_mode="w+",
    )


def _read_blosc2(folder: Path) -> Read:
    import blosc2

    blosc2.set_nthreads(1)
    array: Any = blosc2.open(urlpath=str(folder / "a.b2nd"), mode="r", mmap_mode="r")
    return lambda z, y, x, n: np.asarray(array[z : z + n, y : y + n, x : x + n])


def _stage_with_labels(volume: Array, folder: Path) -> None:
    from flatout.volumes.plan import VolumeOptions
    from flatout.volumes.staging import stage_volumes

    source = folder / "source"
    source.mkdir()
    np.save(source / "image.npy", volume)
    np.save(source / "label.npy", (volume > np.percentile(volume[:8], 85)).astype(np.uint8))
    stage_volumes(source, folder / "staged", VolumeOptions(), lambda progress: None, lambda line: None)
    shutil.rmtree(source)


def _loader(folder: Path) -> Read:
    """Places of its own: a third of the patches around foreground."""
    from flatout.volumes import PatchDataset

    sets: dict[int, PatchDataset] = {}
    number = iter(range(10**9))

    def read(z: int, y: int, x: int, n: int) -> Array:
        if n not in sets:
            sets[n] = PatchDataset(folder / "staged", (n, n, n))
        image, _ = sets[n][next(number)]
        return image

    return read


READERS = (
    Reader("npy, memory map, copied", lambda volume, folder: np.save(folder / "a.npy", volume), _memory_map),
    Reader("flatout, unpacked", _staged("none"), _flatout),
    Reader("flatout, zstd", _staged("zstd"), _flatout),
    Reader("flatout, data set: image with labels", _stage_with_labels, _loader),
    Reader("tensorstore, the same unpacked files", _staged("none"), _tensorstore),
    Reader("tensorstore, the same zstd files", _staged("zstd"), _tensorstore),
    Reader("zarr-python, the same unpacked files", _staged("none"), _zarr_python, slow=True),
    Reader("zarr-python, the same zstd files", _staged("zstd"), _zarr_python, slow=True),
    Reader("blosc2 as nnU-Net stores, memory map", _blosc2, _read_blosc2),
    Reader("one tif a slice", _slices, _read_slices, slow=True),
)
