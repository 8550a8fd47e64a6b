"""Gradients of slices, in traces that torch's profiler writes."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence
from torch.profiler import profile

from flatout.measure.costly_operators import attribute
from flatout.measure.recurrent import called_by_user
from flatout.measure.slice_gradients import SliceGradients, slice_gradients
from flatout.measure.traced_steps import own_time
from flatout.record.kernel_trace import KernelTrace, read_trace


def by_index(x: torch.Tensor) -> list[torch.Tensor]:
    return [x[:, t] for t in range(12)]


def by_range(x: torch.Tensor) -> list[torch.Tensor]:
    return [x[:, t : t + 1] for t in range(12)]


def at_once(x: torch.Tensor) -> list[torch.Tensor]:
    return list(x.unbind(1))


def halves(x: torch.Tensor) -> list[torch.Tensor]:
    return [x[:, :6], x[:, 6:]] * 6


def steps_of_a_recurrent_layer(x: torch.Tensor) -> list[torch.Tensor]:
    packed = pack_padded_sequence(x, torch.tensor([12, 11, 9, 5]), batch_first=True)
    return [LAYER(packed)[1]]


LAYER = torch.nn.GRU(3, 8, batch_first=True)


def measured(folder: Path, take: Callable[[torch.Tensor], list[torch.Tensor]]) -> SliceGradients | None:
    """One backward pass through the parts of a tensor."""
    x = torch.ones(4, 12, 3, requires_grad=True)
    with profile(record_shapes=True) as recorded:
        sum(part.square().sum() for part in take(x)).backward()
    path = folder / "trace.json.gz"
    recorded.export_chrome_trace(str(path))
    trace = read_trace(path)
    assert isinstance(trace, KernelTrace), trace
    count = len(trace.operators)
    work = (trace.operators.end - trace.operators.start).astype(float)
    _, children, parent = own_time(trace.operators)
    by_user = called_by_user(attribute(trace.operators, parent, children, "float32", None).caller)
    return slice_gradients(trace.operators, by_user, np.arange(count), work, 1, count)


@pytest.mark.parametrize("take", [by_index, by_range])
def test_slices_taken_in_a_loop_are_counted_with_their_time(tmp_path: Path, take: Callable) -> None:
    slices = measured(tmp_path, take)
    assert slices is not None
    assert (slices.shape, slices.dimension, slices.slices) == ((4, 12, 3), 1, 12)
    assert slices.seconds > 0 and 0 < slices.calls < 0.3


def small_parts_of_each(x: torch.Tensor) -> list[torch.Tensor]:
    parts = [x[:, t] for t in range(12)]
    return [part[:, begin : begin + 2] for part in parts for begin in (0, 1)]


def test_small_slices_of_each_large_one_do_not_hide_it(tmp_path: Path) -> None:
    slices = measured(tmp_path, small_parts_of_each)
    assert slices is not None and (slices.shape, slices.slices) == ((4, 12, 3), 12)


def by_lists(x: torch.Tensor) -> list[torch.Tensor]:
    return [x[:, torch.tensor([t, (t + 1) % 12])] for t in range(12)]


def test_parts_by_lists_of_indices_are_counted_with_their_time(tmp_path: Path) -> None:
    slices = measured(tmp_path, by_lists)
    assert slices is not None
    assert (slices.shape, slices.dimension, slices.slices) == ((4, 12, 3), None, 12)
    assert slices.seconds > 0


@pytest.mark.parametrize("take", [at_once, halves, steps_of_a_recurrent_layer])
def test_one_call_for_all_a_few_slices_and_a_recurrent_layer_are_nothing(tmp_path: Path, take: Callable) -> None:
    assert measured(tmp_path, take) is None


def test_inputs_that_a_trace_lacks_or_garbles_are_no_slices(tmp_path: Path) -> None:
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::select_backward", "ts": 1, "dur": 1, "tid": 1}
    garbled = [{}, {"Concrete Inputs": ["", "[4, x]", "1", "2"]}, {"Concrete Inputs": ["", "[]", "1", "2"]}]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [{**event, "args": each} for each in garbled * 10]}))
    (tmp_path / "trace.json.gz").write_bytes(gzip.compress(path.read_bytes()))
    trace = read_trace(tmp_path / "trace.json.gz")
    assert isinstance(trace, KernelTrace)
    assert slice_gradients(trace.operators, np.ones(30, bool), np.arange(30), np.ones(30), 1, 30) is None
