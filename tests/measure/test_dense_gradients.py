"""Gradients of whole embedding tables, in traces that torch's profiler writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.profiler import profile

from flatout.measure.dense_gradients import DenseGradients, dense_gradients
from flatout.record.kernel_trace import KernelTrace, read_trace

STEPS = 2
LOOKUPS = ("aten::embedding", "aten::index_select", "aten::embedding_bag", "aten::_embedding_bag")


def measured(
    folder: Path,
    rows: int,
    sparse: bool,
    optimizer: type[torch.optim.Optimizer],
    kind: type[torch.nn.Embedding | torch.nn.EmbeddingBag] = torch.nn.Embedding,
) -> tuple[object, float]:
    """Steps that take 64 rows of a table, where each operator takes 1 ms; also the ms of those on the whole table."""
    table, head = kind(rows, 16, sparse=sparse), torch.nn.Linear(16, 1)
    updates = optimizer([*table.parameters(), *head.parameters()], lr=0.1, foreach=False)  # type: ignore[call-arg]
    with profile(record_shapes=True) as recorded:
        for _ in range(STEPS):
            head(table(torch.randint(0, rows, (16, 4)))).square().mean().backward()
            updates.step()
            updates.zero_grad()
    path = folder / "trace.json.gz"
    recorded.export_chrome_trace(str(path))
    trace = read_trace(path)
    assert isinstance(trace, KernelTrace), trace
    count = len(trace.operators)
    calls = zip(trace.operators.name, trace.operators.arguments, strict=True)
    on_table = sum(
        f"[{rows}, 16]" in str(arguments.get("Input Dims")) and name not in LOOKUPS for name, arguments in calls
    )
    found = dense_gradients(trace.operators, np.ones(count, bool), np.arange(count), np.full(count, 1e6), STEPS)
    return found, on_table


@pytest.mark.parametrize("kind", [torch.nn.Embedding, torch.nn.EmbeddingBag])
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam])
def test_work_on_rows_that_no_batch_takes_is_counted(
    tmp_path: Path, optimizer: type[torch.optim.Optimizer], kind: type[torch.nn.Embedding | torch.nn.EmbeddingBag]
) -> None:
    found, on_table = measured(tmp_path, 50_000, False, optimizer, kind)
    assert isinstance(found, DenseGradients)
    assert (found.tables, found.taken) == (((50_000, 16),), 64)
    assert on_table >= 6 and found.seconds * 1e3 * STEPS == pytest.approx(on_table, rel=0.01)


@pytest.mark.parametrize(("rows", "sparse"), [(50_000, True), (100, False)])
def test_sparse_gradients_and_small_tables_have_none(tmp_path: Path, rows: int, sparse: bool) -> None:
    assert measured(tmp_path, rows, sparse, torch.optim.SGD)[0] is None
