"""Page faults that tracing adds are taken out of what makes new memory, down to the memory's rate."""

from __future__ import annotations

import numpy as np
import pytest

from flatout.measure.operator_costs import Cost
from flatout.measure.page_faults import PageFaults
from flatout.measure.roofline import Ceilings
from flatout.measure.traced_faults import added_faults, without_added_faults
from flatout.record.operator_inputs import Tensor

MS = 1e6  # ns
CEILINGS = Ceilings(2, {}, {}, ((1 << 20, 1e10), (1 << 24, 1e10)))


def seen(faults: int, system_s: float, passed_s: float) -> dict[str, list[int]]:
    return {"trace_faults": [faults, int(system_s * 1e9), int(passed_s * 1e9)]}


def test_faults_count_beyond_three_times_those_of_the_window() -> None:
    usual = PageFaults(per_s=10_000, system_cores=0.02, cores=1.0)
    # Of 100,000 faults in half a second, 2.5 us each, traced steps twice as long as others.
    assert added_faults(seen(100_000, 0.25, 0.5), usual, 2.0) == pytest.approx((200_000 - 5_000) * 2.5e-6)
    assert added_faults(seen(7_000, 0.05, 0.5), usual, 2.0) == 0.0
    # One fault of 4 KiB takes no more than 4 us: the kernel did other work, too.
    assert added_faults(seen(100_000, 5.0, 0.5), usual, 2.0) == pytest.approx(195_000 * 4.096e-6)
    # Traced steps that are no slower were not held up by them.
    assert added_faults(seen(100_000, 0.25, 0.5), usual, 1.1) == 0.0
    assert added_faults(seen(100_000, 0.25, 0.5), None, 2.0) == added_faults({}, usual, 2.0) == 0.0


def test_what_makes_new_memory_loses_them_and_nothing_else_does() -> None:
    made = Tensor.dense((1024, 1024), "float32")  # 4 MiB
    new = Cost(0, made.bytes, "float32", result=made)
    costs = (new, Cost(0, 3 * made.bytes, "float32", result=made), None)
    names = ("aten::fill_", "aten::add_", "aten::view")
    owner = np.array([0, 1, 2, 0])
    work = np.array([6 * MS, 2 * MS, 1 * MS, 6 * MS])
    found = without_added_faults(work, owner, names, costs, CEILINGS, 2 * MS)
    assert found.tolist() == pytest.approx([4 * MS, 2 * MS, 1 * MS, 4 * MS])  # twice their mean, from 12 ms of fills
    # No fill gets shorter than its 4 MiB take at 10 GB/s.
    found = without_added_faults(work, owner, names, costs, CEILINGS, 100 * MS)
    assert found[0] + found[3] == pytest.approx(1e9 * made.bytes / 1e10)
    for nothing in (0.0, -1.0):
        assert without_added_faults(work, owner, names, costs, CEILINGS, nothing) is work
    assert without_added_faults(work, owner, names, costs, "not measured", 2 * MS) is work
