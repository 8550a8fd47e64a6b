"""What masks of dropout and binary cross-entropy take, in traces that torch's profiler writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional
from torch.profiler import profile

from flatout.measure.slow_kernels import NO_SLOW_KERNELS, SlowKernels, slow_kernels
from flatout.measure.traced_steps import own_time
from flatout.record.kernel_trace import KernelTrace, read_trace

TIMED = {"bernoulli_ns": 400, "quick_mask_ns": 100, "bce_ns": 1000, "quick_bce_ns": 200}
X = torch.rand(100, 200)


def measured(folder: Path, work: Callable[[], Any], reference: dict[str, Any]) -> SlowKernels:
    with profile(record_shapes=True) as recorded:
        work()
    path = folder / "trace.json.gz"
    recorded.export_chrome_trace(str(path))
    trace = read_trace(path)
    assert isinstance(trace, KernelTrace), trace
    operators = trace.operators
    inside = np.array([name != "aten::rand" for name in operators.name], bool)
    spent = (operators.end - operators.start).astype(float)[inside]
    return slow_kernels(operators, inside, own_time(operators)[2], spent, 2.0, reference)


def test_masks_of_layers_and_of_other_calls_are_counted(tmp_path: Path) -> None:
    found = measured(tmp_path, lambda: [functional.dropout(X, 0.1) for _ in range(4)], TIMED).masks
    assert found is not None and found.elements == 40_000 and found.called == 1.0
    assert found.quick == 0.25 and found.saved_s == pytest.approx(0.75 * found.seconds) and found.seconds > 0
    own = measured(tmp_path, lambda: [X.clone().bernoulli_(0.5) for _ in range(4)], TIMED).masks
    assert own is not None and own.elements == 40_000 and own.called == 0.0


def test_losses_of_probabilities_are_counted_and_weights_are_left_to_torch(tmp_path: Path) -> None:
    loss = torch.nn.BCELoss()
    found = measured(tmp_path, lambda: [loss(X, X) for _ in range(4)], TIMED)
    assert found.masks is None and found.bce is not None
    assert (found.bce.elements, found.bce.called, found.bce.quick) == (40_000, 1.0, 0.2)
    weighted = measured(tmp_path, lambda: functional.binary_cross_entropy(X, X, weight=X), TIMED).bce
    assert weighted is not None and weighted.called == 0.0


def test_without_them_or_their_rate_nothing_is_said(tmp_path: Path) -> None:
    assert measured(tmp_path, lambda: torch.rand(10) + X.sum(), TIMED) == NO_SLOW_KERNELS
    assert measured(tmp_path, lambda: functional.dropout(X, 0.1), {"operator_ns": 900}) == NO_SLOW_KERNELS
    slower = measured(tmp_path, lambda: functional.dropout(X, 0.1), {"bernoulli_ns": 100, "quick_mask_ns": 300}).masks
    assert slower is not None and slower.saved_s == 0.0
