"""Products of sparse matrices in coordinates: found, timed, and computed by rows."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from flatout.probe import memory_room
from flatout.probe.injections import Injected
from flatout.probe.injections import csr_products as injection
from flatout.probe.replacements import csr_products
from tests.probe.watched_steps import watched

pytestmark = pytest.mark.filterwarnings("ignore:Sparse")  # torch's, once
WAYS = {
    "torch.sparse.mm": lambda a, x: torch.sparse.mm(a, x),
    "torch.spmm": lambda a, x: torch.spmm(a, x),
    "torch.mm": lambda a, x: torch.mm(a, x),
    "torch.matmul": lambda a, x: torch.matmul(a, x),
    "@": lambda a, x: a @ x,
    "mm": lambda a, x: a.mm(x),
}


def matrix(values: int = 300, rows: int = 40, columns: int = 50, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    places = torch.stack([torch.randint(rows, (values,)), torch.randint(columns, (values,))])
    return torch.sparse_coo_tensor(places, torch.rand(values, dtype=dtype), (rows, columns))  # not coalesced


@pytest.fixture
def injected(monkeypatch: pytest.MonkeyPatch) -> Injected:
    for owner, name in (*injection._FUNCTIONS, *((torch.Tensor, name) for name in injection._METHODS)):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    found = Injected('{"csr_products": true}')
    injection.install(found, None)
    return found


@pytest.mark.parametrize("way", WAYS)
def test_both_passes_give_the_same_but_for_rounding(injected: Injected, way: str) -> None:
    torch.manual_seed(0)
    adjacency, x = matrix(), torch.randn(50, 8, dtype=torch.float64, requires_grad=True)
    found = [WAYS[way](adjacency, x) for _ in range(3)]
    assert injected.applied == {"csr_products": True}
    assert [type(one.grad_fn).__name__ for one in found[1:]] == ["_ProductBackward"] * 2
    weights = torch.randn(40, 8, dtype=torch.float64)
    gradients = [torch.autograd.grad(one, x, weights)[0] for one in found]
    for other, gradient in zip(found[1:], gradients[1:], strict=True):
        torch.testing.assert_close(other, found[0])
        torch.testing.assert_close(gradient, gradients[0])
    assert torch.autograd.gradgradcheck(lambda x: WAYS[way](adjacency, x).square(), (x,))
    injected.switch("csr_products", None)
    assert type(WAYS[way](adjacency, x).grad_fn).__name__ != "_ProductBackward"


def test_a_checkpoint_an_inference_matrix_and_functional_gradients_are_left_to_torch(injected: Injected) -> None:
    x = torch.randn(50, 8, dtype=torch.float64, requires_grad=True)
    adjacency = matrix()
    for _ in range(3):
        checkpoint(lambda x: torch.mm(adjacency, x), x, use_reentrant=False).sum().backward()
    with torch.inference_mode():
        made = matrix()
        torch.mm(made, torch.ones(50, 8, dtype=torch.float64))
    for _ in range(2):
        torch.mm(adjacency, x)
    torch.func.grad(lambda x: torch.mm(adjacency, x).sum())(x.detach())


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_the_functions_are_scripted_and_pickled_as_before(injected: Injected) -> None:
    scripted = torch.jit.script(products)
    torch.testing.assert_close(scripted(torch.eye(3)), 3 * torch.eye(3))
    for function in (torch.mm, torch.matmul, torch.sparse.mm, torch.spmm):
        assert pickle.loads(pickle.dumps(function)) is function


def products(x: torch.Tensor) -> torch.Tensor:
    return torch.mm(x, x) + torch.matmul(x, x) + x.mm(x)


def test_values_that_are_written_through_another_tensor_are_seen(injected: Injected) -> None:
    values, x = torch.rand(40, dtype=torch.float64), torch.randn(40, 8, dtype=torch.float64)
    adjacency = torch.sparse_coo_tensor(torch.arange(40).repeat(2, 1), values, (40, 40), is_coalesced=True)
    for _ in range(3):
        for _ in range(3):
            torch.testing.assert_close(torch.mm(adjacency, x), values[:, None] * x)
        values.mul_(2.0)


def test_a_matrix_that_changes_is_brought_into_rows_again(injected: Injected) -> None:
    adjacency, x = matrix().coalesce(), torch.randn(50, 8, dtype=torch.float64)
    for factor in (1.0, 2.0, 0.5):
        adjacency._values().mul_(factor)
        for _ in range(3):
            torch.testing.assert_close(torch.mm(adjacency, x), adjacency.to_dense() @ x)


def test_what_is_no_such_product_is_left_to_torch(injected: Injected) -> None:
    x = torch.randn(50, 8, dtype=torch.float64, requires_grad=True)
    learned = matrix().coalesce().requires_grad_()
    others = [
        (learned, x),
        (matrix().to_sparse_csr(), x),
        (torch.randn(40, 50, dtype=torch.float64), x),
        (matrix(), torch.randn(50, dtype=torch.float64)),
    ]
    for first, second in others:
        for _ in range(3):
            torch.testing.assert_close(first @ second, first.to_dense() @ second)
    with pytest.raises(RuntimeError):
        torch.mm(matrix(), torch.randn(49, 8, dtype=torch.float64))
    for _ in range(3):
        with pytest.raises(RuntimeError):
            torch.mm(matrix(), x.float())
    assert not injected.applied


def test_products_of_a_step_are_counted_and_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    adjacency, x = matrix(columns=40), torch.randn(40, 8, dtype=torch.float64, requires_grad=True)
    [found] = watched(monkeypatch, lambda: (adjacency @ torch.sparse.mm(adjacency, x)).sum())["coordinate_products"]
    assert (found["calls"], found["matrix"], found["values"], found["input"]) == (2, [40, 40], 300, [40, 8])
    assert found["kept"] and found["plain_ns"] and found["joined_ns"]
    [[file, *_]] = found["lines"]
    assert file.endswith("test_coordinate_products.py")


def test_a_matrix_of_one_product_in_one_step_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(50, 8, dtype=torch.float64, requires_grad=True)
    assert "coordinate_products" not in watched(monkeypatch, lambda: (matrix() @ x).sum())

    def twice() -> torch.Tensor:
        adjacency = matrix()
        return (adjacency @ x).sum() + (adjacency @ (2 * x)).sum()

    [found] = watched(monkeypatch, twice)["coordinate_products"]
    assert not found["kept"] and found["calls"] == 2 and found["joined_ns"]


def test_where_memory_is_short_the_record_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    adjacency, x = matrix(), torch.randn(50, 8, dtype=torch.float64, requires_grad=True)
    monkeypatch.setattr(memory_room, "for_copies", lambda: 1000)
    [found] = watched(monkeypatch, lambda: (adjacency @ x).sum())["coordinate_products"]
    assert found["skipped"] == "there is no memory for copies of them"
    features = torch.randn(50, 8, dtype=torch.float64)
    monkeypatch.undo()
    [found] = watched(monkeypatch, lambda: (adjacency @ features + x[:40]).sum())["coordinate_products"]
    assert found["plain_ns"] and found["joined_ns"]  # of the forward pass alone


def test_a_matrix_by_rows_and_its_transposed_one() -> None:
    adjacency = matrix()
    rows = csr_products.RowMatrix(adjacency)
    torch.testing.assert_close(rows.rows.to_dense(), adjacency.to_dense())
    torch.testing.assert_close(rows.columns.to_dense(), adjacency.to_dense().t())
