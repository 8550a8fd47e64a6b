"""Lines that take or write parts of tensors, seen in two steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.probe.watched_steps import watched

X = torch.ones(12, 4, 5, requires_grad=True)


def in_a_loop() -> Tensor:
    outputs = torch.zeros(12, 4, 5)
    for t in range(12):
        outputs[t] = torch.tanh(X[t])
    return outputs


def ends_of_rows() -> Tensor:
    masked = X * 2
    for row in range(12):
        masked[row, 1:] = 0.0
    return masked


def at_once() -> Tensor:
    return torch.stack([torch.tanh(X[t]) for t in range(12)])


def of_whole_tensors() -> Tensor:
    parts = [torch.zeros(4, 5) for _ in range(12)]
    for part, x in zip(parts, X, strict=True):
        part.add_(x)
    return torch.stack(parts)


def seen(monkeypatch: pytest.MonkeyPatch, forward: Callable[[], Tensor]) -> list[Any] | None:
    found: list[Any] | None = watched(monkeypatch, lambda: forward().square().sum()).get("slice_writes")
    return found


@pytest.mark.parametrize("forward", [in_a_loop, ends_of_rows])
def test_the_line_of_the_writes_is_named(monkeypatch: pytest.MonkeyPatch, forward: Callable[[], Tensor]) -> None:
    found = seen(monkeypatch, forward)
    assert found is not None and len(found) == 1
    file, line, function, writes = found[0]
    assert (Path(file).name, function, writes) == (Path(__file__).name, forward.__name__, 12)
    assert "] = " in Path(__file__).read_text().splitlines()[line - 1]


@pytest.mark.parametrize("forward", [at_once, of_whole_tensors])
def test_other_loops_have_no_such_line(monkeypatch: pytest.MonkeyPatch, forward: Callable[[], Tensor]) -> None:
    assert seen(monkeypatch, forward) is None


def by_lists(x: Tensor) -> Tensor:
    rows = torch.tensor([1, 0, 2])
    return torch.stack([x[t][rows] for t in range(12)])


@pytest.mark.parametrize(("gradients", "parts"), [(True, 24), (False, None)])
def test_the_line_that_takes_slices_with_gradients_is_named(
    monkeypatch: pytest.MonkeyPatch, gradients: bool, parts: int | None
) -> None:
    x, other = X.detach().requires_grad_(gradients), torch.ones(1, requires_grad=True)
    found = watched(monkeypatch, lambda: (by_lists(x).square() * other).sum()).get("slice_takes")
    assert (found and found[0][3]) == parts
    if found:
        assert "x[t][rows]" in Path(__file__).read_text().splitlines()[found[0][1] - 1]
