"""What is counted in matrices of zeros, and the cost of their products in traces that torch's profiler writes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.profiler import profile

from flatout.measure.zero_operands import ZeroOperands, zero_operands
from flatout.probe.inspection import repeated_work
from flatout.probe.inspection.repeated_work import RepeatedWork
from flatout.record.kernel_trace import KernelTrace, read_trace

NODES, WORDS, ROWS = 320, 4_000, 40


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], list[list[Any]]]:
    """What the probe saves of a step; its first of two."""
    saved: dict[str, Any] = {}
    monkeypatch.setattr(repeated_work.REC, "save_process", lambda **found: saved.update(found))
    monkeypatch.setattr(repeated_work.REC, "training_thread", threading.get_ident())

    def look(step: Callable[[], Any]) -> list[list[Any]]:
        saved.clear()
        mode = RepeatedWork()
        mode.begin()
        step()
        mode.end(True)
        return list(saved.get("zero_operands", []))

    return look


def of_graph() -> Callable[[], Any]:
    adjacency, layer = torch.eye(NODES), nn.Linear(16, 16)
    return lambda: (adjacency @ layer(adjacency @ layer(torch.ones(NODES, 16)))).sum().backward()


def measured(step: Callable[[], Any], given: list[list[Any]], folder: Path) -> ZeroOperands | None:
    """With one microsecond of work for each operator."""
    with profile(record_shapes=True) as recorded:
        step()
    recorded.export_chrome_trace(str(folder / "trace.json.gz"))
    trace = read_trace(folder / "trace.json.gz")
    assert isinstance(trace, KernelTrace), trace
    count = len(trace.operators)
    rows = [tuple(row) for row in given]
    return zero_operands(trace.operators, np.ones(count, bool), np.arange(count), np.full(count, 1e3), 1, rows)


def test_both_passes_of_a_dense_graph_are_found(seen: Callable[..., list[list[Any]]], tmp_path: Path) -> None:
    step = of_graph()
    found = seen(step)
    # Two products forward, and two backward, with the same matrix.
    assert found == [[[NODES, NODES], 4, 4, 4 * NODES**2, 4 * NODES]]
    zeros = measured(step, found, tmp_path)
    assert zeros is not None and zeros.shape == (NODES, NODES) and zeros.nonzero == pytest.approx(1 / NODES)
    assert zeros.product_s == pytest.approx(4e-6)
    assert zeros.saved_s == pytest.approx(4e-6 * (1 - 6 / NODES))
    assert zeros.least_saved_s < zeros.saved_s < zeros.most_saved_s


def test_one_hot_rows_count_with_what_makes_them(seen: Callable[..., list[list[Any]]], tmp_path: Path) -> None:
    weight, index = nn.Parameter(torch.rand(WORDS, 8)), torch.randint(0, WORDS, (ROWS,))

    def step() -> None:
        (nn.functional.one_hot(index, WORDS).float() @ weight).sum().backward()

    found = seen(step)
    assert [[ROWS, WORDS], 1, 1, ROWS * WORDS, ROWS] in found
    zeros = measured(step, found, tmp_path)
    assert zeros is not None and zeros.nonzero == pytest.approx(1 / WORDS)
    assert zeros.product_s >= 2e-6 and zeros.making_s >= 3e-6  # zeros, ones among them, and a copy to float


def test_activations_and_full_or_small_matrices_are_not_counted(seen: Callable[..., list[list[Any]]]) -> None:
    wide = nn.Linear(NODES, NODES)
    with torch.no_grad():
        wide.bias.fill_(-1e9)  # what comes out of it is zero after a ReLU
    full, small, few = torch.rand(NODES, NODES), torch.eye(NODES // 2), torch.rand(NODES // 2, 4)
    assert seen(lambda: wide(torch.relu(wide(full))).sum().backward()) == []
    assert seen(lambda: (small @ few.requires_grad_()).sum().backward()) == []
    sparse = torch.eye(NODES).to_sparse_coo()
    assert seen(lambda: torch.sparse.mm(sparse, wide(full)).sum().backward()) == []


def test_scores_of_the_same_shape_share_the_time_of_its_products(seen: Callable[..., list[list[Any]]]) -> None:
    adjacency, layer = torch.eye(NODES), nn.Linear(16, 16)

    def step() -> None:
        hidden = adjacency @ layer(torch.ones(NODES, 16))
        nn.functional.binary_cross_entropy_with_logits(hidden @ hidden.T, adjacency).backward()

    (found,) = seen(step)
    assert found[0] == [NODES, NODES] and found[2] == 2 < found[1]


def test_damaged_counts_and_steps_without_such_products_are_nothing(tmp_path: Path) -> None:
    step = of_graph()
    for given in ([], [[[NODES, NODES], 0, 0, 0, 0]], [[[NODES], 4, 4, 4, 4]], [[[7, 7], 1, 1, 49, 1]]):
        assert measured(step, given, tmp_path) is None
