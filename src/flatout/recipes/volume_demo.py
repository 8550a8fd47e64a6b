"""Volumes for the demo recipe: wavy sheets among tubes and blobs of the same grey, as a CT scanner would show them.

Sheets are the foreground. They are no brighter than the rest, so no threshold finds them: their shape has to be learnt.
"""

from __future__ import annotations

import os
import shutil
from itertools import product
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from flatout.recipes.any_recipe import AnyRecipe
from flatout.segmentation.intensity import blur
from flatout.volumes import StagedCase, StagedSet
from flatout.volumes.foreground import count_block

SIDE = 96  # voxels
CASES = 8  # two of them are held out
AIR, MATTER = 70.0, 150.0  # grey values
NOISE, BLUR = 26.0, 0.6  # of the detector; the blur in voxels
CLASSES = (0, 1)
BLOCK, CHUNK = 32, 16  # voxels: of the foreground index, and of what is read at once
Mask = NDArray[np.bool_]


def demo_volumes_folder() -> Path:
    """The folder of the demo's volumes, in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flatout" / "demo-volumes"


def needs_demo_volumes(name: str, recipe: AnyRecipe) -> bool:
    """True for the demo recipe if the user names no data; see :func:`flatout.recipes.demo_data.needs_demo_data`."""
    return recipe.data.root is None and name == "volume-demo"


def make_demo_volumes(folder: Path, cases: int = CASES, side: int = SIDE) -> Path:
    """Write the volumes below ``folder``, once.

    Args:
        folder: of the data set.
        cases: volumes.
        side: voxels of each of their sides.
    """
    if folder.is_dir():
        return folder
    partial = folder.with_name(folder.name + f".{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    entries = []
    pooled = []
    for number in range(cases):
        name = f"scan-{number}"
        image, label = draw_volume(number, side)
        _write(partial / name / "image.zarr", image)
        _write(partial / name / "label.zarr", label)
        np.save(partial / name / "foreground.npy", _foreground(label))
        pooled.append(image[::2, ::2, ::2].ravel())
        files = [f"{name}/{file}" for file in ("image.zarr", "label.zarr", "foreground.npy")]
        entries.append(StagedCase(name, files[0], files[1], (side,) * 3, (1.0, 1.0, 1.0), files[2]))
    values = np.concatenate(pooled)
    low, high = np.percentile(values, (0.5, 99.5))
    intensity = {
        "mean": float(values.mean()), "std": float(values.std()), "p0_5": float(low), "p99_5": float(high),
        "min": float(values.min()), "max": float(values.max()),
    }  # fmt: skip
    StagedSet(partial, tuple(entries), intensity, CLASSES, None, (BLOCK,) * 3).write()
    os.replace(partial, folder)
    return folder


def _write(path: Path, voxels: NDArray[np.uint8]) -> None:
    """Write one shard of chunks, as ``flatout stage --volumes`` would."""
    import zarr

    shard = -(-voxels.shape[0] // BLOCK) * BLOCK
    path.parent.mkdir(parents=True, exist_ok=True)
    array = zarr.create_array(
        path, shape=voxels.shape, dtype="uint8", chunks=(CHUNK,) * 3, shards=(shard,) * 3, compressors=None
    )
    array[:] = voxels


def _foreground(label: NDArray[np.uint8]) -> NDArray[np.int32]:
    """The index of the classes by block."""
    rows = []
    for z, y, x in product(range(0, label.shape[0], BLOCK), repeat=3):
        counts = count_block(label[z : z + BLOCK, y : y + BLOCK, x : x + BLOCK], CLASSES)
        rows.append([z, y, x, *counts.tolist()])
    return np.array(rows, np.int32)


def draw_volume(seed: int, side: int = SIDE) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """A scan and its labels, 1 where there is a sheet: a function of the seed."""
    random = np.random.default_rng([seed, side])
    sheets = np.zeros((side,) * 3, bool)
    for _ in range(side // 32):
        sheets |= _sheet(random, side)
    rest = np.zeros_like(sheets)
    for _ in range(max(2, round(9 * (side / 96) ** 2))):
        rest |= _tube(random, side)
    for _ in range(max(2, round(28 * (side / 96) ** 3))):
        _add_blob(rest, random, side)
    matter = torch.from_numpy(sheets | rest).float()[None] * (MATTER - AIR) + AIR
    noise = torch.from_numpy(random.standard_normal(sheets.shape, np.float32))[None] * NOISE
    scan = blur(matter + noise, (BLUR, BLUR, BLUR))[0]
    return scan.round().clamp(0, 255).to(torch.uint8).numpy(), sheets.astype(np.uint8)


def _sheet(random: np.random.Generator, side: int) -> Mask:
    """A wavy, tilted layer across the whole volume."""
    axis = int(random.integers(3))
    u, v = np.meshgrid(np.arange(side), np.arange(side), indexing="ij")
    height = random.uniform(0.1, 0.9) * side + random.uniform(-0.25, 0.25) * (u - side / 2)
    height = height + random.uniform(-0.25, 0.25) * (v - side / 2)
    for along in (u, v):
        period = random.uniform(0.5, 1.2) * side
        height = height + random.uniform(2, 7) * np.sin(2 * np.pi * (along / period + random.random()))
    half = random.uniform(1.3, 1.8)
    places = np.arange(side)[:, None, None]
    return np.moveaxis(np.abs(places - height[None]) < half, 0, axis)


def _tube(random: np.random.Generator, side: int) -> Mask:
    """A winding tube across the whole volume."""
    axis = int(random.integers(3))
    along = np.arange(side)
    centre = [
        random.uniform(0.1, 0.9) * side
        + random.uniform(-0.5, 0.5) * (along - side / 2)
        + random.uniform(2, 8) * np.sin(2 * np.pi * (along / (random.uniform(0.5, 1.5) * side) + random.random()))
        for _ in range(2)
    ]
    u, v = np.arange(side)[None, :, None], np.arange(side)[None, None, :]
    inside = (u - centre[0][:, None, None]) ** 2 + (v - centre[1][:, None, None]) ** 2 < random.uniform(4.0, 6.0) ** 2
    return np.moveaxis(inside, 0, axis)


def _add_blob(matter: Mask, random: np.random.Generator, side: int) -> None:
    """Add a ball."""
    radius = random.uniform(5.0, 9.0)
    centre = random.uniform(0, side, 3)
    low = np.maximum(np.floor(centre - radius).astype(int), 0)
    high = np.minimum(np.ceil(centre + radius).astype(int) + 1, side)
    z, y, x = np.ogrid[low[0] : high[0], low[1] : high[1], low[2] : high[2]]
    inside = (z - centre[0]) ** 2 + (y - centre[1]) ** 2 + (x - centre[2]) ** 2 < radius**2
    matter[low[0] : high[0], low[1] : high[1], low[2] : high[2]] |= inside
