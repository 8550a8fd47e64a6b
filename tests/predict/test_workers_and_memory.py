"""How many workers are enough, how deep their queue, and what they hold in host memory."""

from __future__ import annotations

import numpy as np
import pytest

from flatout.measure.measured_run import MeasuredRun
from flatout.predict.host_memory import added_bytes
from flatout.predict.rate_model import RateModel, fit
from flatout.predict.workers import enough_prefetch, enough_workers, most_workers
from tests.diagnose.views import healthy, locked, remote, saturated, starved, without_workers


def model_of(view: MeasuredRun) -> RateModel:
    model = fit(view)
    assert model is not None
    return model


def enough(view: MeasuredRun) -> int:
    return enough_workers(view, model_of(view))


def test_the_step_over_the_fetch_gives_the_number_of_workers() -> None:
    assert enough(starved()) == 5  # a fetch of 50 ms for each step of 10 ms


def test_workers_beyond_the_cores_are_not_suggested_for_cpu_work() -> None:
    assert enough(starved(cores=2, main_cores=0.0)) == 2


def test_latency_asks_for_more_workers_than_cores() -> None:
    assert enough(remote(cores=2)) > 2


def test_full_cores_ask_for_no_more_workers() -> None:
    assert enough(saturated()) == 2


def test_a_lock_asks_for_no_more_workers() -> None:
    assert enough(locked()) <= 4


def test_free_memory_bounds_the_workers() -> None:
    view = starved(usage={"main_cores": 0.1, "worker_bytes": 1_000_000_000, "available_bytes": 4_000_000_000})
    assert most_workers(view) == 3
    assert enough(view) == 3


def test_free_shared_memory_bounds_the_workers() -> None:
    view = starved(usage={"main_cores": 0.1, "shm_free_bytes": 64_000_000}, batch_bytes=16_000_000)
    assert most_workers(view) == 3  # two more workers hold four batches


def test_a_slow_hundredth_of_the_batches_asks_for_a_deeper_queue() -> None:
    uneven = np.where(np.arange(200) % 20 == 0, 0.5, 0.03)
    view = starved(fetch_s=uneven, num_workers=4)
    assert (
        enough_prefetch(view, model_of(view), 4) == 11
    )  # 4 workers of 50 ms allow a step each 12.5 ms: ceil(0.5 s / 12.5 ms) + 1 batches
    assert enough_prefetch(healthy(), model_of(healthy()), 4) == 2


def test_memory_of_more_workers_counts_the_workers_and_their_queues() -> None:
    view = starved(usage={"worker_bytes": 500_000_000}, batch_bytes=10_000_000)
    assert added_bytes(view, 4, None) == 3 * 500_000_000 + 3 * 2 * 10_000_000
    assert added_bytes(view, 1, 4) == 2 * 10_000_000


def test_memory_is_unknown_rather_than_zero_when_a_part_was_not_measured() -> None:
    assert added_bytes(starved(), 4, None) is None
    assert added_bytes(starved(usage={"worker_bytes": 1}, batch_bytes=None), 4, None) is None
    assert added_bytes(starved(), 1, None) == 0


def test_batches_in_flight_have_the_size_that_case_a_reports() -> None:
    uint8, workers, prefetch = 256 * 3 * 224 * 224, 16, 4
    view = without_workers(usage={"worker_bytes": 0}, batch_bytes=uint8)
    assert added_bytes(view, workers, prefetch) == pytest.approx(2.5e9, rel=0.02)
