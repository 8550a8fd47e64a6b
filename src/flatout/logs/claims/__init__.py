"""The checks of what a log claims: a flat list of small functions, each from facts to verdicts."""

from __future__ import annotations

from collections.abc import Callable

from flatout.logs.claims.copying import copy_as_planned, copy_rate
from flatout.logs.claims.counts import bar_counts, trainer_totals
from flatout.logs.claims.factors import (
    factor_product,
    larger_batch,
    more_workers,
    options,
    table_rows,
    waiting_bound,
)
from flatout.logs.claims.learning import at_chance
from flatout.logs.claims.machine import assumed_settings, devices
from flatout.logs.claims.memory import batches_in_flight, device_memory_of_batch
from flatout.logs.claims.rates import (
    duration_of_epochs,
    elapsed_and_epochs,
    rate_times_time,
    rates_across_batch_sizes,
)
from flatout.logs.claims.speed_ups import measured_speed_up, stated_speed_up
from flatout.logs.claims.verdict import Claim
from flatout.logs.facts import FileFacts

Check = Callable[[FileFacts, list[FileFacts]], list[Claim]]
# Each sees one file, and the other files that are read with it.
CHECKS: tuple[Check, ...] = (
    rate_times_time,
    bar_counts,
    trainer_totals,
    duration_of_epochs,
    elapsed_and_epochs,
    rates_across_batch_sizes,
    factor_product,
    waiting_bound,
    more_workers,
    larger_batch,
    options,
    table_rows,
    measured_speed_up,
    stated_speed_up,
    copy_rate,
    copy_as_planned,
    batches_in_flight,
    device_memory_of_batch,
    at_chance,
    devices,
    assumed_settings,
)
MOST = 200


def check_claims(files: list[FileFacts]) -> list[Claim]:
    """All verdicts, file by file."""
    found: list[Claim] = []
    for facts in files:
        others = [other for other in files if other is not facts]
        for check in CHECKS:
            found += check(facts, others)
    return found[:MOST]


__all__ = ["CHECKS", "Claim", "check_claims"]
