"""Loops around a layer, in hand-made traces."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from flatout.measure.call_loops import CallLoop, call_loop
from flatout.measure.repeated_weights import RepeatedWeight
from flatout.measure.traced_steps import own_time
from flatout.record.kernel_trace import KernelTrace, read_trace
from tests.measure.kernel_traces import Trace

WEIGHT = RepeatedWeight(name="actor.weight", shape=(8, 16), uses=24, chain=1, part=0.9, joined=0.2)
ROBOTS, HORIZON = 12, 2
WALL_NS = 4e6


def looped(trace: Trace, pause_us: float = 3.0, between_us: float = 500.0, layers: int = 1, read: bool = False) -> None:
    """Robots one by one: a layer takes 10 µs, its distribution 20 µs; after all of them, an environment computes."""
    for _ in range(HORIZON):
        for _ in range(ROBOTS):
            for _ in range(layers):
                trace.add("cpu_op", "aten::linear", trace.now, 10.0, **{"Input Dims": [[16], [8, 16], [8]]})
                trace.now += 11.0
            trace.now += pause_us
            trace.add("cpu_op", "aten::softmax", trace.now, 20.0, **{"Input Dims": [[8]]})
            trace.now += 21.0
            if read:
                trace.add("cpu_op", "aten::item", trace.now, 1.0)
                trace.now += 1.5
        trace.now += between_us


def measured(folder: Path, trace: Trace, weight: RepeatedWeight | None = WEIGHT) -> CallLoop | None:
    trace.write(folder / "trace.json.gz")
    read = read_trace(folder / "trace.json.gz")
    assert isinstance(read, KernelTrace)
    operators = read.operators
    _, _, parent = own_time(operators)
    return call_loop(operators, np.ones(len(operators), bool), parent, weight, 1.0, 0.0, WALL_NS)


@pytest.mark.parametrize("layers", [1, 2])
def test_what_stands_beside_the_layer_is_in_its_loop_but_not_what_follows_it(tmp_path: Path, layers: int) -> None:
    trace = Trace()
    looped(trace, layers=layers)
    found = measured(tmp_path, trace)
    assert found is not None and found.calls == ROBOTS
    iteration_us = 11.0 * layers + 3.0 + 21.0
    assert found.share == pytest.approx(ROBOTS * HORIZON * iteration_us * 1e3 / WALL_NS, rel=0.01)


@pytest.mark.parametrize(
    ("pause_us", "read", "interrupted"), [(1.0, False, False), (40.0, False, True), (1.0, True, True)]
)
def test_other_code_may_work_on_each_result(tmp_path: Path, pause_us: float, read: bool, interrupted: bool) -> None:
    trace = Trace()
    looped(trace, pause_us=pause_us, read=read)
    found = measured(tmp_path, trace)
    assert found is not None and found.interrupted == interrupted


def test_a_layer_that_is_called_a_few_times_or_not_at_all_has_no_loop(tmp_path: Path) -> None:
    trace = Trace()
    looped(trace)
    assert measured(tmp_path, trace, None) is None
    other = RepeatedWeight(name="", shape=(3, 3), uses=24, chain=1, part=0.9, joined=None)
    assert measured(tmp_path, trace, other) is None
    trace = Trace()
    for number in range(HORIZON * ROBOTS):
        trace.add("cpu_op", "aten::linear", trace.now, 10.0, **{"Input Dims": [[16], [8, 16], [8]]})
        trace.now += 4000.0 if number % 3 == 2 else 11.0
    assert measured(tmp_path, trace) is None
