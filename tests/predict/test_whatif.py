"""Other settings of a recorded run's loader, simulated."""

from __future__ import annotations

import numpy as np
import pytest

from flatout.measure.measured_run import MeasuredRun
from flatout.predict.rate_model import fit
from flatout.predict.whatif import Wanted, WhatIf
from flatout.remedies.queue import best_queue
from tests.diagnose.views import healthy, starved, with_loader


def counted(blocked_s: float, cpu_s: float, workers: int = 2, spread: float = 0.02) -> MeasuredRun:
    """A starved run whose fetches have the kernel's counters."""
    view = starved()
    assert view.loading is not None
    random = np.random.default_rng(0)
    count = len(view.loading.fetch.wall_s)
    blocked = blocked_s * random.normal(1, spread, count).clip(0.5)
    cpu = cpu_s * random.normal(1, spread, count).clip(0.5)
    step = np.full(count, (blocked_s + cpu_s) / workers)
    return with_loader(
        view,
        num_workers=workers,
        fetch_s=blocked + cpu,
        fetch_cpu_s=cpu,
        fetch_blocked_s=blocked,
        fetch_process_cpu_s=cpu,
        fetch_runqueue_s=np.zeros(count),
        whole_step_s=step,
        batch_size=8,
    )


def simulated(view: MeasuredRun) -> WhatIf:
    model = fit(view)
    assert model is not None
    return WhatIf(view, model)


def test_no_change_gives_exactly_the_rate_as_it_is() -> None:
    gain = simulated(counted(0.4, 0.01)).gain(Wanted())
    assert (gain.low, gain.predicted, gain.high) == pytest.approx((1, 1, 1), abs=0.04)


def test_twice_the_workers_fetch_twice_as_much_where_they_are_blocked() -> None:
    whatif = simulated(counted(0.4, 0.002))
    gain = whatif.gain(Wanted(num_workers=4))
    assert 1.8 < gain.predicted < 2.1 and gain.low < gain.predicted < gain.high
    assert whatif.gain(Wanted(blocked_factor=2.0)).predicted == pytest.approx(0.5, rel=0.06)
    assert whatif.gain(Wanted(blocked_factor=0.5)).predicted == pytest.approx(2.0, rel=0.1)


def test_a_larger_batch_gives_a_blocked_run_nothing() -> None:
    gain = simulated(counted(0.4, 0.002)).gain(Wanted(batch_size=16))
    assert gain.predicted == pytest.approx(1.0, abs=0.05)


def test_uneven_batches_gain_by_passing_each_other_or_by_a_deeper_queue() -> None:
    view = counted(0.1, 0.001, workers=4)
    assert view.loading is not None and view.loading.fetch.blocked_s is not None
    blocked = view.loading.fetch.blocked_s.copy()
    blocked[::11] *= 12
    whatif = simulated(with_loader(view, fetch_blocked_s=blocked))
    assert whatif.gain(Wanted(prefetch_factor=8)).predicted > 1.05
    assert whatif.gain(Wanted(in_order=False)).predicted > 1.05


def test_the_best_queue_is_the_smallest_that_nearly_reaches_the_best_rate() -> None:
    whatif = simulated(counted(0.4, 0.002))
    workers, depth = best_queue(whatif, most=4, depth_now=2)
    assert (workers, depth) == (4, 2)


def test_without_the_kernel_s_counters_nothing_is_simulated() -> None:
    view = healthy()
    assert view.loading is not None
    model = fit(view)
    assert model is not None
    with pytest.raises(ValueError, match="were not counted"):
        WhatIf(with_loader(view, fetch_cpu_s=None), model)


@pytest.mark.parametrize("cpu_s", [0.002, 0.1])
def test_the_best_queue_is_that_of_a_search_without_bounds(cpu_s: float) -> None:
    whatif = simulated(counted(0.1, cpu_s, spread=0.3))
    pairs = [
        Wanted(num_workers=workers, prefetch_factor=depth) for workers in (1, 2, 3, 4, 6, 8) for depth in (2, 4, 8)
    ]
    rates = {(pair.num_workers, pair.prefetch_factor): whatif.rate(pair) for pair in pairs}
    assert all(whatif.bound(pair) >= whatif.rate(pair) * (1 - 1e-9) for pair in pairs)
    first = min(pair for pair, rate in rates.items() if rate >= 0.98 * max(rates.values()))
    assert best_queue(whatif, most=8, depth_now=2) == first
