"""Chunks of volumes for patches of a size, and what reading a patch out of chunks costs.

Chunks are a quarter of the patch: a patch of edge p drawn anywhere touches ((1 + (p−1)/c)·c/p)³ times its voxels in
chunks of edge c, 1.9x for c = p/4 and 7.9x for c = p, while small chunks cost a call each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

Triple = tuple[int, int, int]

SMALLEST_CHUNK, LARGEST_CHUNK = 16, 64


def chunk_edge(patch: Sequence[int]) -> int:
    """The chunk's edge for patches of this size, voxels: the power of two next below a quarter of the mean edge."""
    mean = math.prod(patch) ** (1 / 3)
    quarter = 1 << int(math.log2(max(mean / 4, 1)) + 1e-9)
    return min(max(quarter, SMALLEST_CHUNK), LARGEST_CHUNK)


def touched_ratio(patch: Sequence[int], chunk: Sequence[int]) -> float:
    """Voxels in the chunks that a patch at a random place touches, per voxel of the patch."""
    return math.prod((1 + (p - 1) / c) * c / p for p, c in zip(patch, chunk, strict=True))
