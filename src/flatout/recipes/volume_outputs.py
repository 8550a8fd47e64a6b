"""Predicted labels of a volume, written plane by plane to zarr or npy; a prediction that was stopped goes on."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flatout.atomic_file import write_atomically
from flatout.errors import UsageError
from flatout.recipes.volume_predicting import Segmenter, labels_of
from flatout.segmentation.sliding_window import Volume

PLANES = 64  # of a shard: planes are written by this many, so that no shard is written twice
SHARD_SIDE, CHUNK = 256, 32  # voxels: what ``flatout stage --volumes`` writes, too
SUFFIXES = (".zarr", ".npy")
_ATTRIBUTE = "flatout_prediction"  # of a .zarr: which networks saw what


def predict_volume(
    segmenter: Segmenter,
    volume: Volume,
    output: Path,
    *,
    batch: int | None = None,
    options: str = "",
    force: bool = False,
    progress: Callable[[int, int], None] = lambda done, planes: None,
) -> int:
    """Write the most probable class of each voxel, uint8.

    While it runs, the result lies under a name of its own beside a note of the planes that are done; it gets its name
    when it is complete. The memory is that of one slab of patches, whatever the volume. A complete .zarr by the same
    networks is left as it is.

    Args:
        segmenter: the networks.
        volume: what they look at.
        output: ends in .zarr or .npy; a .zarr of an earlier prediction is replaced.
        batch: patches at once; None: as in training.
        options: what else the result depends on, such as the volume's content: one with others does not go on.
        force: replace whatever has the output's name.
        progress: called with the planes done and their number.

    Returns:
        Planes that were found done.

    Raises:
        UsageError: the output's name has another ending, other data have it, or it cannot be written.
    """
    check_output_name(output)
    z, y, x = (int(side) for side in volume.shape)
    unfinished = output.with_name(f".{output.name}.unfinished")
    note = output.with_name(f".{output.name}.progress.json")
    identity = _identity(segmenter, (z, y, x), options)
    made_by = _prediction(output)
    if made_by == identity and not force:
        return z
    if output.exists() and made_by is None and not force:
        raise UsageError(
            f"--output {output}: is there already, and is no .zarr that flatout predicted: give another name, or"
            " --force"
        )
    try:
        done = _planes_done(note, identity, unfinished)
        array = _opened(unfinished, (z, y, x), identity, fresh=not done)
        waiting: list[NDArray[np.uint8]] = []
        first = done
        for planes in segmenter.slide(volume, first=done, batch=batch):
            waiting.append(labels_of(planes).numpy())
            until = planes.first + waiting[-1].shape[0]
            ready = until if until == z else until // PLANES * PLANES
            if ready > first:
                made = np.concatenate(waiting)
                array[first:ready] = made[: ready - first]
                if isinstance(array, np.memmap):
                    array.flush()
                waiting = [made[ready - first :]]
                first = ready
                write_atomically(note, json.dumps({"identity": identity, "planes": first}))
                progress(first, z)
        del array
        if output.is_dir() and not output.is_symlink():
            shutil.rmtree(output)
        unfinished.replace(output)
        note.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(
            f"--output {output}: it cannot be written ({error.strerror or error}): give another folder or name"
        ) from None
    return done


def check_output_name(output: Path) -> None:
    """Check the ending of an output.

    Raises:
        UsageError: it is none that can be written.
    """
    if output.suffix not in SUFFIXES:
        raise UsageError(f"--output {output}: give a name that ends in {' or '.join(SUFFIXES)}")
    if not output.parent.is_dir():
        raise UsageError(f"--output {output}: its folder does not exist")


def _identity(segmenter: Segmenter, shape: tuple[int, int, int], options: str) -> str:
    digest = hashlib.sha256(json.dumps([shape, segmenter.recipe.patches.overlap, options]).encode())
    for path in segmenter.checkpoints:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _planes_done(note: Path, identity: str, unfinished: Path) -> int:
    """Planes of an earlier prediction by the same networks; 0: begin anew."""
    try:
        found = json.loads(note.read_text("utf-8"))
        return int(found["planes"]) if found["identity"] == identity and unfinished.exists() else 0
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def _prediction(output: Path) -> str | None:
    """The identity of the prediction that a .zarr is; None: it is none."""
    try:
        return str(json.loads((output / "zarr.json").read_text("utf-8"))["attributes"][_ATTRIBUTE])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _opened(path: Path, shape: tuple[int, int, int], identity: str, *, fresh: bool) -> Any:
    if ".npy" in path.suffixes:
        mode: Any = "w+" if fresh else "r+"
        return np.lib.format.open_memmap(path, mode, np.uint8, shape) if fresh else np.load(path, mmap_mode=mode)
    import zarr

    if not fresh:
        return zarr.open_array(path, mode="r+")
    _, height, width = shape
    shards = (PLANES, *(min(SHARD_SIDE, -(-side // CHUNK) * CHUNK) for side in (height, width)))
    return zarr.create_array(
        path,
        shape=shape,
        dtype="uint8",
        chunks=(CHUNK,) * 3,
        shards=shards,
        attributes={_ATTRIBUTE: identity},
        overwrite=True,
    )
