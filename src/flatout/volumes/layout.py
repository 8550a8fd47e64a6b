"""How a volume lies on disk: zarr v3 with shards (files) of chunks (what is read at once)."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flatout.errors import UsageError
from flatout.formats.volume_chunks import Triple, chunk_edge

METADATA = "zarr.json"
SHARD_EDGE = 256  # voxels: 16 MiB of uint8, few enough files for any file system
NONE, ZSTD = "none", "zstd"
DTYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "float16", "float32", "float64")
_FLATOUT = "flatout"  # key of our attributes


@dataclass(frozen=True)
class Layout:
    """A volume's shape and its files; all sizes in voxels, axes z, y, x.

    Attributes:
        codec: ``none`` or ``zstd``: what packs a chunk.
        level: of zstd.
        spacing: distance of voxels along z, y, x, in the source's unit (mm mostly).
        every_shard: a shard that is missing is a loss, not empty space.
    """

    shape: Triple
    dtype: np.dtype[Any]
    chunk: Triple
    shard: Triple
    codec: str = NONE
    level: int = 3
    spacing: tuple[float, float, float] = (1.0, 1.0, 1.0)
    every_shard: bool = True

    @classmethod
    def of(cls, shape: Triple, dtype: np.dtype[Any], patch: Triple, **more: Any) -> Layout:
        """The layout for reading patches of this size."""
        edge = chunk_edge(patch)
        # A shard is no larger than the volume, rounded up to chunks.
        shard = tuple(min(-(-SHARD_EDGE // edge) * edge, -(-size // edge) * edge) for size in shape)
        return cls(shape, np.dtype(dtype), (edge, edge, edge), (shard[0], shard[1], shard[2]), **more)

    @property
    def grid(self) -> Triple:
        """Number of shards along each axis."""
        z, y, x = (-(-size // edge) for size, edge in zip(self.shape, self.shard, strict=True))
        return z, y, x

    @property
    def chunks_per_shard(self) -> Triple:
        """Number of chunks of a shard along each axis."""
        z, y, x = (s // c for s, c in zip(self.shard, self.chunk, strict=True))
        return z, y, x

    @property
    def chunk_bytes(self) -> int:
        """Size of an unpacked chunk."""
        return math.prod(self.chunk) * self.dtype.itemsize

    @property
    def unpacked_bytes(self) -> int:
        """Size of all chunks that hold voxels, unpacked: chunks at a border are whole."""
        chunks = (-(-size // edge) for size, edge in zip(self.shape, self.chunk, strict=True))
        return math.prod(chunks) * self.chunk_bytes

    def filled(self, place: Triple) -> Triple:
        """Number of chunks along each axis that hold voxels of the volume in the shard at ``place``."""
        z, y, x = (
            min(-(-(size - at * shard) // chunk), shard // chunk)
            for size, at, shard, chunk in zip(self.shape, place, self.shard, self.chunk, strict=True)
        )
        return z, y, x

    def as_zarr(self) -> dict[str, Any]:
        """The content of ``zarr.json``: readable by every implementation of zarr v3 with sharding."""
        inner: list[dict[str, Any]] = [{"name": "bytes", "configuration": {"endian": "little"}}]
        if self.codec == ZSTD:
            inner.append({"name": "zstd", "configuration": {"level": self.level, "checksum": False}})
        sharding = {
            "chunk_shape": list(self.chunk),
            "codecs": inner,
            "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
            "index_location": "end",
        }
        return {
            "zarr_format": 3,
            "node_type": "array",
            "shape": list(self.shape),
            "data_type": self.dtype.name,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(self.shard)}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": 0.0 if self.dtype.kind == "f" else 0,
            "codecs": [{"name": "sharding_indexed", "configuration": sharding}],
            "attributes": {_FLATOUT: {"spacing": list(self.spacing), "every_shard": True}},
            "dimension_names": ["z", "y", "x"],
        }

    def shard_path(self, folder: Path, place: Triple) -> Path:
        """The file of the shard at this place of the grid."""
        return folder / "c" / str(place[0]) / str(place[1]) / str(place[2])


def read_layout(folder: Path) -> Layout | None:
    """The layout of a zarr array that the patch reader knows; None for other layouts.

    Raises:
        UsageError: the metadata cannot be read, or is no array's.
    """
    try:
        found = json.loads((folder / METADATA).read_text())
        if found["node_type"] != "array":
            raise UsageError(f"{folder}: it is a group of zarr, not an array: name the array in it")
        (sharding,) = found["codecs"]
        inner = sharding["configuration"]["codecs"]
        index = sharding["configuration"]["index_codecs"]
        names = [codec["name"] for codec in inner]
        shape, chunk = tuple(found["shape"]), tuple(sharding["configuration"]["chunk_shape"])
        shard = tuple(found["chunk_grid"]["configuration"]["chunk_shape"])
        keys = found["chunk_key_encoding"]
        known = (
            sharding["name"] == "sharding_indexed"
            and len(shape) == len(chunk) == len(shard) == 3
            and names in (["bytes"], ["bytes", "zstd"])
            and inner[0].get("configuration", {}).get("endian", "little") == "little"
            and [codec["name"] for codec in index] == ["bytes", "crc32c"]
            and sharding["configuration"].get("index_location", "end") == "end"
            and (keys["name"], keys.get("configuration", {}).get("separator", "/")) == ("default", "/")
            and found["data_type"] in DTYPES
            and found.get("fill_value", 0) == 0
            and all(s % c == 0 for s, c in zip(shard, chunk, strict=True))
        )
    except OSError as error:
        raise UsageError(
            f"{folder}: {METADATA} cannot be read ({error.strerror}): give the folder of an array"
        ) from None
    except (ValueError, KeyError, TypeError, IndexError):
        return None
    if not known:
        return None
    ours = found.get("attributes", {}).get(_FLATOUT, {})
    return Layout(
        shape,
        np.dtype(found["data_type"]),
        chunk,
        shard,
        ZSTD if len(names) == 2 else NONE,
        spacing=tuple(ours.get("spacing", (1.0, 1.0, 1.0))),
        every_shard=ours.get("every_shard", False),
    )
