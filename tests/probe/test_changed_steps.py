"""What a block of steps after the window records."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from flatout.probe import events
from flatout.probe.experiments import changed_steps
from flatout.probe.experiments.changed_steps import ChangedSteps


@pytest.mark.parametrize(
    ("steps_ns", "unit", "cuda", "counted", "own_ns"),
    [
        ([10] * 9 + [910], 1, False, 9, 90),  # the beginning of an epoch
        ([10] * 9 + [15], 1, False, 10, 105),
        ([10] * 9 + [910], 1, True, 10, 1000),  # it may wait for the kernels of the others
        ([10] * 9 + [910], 5, False, 10, 1000),  # it may update the weights
        ([10, 10, 910], 1, False, 3, 930),
    ],
)
def test_a_far_longer_step_does_not_count(
    monkeypatch: pytest.MonkeyPatch, steps_ns: list[int], unit: int, cuda: bool, counted: int, own_ns: int
) -> None:
    found: dict[int, tuple[int, ...]] = {}
    monkeypatch.setattr(changed_steps.REC, "emit", lambda kind, start, end, *values: found.update({kind: values}))
    monkeypatch.setattr(changed_steps.torch.cuda, "is_initialized", lambda: cuda)
    block: Any = ChangedSteps.__new__(ChangedSteps)
    block.change, block.unit, block.block_ns = None, unit, 0
    block.counted, block.own_ns, block.longest_ns = len(steps_ns), sum(steps_ns), max(steps_ns)
    collected = SimpleNamespace(ns=sum(steps_ns) // 2, calls=len(steps_ns))
    block.collector = SimpleNamespace(spent=collected)
    block._record(2000)
    assert found[events.EXPERIMENT] == (0, counted, own_ns)
    assert found[events.COLLECTION] == (0, pytest.approx(own_ns / 2, abs=1), counted)  # the same share as of all steps


@pytest.mark.parametrize(("times", "left"), [(1, [None, "a", None, "b", None, "a", None]), (2, [None, "b", None])])
def test_what_is_far_slower_twice_is_not_tried_again(times: int, left: list[str | None]) -> None:
    block: Any = ChangedSteps.__new__(ChangedSteps)
    block.change, block.far_slower, block.blocks = "a", set(), [None, "a", None, "b", None, "a", None]
    for _ in range(times):
        block._was_far_slower()
    assert block.blocks == left
