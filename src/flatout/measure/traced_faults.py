"""Page faults that tracing adds to a step's operators, taken out of their time.

The profiler takes memory for its events from the heaps that tensors come from. A heap that was large enough may then
end in each step, and what is freed goes back to the kernel: a traced step took 171 ms instead of 20, all of it in fills
of new tensors, whose pages the kernel zeroed first.
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from flatout.measure.operator_costs import Cost
from flatout.measure.page_faults import MOST_S_PER_BYTE, PageFaults
from flatout.measure.roofline import Ceilings
from flatout.measure.timeline import Floats, Ints

_FILLS = ("aten::fill_", "aten::zero_")  # in place, mostly of what was just allocated
_SLOWER = 1.5  # 2.2 to 6.5 where a heap was given back; 0.9 to 1.6 elsewhere, with what tracing adds
_FAR_MORE = 3.0  # times those of the window: 8 and 13 where a heap was given back, less is the profiler's own memory
_MOST = 2.0  # of the mean: some traced steps have more of them than others


def added_faults(info: Mapping[str, Any], usual: PageFaults | None, slower: float) -> float:
    """Part of the traced time that the kernel works for faults beyond those of the window.

    Args:
        info: of the training process; ``trace_faults`` has faults, ns in the kernel and ns passed of the trace.
        usual: faults of the training process in the window; None: not counted.
        slower: time of a traced step, without what tracing adds to each operator, over that of one in the window.
    """
    faults, system_ns, passed_ns = info.get("trace_faults") or (0, 0, 0)
    if usual is None or not faults or not passed_ns or slower < _SLOWER:
        return 0.0
    traced_per_s, usual_per_s = faults / (passed_ns / 1e9), usual.per_s / slower
    if traced_per_s < _FAR_MORE * usual_per_s:
        return 0.0
    return float((traced_per_s - usual_per_s) * min(system_ns / 1e9 / faults, MOST_S_PER_BYTE * mmap.PAGESIZE))


def without_added_faults(
    work: Floats,
    owner: Ints,
    names: Sequence[str],
    costs: Sequence[Cost | None],
    ceilings: Ceilings | str,
    added_ns: float,
) -> Floats:
    """Each operator's time without the faults that tracing added: they are divided by the bytes that each one makes.

    No operator gets shorter than the memory's rate allows.

    Args:
        work: ns of each operator in the traced steps.
        owner: row of the operator whose cost contains it.
        names: of all operators, by row.
        costs: of all operators, by row.
        ceilings: rates of the device; text: not known.
        added_ns: that these faults take in all traced steps.
    """
    if added_ns <= 0 or isinstance(ceilings, str):
        return work
    rows, place = np.unique(owner, return_inverse=True)
    spent = np.bincount(place, work)
    made, least = np.zeros(len(rows)), np.zeros(len(rows))
    for number, row in enumerate(rows.tolist()):
        known, name = costs[int(row)], names[int(row)]
        if known is None or known.result is None or (name.endswith("_") and name not in _FILLS):
            continue
        made[number] = known.result.bytes
        least[number] = 1e9 * known.bytes / ceilings.bytes_per_s(known.bytes)
    total = made.sum()
    if not total:
        return work
    taken = np.minimum(_MOST * added_ns * made / total, np.maximum(spent - least, 0.0))
    kept = np.where(spent > 0, 1.0 - taken / np.maximum(spent, 1.0), 1.0)
    return np.asarray(work * kept[place], np.float64)
