"""Where a run's warm-up ends."""

import numpy as np

from flatout.compare.steady import warm_up


def test_slow_first_steps_are_cut() -> None:
    steps = np.concatenate([np.full(12, 0.9), np.full(68, 0.1)]) * np.random.default_rng(0).normal(1, 0.02, 80)
    assert 10 <= warm_up(steps) <= 15


def test_a_steady_run_keeps_nearly_everything_and_a_short_one_all() -> None:
    random = np.random.default_rng(1)
    cuts = [warm_up(random.normal(0.1, 0.01, 100)) for _ in range(50)]
    assert np.median(cuts) <= 15 and max(cuts) <= 50
    assert warm_up(np.full(12, 0.1)) == 0
