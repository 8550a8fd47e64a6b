"""The simulated pipeline: laws that it must keep, and what means alone get wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flatout.predict.rate_model import fit
from flatout.predict.simulation import Costs, Settings, least_seconds, simulate
from flatout.predict.whatif import Wanted, WhatIf
from tests.diagnose.views import healthy, make_view

STEPS = 3000


def costs(cpu: float = 0.0, blocked: Any = 0.0, step: float = 0.001, **more: float) -> Costs:
    waits = np.broadcast_to(np.asarray(blocked, float), (1000,))
    return Costs(fetch_cpu_s=np.full(1000, cpu), fetch_blocked_s=waits, step_cpu_s=step, **more)


def rate(given: Costs, **chosen: Any) -> float:
    return simulate(given, Settings(**{"num_workers": 2, **chosen}), STEPS, seed=1).batches_per_s


def skewed(slow_s: float = 1.0, every: int = 100) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.where(np.arange(1000) % every == 7, slow_s, 0.020)


@pytest.mark.parametrize(
    ("given", "chosen", "expected"),
    [
        (costs(cpu=0.020, step=0.005), {"num_workers": 0}, 1 / 0.025),
        (costs(cpu=0.020, step=0.005), {"num_workers": 2}, 100),  # the workers
        (costs(cpu=0.020, step=0.005), {"num_workers": 8, "cores": 4}, 4 / 0.025),  # the cores
        (costs(cpu=0.001, step=0.005), {"num_workers": 2}, 200),  # the training
        (costs(cpu=0.001, step=0.005, step_other_s=0.005), {}, 100),  # a device
        (costs(cpu=0.001, step=0.005, handover_s=0.005), {}, 100),
        (costs(blocked=0.020), {"num_workers": 4, "one_lock": True}, 50),  # a lock, whatever the workers
        (costs(blocked=0.020), {"num_workers": 4}, 200),
        (costs(cpu=0.001, step=0.005, epoch_s=0.25), {"epoch_batches": 50}, 100),
    ],
)
def test_even_batches_run_at_the_bound_that_is_least(given: Costs, chosen: dict[str, Any], expected: float) -> None:
    assert rate(given, **chosen) == pytest.approx(expected, rel=0.02)


def test_new_workers_for_every_epoch_are_waited_for() -> None:
    given = costs(cpu=0.001, step=0.005, worker_start_s=0.25)
    kept = rate(given, epoch_batches=50)
    anew = rate(given, epoch_batches=50, persistent_workers=False)
    assert kept == pytest.approx(200, rel=0.02) and anew == pytest.approx(100, rel=0.05)


def test_slow_batches_hold_up_the_others_unless_these_may_pass_or_the_queue_is_deep() -> None:
    """The mean supply of 4 workers is 134 batches/s, the training takes 91: means see no loss."""
    given = costs(cpu=1e-4, blocked=skewed(), step=0.001, step_other_s=0.010)
    ordered = rate(given, num_workers=4, cores=8)
    deep = rate(given, num_workers=4, cores=8, prefetch_factor=16)
    passing = rate(given, num_workers=4, cores=8, in_order=False)
    assert ordered < 0.6 * 91
    assert ordered < deep < passing
    assert passing == pytest.approx(91, rel=0.1)


def test_a_busy_worker_answers_late() -> None:
    idle = rate(costs(cpu=0.001, step=0.010, worker_busy_delay_s=0.005))
    busy = rate(costs(cpu=0.019, step=0.010, worker_busy_delay_s=0.005))
    assert idle > busy


def test_the_same_seed_gives_the_same_run_and_another_one_another() -> None:
    given, chosen = costs(blocked=skewed()), Settings(num_workers=2)
    assert simulate(given, chosen, 500, 3) == simulate(given, chosen, 500, 3)
    assert simulate(given, chosen, 500, 3) != simulate(given, chosen, 500, 4)


@settings(max_examples=60, deadline=None)
@given(
    workers=st.integers(1, 6),
    prefetch=st.integers(1, 6),
    cores=st.floats(0.5, 8),
    cpu=st.floats(1e-4, 0.05),
    blocked=st.floats(0, 0.05),
    step=st.floats(1e-4, 0.02),
    epoch=st.one_of(st.none(), st.integers(1, 60)),
    ordered=st.booleans(),
)
def test_no_setting_beats_the_bounds_or_loses_a_batch(
    workers: int, prefetch: int, cores: float, cpu: float, blocked: float, step: float, epoch: int | None, ordered: bool
) -> None:
    chosen = Settings(num_workers=workers, prefetch_factor=prefetch, in_order=ordered, cores=cores, epoch_batches=epoch)
    run = simulate(costs(cpu=cpu, blocked=blocked, step=step), chosen, 200)
    assert run.batches == 200
    assert 0 <= run.waited_s <= run.seconds * (1 + 1e-9)
    assert 0 <= run.mean_ready <= workers * prefetch
    bound = min(workers / (cpu / min(cores, 1) + blocked), cores / (cpu + step), 1 / step)
    assert run.batches_per_s <= bound * (1 + 1e-9)


@pytest.mark.parametrize(("steps", "workers"), [(0, 1), (10, -1)])
def test_what_cannot_be_simulated_is_refused(steps: int, workers: int) -> None:
    with pytest.raises(ValueError, match="cannot simulate"):
        simulate(costs(), Settings(num_workers=workers), steps)


def test_a_recorded_run_is_simulated_with_another_queue() -> None:
    view = make_view(
        wait=0.010,
        busy={"forward": 0.010},
        num_workers=4,
        cores=8,
        cpu=1e-4,
        fetch=0.030,
        fetch_blocked_s=skewed()[:200],
    )
    model = fit(view)
    assert model is not None
    whatif = WhatIf(view, model)
    deeper = whatif.gain(Wanted(prefetch_factor=16)).predicted
    passing = whatif.gain(Wanted(in_order=False)).predicted
    assert whatif.gain(Wanted(prefetch_factor=2)).predicted == 1.0
    assert 1.2 < deeper <= passing * 1.05
    even = healthy()
    even_model = fit(even)
    assert even_model is not None
    assert WhatIf(even, even_model).gain(Wanted(in_order=False)).predicted == pytest.approx(1.0, abs=0.01)


def test_slow_batches_that_fall_to_one_worker_stay_with_it() -> None:
    """Every twelfth batch is slow, and four workers take turns: one of them makes all the slow ones."""
    one = costs(cpu=1e-4, blocked=np.where(np.arange(1000) % 12 == 0, 0.7, 0.016), step_other_s=0.012)
    assert rate(one, num_workers=4, cores=8) == pytest.approx(12 / (0.7 + 2 * 0.016), rel=0.05)
    assert rate(one, num_workers=4, cores=8, in_order=False) > 2 * 12 / (0.7 + 2 * 0.016)


@pytest.mark.parametrize("chosen", [{}, {"num_workers": 4, "cores": 1}, {"num_workers": 3, "one_lock": True}])
def test_no_run_is_shorter_than_the_least(chosen: dict[str, Any]) -> None:
    given = costs(cpu=0.010, blocked=skewed(0.2), step=0.004, step_other_s=0.002, handover_s=0.001)
    settings = Settings(**{"num_workers": 2, **chosen})
    least = least_seconds(given, settings, STEPS, seed=1)
    assert least <= simulate(given, settings, STEPS, seed=1).seconds
    assert least >= STEPS * 0.007
