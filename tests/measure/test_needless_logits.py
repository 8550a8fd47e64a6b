"""The cost of an output layer, in traces that torch's profiler writes of a step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.profiler import profile

from flatout.measure.needless_logits import NeedlessLogits, needless_logits
from flatout.record.kernel_trace import KernelTrace, read_trace

CLASSES, POSITIONS = 900, 48


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> KernelTrace:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(CLASSES, 24), nn.Linear(24, 24), nn.Linear(24, CLASSES))
    optimizer = torch.optim.AdamW(net.parameters())
    indices = torch.randint(0, 100, (4, POSITIONS // 4))
    with profile(record_shapes=True) as recorded:
        loss = nn.functional.cross_entropy(net(indices).view(-1, CLASSES), indices.view(-1))
        loss.backward()
        optimizer.step()
    path = tmp_path_factory.mktemp("trace") / "trace.json.gz"
    recorded.export_chrome_trace(str(path))
    trace = read_trace(path)
    assert isinstance(trace, KernelTrace), trace
    return trace


def measured(trace: KernelTrace, **seen: Any) -> NeedlessLogits | None:
    """With one microsecond of work for each operator."""
    count = len(trace.operators)
    given = {"classes": CLASSES, "positions": POSITIONS, "ignored": 36, "highest": 99, "looked_up": 600} | seen
    return needless_logits(trace.operators, np.ones(count, bool), np.arange(count), np.full(count, 1e3), 1, given)


def test_operators_on_all_classes_are_divided_by_whether_they_go_with_the_positions(traced: KernelTrace) -> None:
    found = measured(traced)
    assert found is not None
    assert (found.ignored, found.used) == (0.75, 100)
    # The optimizer's operators on the layers' weights, and its gradient's accumulation, are of the classes only.
    assert 0 < found.by_position_s < found.by_class_s < len(traced.operators) * 1e-6
    names = {"aten::_log_softmax", "aten::_log_softmax_backward_data", "aten::addmm"}
    at_least = sum(name in names for name in traced.operators.name) - 1  # one product is of another layer
    assert found.by_position_s >= at_least * 1e-6
    assert found.ignored_s == pytest.approx(0.75 * found.by_position_s)
    assert found.unused_s == pytest.approx(800 / 900 * found.by_class_s)


@pytest.mark.parametrize("seen", [{"looked_up": 400}, {"highest": 500}])
def test_classes_count_as_unused_where_many_were_seen_and_half_never_occur(traced: KernelTrace, seen: dict) -> None:
    found = measured(traced, **seen)
    assert found is not None and (found.used, found.unused_s) == (CLASSES, 0.0)


def test_few_classes_and_steps_without_a_loss_are_nothing(traced: KernelTrace) -> None:
    assert measured(traced, classes=10) is None
    assert measured(traced, positions=0) is None  # of a damaged record
    count = len(traced.operators)
    assert needless_logits(traced.operators, np.ones(count, bool), np.arange(count), np.ones(count), 1, None) is None
