"""What another queue between workers and training would give: the recorded batches, simulated twice."""

from __future__ import annotations

import numpy as np

from flatout.diagnose.view import View
from flatout.predict.pipeline import Pipeline
from flatout.predict.rate_model import own_handover_s
from flatout.predict.simulation import Costs, Settings, simulate

STEPS = 2000
SEEDS = 5


def supply_factor(
    view: View, now: Pipeline, *, prefetch_factor: int | None = None, in_order: bool | None = None
) -> float | None:
    """Batches a second with another queue over those with the queue as it is, both simulated.

    Args:
        view: the measured run; its fetches are drawn from in blocks.
        now: the pipeline fitted to it.
        prefetch_factor: another depth; None: as it is.
        in_order: another order of delivery; None: as it is.

    Returns:
        The mean over some draws; None without workers or without the kernel's counters of the fetches.
    """
    loading = view.loading
    if loading is None or not loading.num_workers or loading.fetch_cpu_s is None or loading.fetch_blocked_s is None:
        return None
    main_cpu_s = min(now.main_cpu_s, now.busy_s)
    own_s = min(own_handover_s(loading), now.handover_s)
    costs = Costs(
        fetch_cpu_s=loading.fetch_cpu_s,
        fetch_blocked_s=loading.fetch_blocked_s,
        step_cpu_s=main_cpu_s,
        step_other_s=max(now.busy_s - now.queue_s - main_cpu_s, 0.0),
        handover_s=own_s,
        answer_s=now.answer_s,
    )
    rates = []
    for depth, ordered in (
        (loading.prefetch_factor or 2, loading.in_order),
        (prefetch_factor or loading.prefetch_factor or 2, loading.in_order if in_order is None else in_order),
    ):
        settings = Settings(
            num_workers=loading.num_workers,
            prefetch_factor=depth,
            in_order=ordered,
            cores=now.cores or float("inf"),
            one_lock=now.locked,
        )
        rates.append(np.mean([simulate(costs, settings, STEPS, seed).rate_bps for seed in range(SEEDS)]))
    return float(rates[1] / rates[0])
