"""Fields that events pack into ``b``; the probe packs them in ``batch_bits`` and ``transform_bits``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flatout.record.events import Events

Ints = NDArray[np.int64]


def batch_samples(waits: Events) -> Ints:
    """Samples in the batch of each BATCH_WAIT; 0: not measured."""
    return np.asarray(waits["b"] & 0xFFFFFFFF, np.int64)


def batch_worker(waits: Events) -> Ints:
    """Worker id that each BATCH_WAIT waited for; -1: unknown, or no workers."""
    return np.asarray(((waits["b"] >> 32) & 0xFFFF) - 1, np.int64)


def batches_ready(waits: Events) -> Ints:
    """Batches that were ready when each BATCH_WAIT began."""
    return np.asarray((waits["b"] >> 48) & 0x3FFF, np.int64)


def transform_place(parts: Events) -> Ints:
    """Place of each TRANSFORM in its pipeline, counted from 0."""
    return np.asarray(parts["b"] >> 48, np.int64)


def transform_pixels(parts: Events) -> Ints:
    """Pixels that each TRANSFORM gave."""
    return np.asarray(parts["b"] & ((1 << 48) - 1), np.int64)
