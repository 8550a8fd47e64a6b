"""Parts of tensors that are written one after the other, in traces that torch's profiler writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.profiler import profile

from flatout.measure.costly_operators import attribute
from flatout.measure.recurrent import called_by_user
from flatout.measure.slice_writes import SliceWrites, slice_writes
from flatout.measure.traced_steps import own_time
from flatout.record.kernel_trace import KernelTrace, read_trace

LENGTHS = [9, 12, 3, 7, 12, 1, 5, 8, 11, 2, 4, 6]


def outputs_of_a_loop(x: Tensor) -> Tensor:
    outputs = torch.zeros(12, 4, 5)
    for t in range(12):
        outputs[t] = torch.tanh(x[t])
    return outputs


def ends_of_rows(x: Tensor) -> Tensor:
    masked = x * 2
    for row, length in enumerate(LENGTHS):
        masked[row, length:] = 0.0
    return masked


def at_once(x: Tensor) -> Tensor:
    return torch.stack([torch.tanh(x[t]) for t in range(12)])


def few(x: Tensor) -> Tensor:
    outputs = torch.zeros(12, 4, 5)
    outputs[:6] = x[:6]
    outputs[6:] = x[6:]
    return outputs


def without_gradients(x: Tensor) -> Tensor:
    mask = torch.zeros(12, 4, 5)
    for t in range(12):
        mask[t] = 1.0
    return x * mask


def measured(folder: Path, forward: Callable[[Tensor], Tensor]) -> SliceWrites | None:
    """Two steps."""
    x = torch.ones(12, 4, 5, requires_grad=True)
    with profile(record_shapes=True) as recorded:
        for _ in range(2):
            forward(x).square().sum().backward()
    path = folder / "trace.json.gz"
    recorded.export_chrome_trace(str(path))
    trace = read_trace(path)
    assert isinstance(trace, KernelTrace), trace
    work = (trace.operators.end - trace.operators.start).astype(float)
    _, children, parent = own_time(trace.operators)
    by_user = called_by_user(attribute(trace.operators, parent, children, "float32", None).caller)
    return slice_writes(trace.operators, by_user, np.arange(len(trace.operators)), work, 2)


@pytest.mark.parametrize(("forward", "writes"), [(outputs_of_a_loop, 12), (ends_of_rows, 12)])
def test_writes_of_a_loop_are_counted_with_their_backward_passes(
    tmp_path: Path, forward: Callable[[Tensor], Tensor], writes: int
) -> None:
    found = measured(tmp_path, forward)
    assert found is not None
    assert (found.shape, found.writes) == ((12, 4, 5), writes)
    assert found.seconds > 0 and 0.3 < found.calls < 1


@pytest.mark.parametrize("forward", [at_once, few, without_gradients])
def test_nothing_is_found_where_no_gradient_is_copied_for_each_part(
    tmp_path: Path, forward: Callable[[Tensor], Tensor]
) -> None:
    assert measured(tmp_path, forward) is None
