"""What other processes' use of the cores means for runs that are compared."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from flatout.compare.speed import Speed
from flatout.measure.crowding import MATERIAL_CORES, Contention
from flatout.units import of_cores


def crowded(contention: Sequence[Contention | None]) -> str:
    """One sentence; empty: no run had other processes to compete with, as far as it was measured.

    Args:
        contention: of each run.
    """
    known = sorted(one.contending_cores for one in contention if one is not None)
    if not known or known[-1] < MATERIAL_CORES:
        return ""
    least, usual, most = known[0], statistics.median(known), known[-1]
    used = of_cores(usual)
    if usual < MATERIAL_CORES:
        used = f"up to {of_cores(most)} in some runs"
    elif f"{least:.2g}" != f"{most:.2g}":
        used += f", {least:.2g} to {most:.2g} from run to run"
    return (
        f"Other processes used {used}, while no core was idle: "
        "rates depend on that, so measure again on a quiet machine."
    )


def uneven_log(pairs: Sequence[tuple[Speed, Speed]]) -> float:
    """Logarithm of the factor between B and A that other processes alone can have made, at most.

    A training of one thread is slowed in proportion to the cores that others take from it, at most: of two cores, one
    that is used by others in the runs of A alone may make B twice as fast. An operator of several threads ends with the
    last of them, and each may wait for its core: by the square of that (steps of small operators took 7 times as long
    beside 1.3 of 2 used cores). Pairs in which others had no material part of the cores, and those in which it was not
    measured, count as even.

    Args:
        pairs: runs of A and of B that were taken in turn.

    Returns:
        Above 0: others left the runs of B more cores.
    """
    return statistics.fmean(_of_pair(a, b) for a, b in pairs)


def _of_pair(one: Speed, other: Speed) -> float:
    a, b = one.contention, other.contention
    if a is None or b is None or max(a.contending_cores, b.contending_cores) < MATERIAL_CORES:
        return 0.0
    several = max(one.threads or 1, other.threads or 1) > 1
    return (2 if several else 1) * math.log(b.left_cores / a.left_cores)
