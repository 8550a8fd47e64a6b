"""Fields that events pack into ``b``, as ``probe/events.py`` describes them."""

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


def batch_grad(waits: Events) -> NDArray[np.bool_]:
    """Whether gradients were enabled as the training thread took each batch."""
    return np.asarray((waits["b"] >> 62) & 1 == 1)


def transform_place(parts: Events) -> Ints:
    """Place of each TRANSFORM in its pipeline, counted from 0."""
    return np.asarray(parts["b"] >> 48, np.int64)


def transform_pixels(parts: Events) -> Ints:
    """Pixels that each TRANSFORM gave."""
    return np.asarray(parts["b"] & ((1 << 48) - 1), np.int64)


def array_bytes(reads: Events) -> Ints:
    """Bytes of the array of each ARRAY_READ."""
    return np.asarray(reads["b"] & ((1 << 48) - 1), np.int64)


def array_sides(reads: Events) -> Ints:
    """Sides of 8 or more values of the array of each ARRAY_READ."""
    return np.asarray(reads["b"] >> 48, np.int64)


def lock_state(looks: Events) -> Ints:
    """What the training thread did at each LOCK: 0 runs, 1 waits for the interpreter lock, 2 is blocked, 3 unknown."""
    return np.asarray(looks["b"] & 3, np.int64)


def other_threads_ns(looks: Events) -> Ints:
    """CPU time of the process's other Python threads up to each LOCK, since the one before."""
    return np.asarray(looks["b"] >> 2, np.int64)
