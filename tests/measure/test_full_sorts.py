"""Sorts that are cut right after them, in traces that torch's profiler writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.profiler import profile

from flatout.measure.full_sorts import FullSorts, full_sorts
from flatout.measure.traced_steps import own_time
from flatout.record.kernel_trace import KernelTrace, read_trace


def measured(folder: Path, take: Callable[[torch.Tensor], Any]) -> FullSorts | None:
    x = torch.rand(2, 8, 256)
    with profile(record_shapes=True) as recorded:
        take(x)
    path = folder / "trace.json.gz"
    recorded.export_chrome_trace(str(path))
    trace = read_trace(path)
    assert isinstance(trace, KernelTrace), trace
    operators = trace.operators
    count = len(operators)
    work = (operators.end - operators.start).astype(float)
    return full_sorts(operators, np.ones(count, bool), own_time(operators)[2], np.arange(count), work, 1)


@pytest.mark.parametrize(
    ("take", "used"),
    [
        (lambda x: x.sort(-1)[0][:, :, :16], 16),
        (lambda x: x.argsort(dim=2)[..., 1:17], 17),  # neighbours, without the point itself
        (lambda x: torch.sort(x, dim=2, descending=True).indices[..., :5], 5),
        (lambda x: torch.sort(x, stable=True, dim=-1)[1][..., -9:], 9),
        (lambda x: x.sort(-1)[0][..., 0], 1),
        (lambda x: [x.sort(-1)[0][..., :4], x.square().argsort(-1)[..., :8]], 8),
    ],
)
def test_few_places_of_a_sorted_tensor_are_counted(tmp_path: Path, take: Callable, used: int) -> None:
    sorts = measured(tmp_path, take)
    assert sorts is not None
    assert (sorts.shape, sorts.dimension) == ((2, 8, 256), 2)
    assert sorts.used == used or isinstance(take(torch.rand(2, 8, 256)), list)
    assert sorts.seconds > 0


@pytest.mark.parametrize(
    "take",
    [
        lambda x: x.topk(16),
        lambda x: x.sort(-1)[0],
        lambda x: x.sort(-1)[0][..., :200],
        lambda x: x.sort(-1)[0][..., 100:110],  # a median, a percentile
        lambda x: x.sort(-1)[0][:, :4],  # along another dimension
        lambda x: x.sort(1)[0][:, :2],  # of few
        lambda x: [x.sort(-1)[0], torch.ones(4, 9)[:, :2]],
    ],
)
def test_whole_sorts_and_parts_of_other_tensors_are_nothing(tmp_path: Path, take: Callable) -> None:
    assert measured(tmp_path, take) is None
