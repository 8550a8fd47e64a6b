"""What the probe packs into ``b`` of an event, the reader unpacks."""

from __future__ import annotations

import numpy as np
import pytest

from flatout.probe import events as layout
from flatout.record.events import EVENT_DTYPE
from flatout.record.packed_fields import (
    batch_samples,
    batch_worker,
    batches_ready,
    transform_pixels,
    transform_place,
)


def event(b: int) -> np.ndarray:
    one = np.zeros(1, EVENT_DTYPE)
    one["b"] = b
    return one


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize(("samples", "worker", "ready"), [(0, -1, 0), (256, 0, 7), ((1 << 32) - 1, 0xFFFE, 0x3FFF)])
def test_a_batch_wait_is_unpacked_as_it_was_packed(samples: int, worker: int, ready: int, grad: bool) -> None:
    waits = event(layout.batch_bits(samples, worker, ready, grad))
    assert batch_samples(waits).tolist() == [samples]
    assert batch_worker(waits).tolist() == [worker]
    assert batches_ready(waits).tolist() == [ready]


def test_more_ready_batches_than_fit_are_the_most_that_fit() -> None:
    waits = event(layout.batch_bits(8, 3, 1 << 20, True))
    assert batches_ready(waits).tolist() == [0x3FFF]
    assert (batch_samples(waits).tolist(), batch_worker(waits).tolist()) == ([8], [3])


@pytest.mark.parametrize(("pixels", "place"), [(0, 0), (224 * 224, 3), ((1 << 40), 900)])
def test_a_transform_is_unpacked_as_it_was_packed(pixels: int, place: int) -> None:
    parts = event(layout.transform_bits(pixels, place))
    assert (transform_pixels(parts).tolist(), transform_place(parts).tolist()) == ([pixels], [place])
