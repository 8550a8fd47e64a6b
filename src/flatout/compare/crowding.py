"""What to say of runs beside which other processes used the cores."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from flatout.measure.crowding import MATERIAL_CORES
from flatout.units import of_cores


def crowded(contending: Sequence[float | None]) -> str:
    """One sentence; empty: no run had other processes to compete with, as far as it was measured.

    Args:
        contending: of each run, the mean cores that other processes used while none was idle.
    """
    known = sorted(cores for cores in contending if cores is not None)
    if not known or known[-1] < MATERIAL_CORES:
        return ""
    span = f", {known[0]:.2g} to {known[-1]:.2g} from run to run" if len(known) > 1 else ""
    return (
        f"Other processes used {of_cores(statistics.median(known))}{span}, while no core was idle: "
        "rates depend on that, so measure again on a quiet machine."
    )
