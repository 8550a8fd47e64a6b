"""Products, distances and cosines of all pairs made by broadcasting: found, and timed as a product of matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from flatout.probe import memory_room
from flatout.probe.inspection import broadcast_pairs
from tests.probe.watched_steps import watched

Form = Callable[[Tensor, Tensor], Tensor]
LIKE: dict[str, tuple[str, Form]] = {
    "squares": ("distances", lambda x, y: ((x[:, None] - y[None]) ** 2).sum(-1)),
    "mean of squares": ("distances", lambda x, y: ((x[:, None] - y[None]) ** 2).mean(2)),
    "multiplied by itself": ("distances", lambda x, y: ((d := x[:, None] - y[None]) * d).sum(-1)),
    "expanded": (
        "distances",
        lambda x, y: torch.pow(x.unsqueeze(1).expand(-1, len(y), -1) - y.unsqueeze(0).expand(len(x), -1, -1), 2).sum(2),
    ),
    "norm": ("distances", lambda x, y: (x[:, None] - y[None]).norm(dim=-1)),
    "pairwise_distance": ("distances", lambda x, y: F.pairwise_distance(x[:, None], y[None])),
    "products": ("products", lambda x, y: (x[:, None] * y[None]).sum(-1)),
    "cosines": ("cosines", lambda x, y: F.cosine_similarity(x[:, None], y[None], dim=-1)),
}
OTHERS: dict[str, Form] = {
    "a matrix product": lambda x, y: x @ y.t(),
    "cdist": torch.cdist,
    "not summed": lambda x, y: ((x[:, None] - y[None]) ** 2).exp(),
    "summed over one of the two": lambda x, y: ((x[:, None] - y[None]) ** 2).sum(0),
    "cubes": lambda x, y: ((x[:, None] - y[None]) ** 3).sum(-1),
    "differences": lambda x, y: (x[:, None] - y[None]).sum(-1),
    "weighted differences": lambda x, y: ((x[:, None] - y[None]) * torch.ones(50, 60, 64)).sum(-1),
    "all at once": lambda x, y: (x[:, None] - y[None]).norm() + torch.linalg.vector_norm(x[:, None] - y[None], 2),
    "all at once, cubes": lambda x, y: (
        torch.linalg.vector_norm(x[:, None] - y[None], 3) + (x[:, None] - y[None]).norm(3)
    ),
    "scaled products": lambda x, y: ((x[:, None].expand(50, 60, 64) / 2.0) * (y[None].expand(50, 60, 64) / 3.0)).sum(
        -1
    ),
    "used twice": lambda x, y: (d := x[:, None] - y[None]).pow(2).sum(-1).sum() + d.relu().sum(),
    "city blocks": lambda x, y: (x[:, None] - y[None]).norm(1, dim=-1),
    "no pairs": lambda x, y: (x.repeat(30, 1) * x.repeat(30, 1)).sum(-1),
}


def rows() -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(50, 64, requires_grad=True), torch.randn(60, 64, requires_grad=True)


@pytest.mark.parametrize("name", LIKE)
def test_pairs_are_found_and_timed(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    kind, form = LIKE[name]
    x, y = rows()
    (found,) = watched(monkeypatch, lambda: form(x, y).sum() + form(x, y).sum())["broadcast_pairs"]
    assert (found["kind"], found["calls"], found["input"]) == (kind, 2, [50, 60, 64])
    assert (found["left"], found["right"]) == ([50, 1, 64], [1, 60, 64])
    assert len(found["plain_ns"]) == len(found["joined_ns"]) >= 2
    assert found["lines"][0][0] == __file__


@pytest.mark.parametrize("name", OTHERS)
def test_other_operators_are_no_pairs(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    x, y = rows()
    assert "broadcast_pairs" not in watched(monkeypatch, lambda: OTHERS[name](x, y).sum())


@pytest.mark.parametrize("root", [False, True])
@pytest.mark.parametrize("kind", ["products", "distances", "cosines"])
@pytest.mark.parametrize(
    ("left", "right", "dims"),
    [
        ((5, 1, 8), (1, 6, 8), (2,)),
        ((2, 5, 1, 8), (2, 1, 6, 8), (3,)),
        ((2, 1, 5, 8), (3, 1, 8), (3,)),
    ],
)
def test_both_forms_give_the_same(kind: str, left: Any, right: Any, dims: Any, root: bool) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(left), torch.randn((1,) * (len(left) - len(right)) + right)
    plain, joined = (form(kind, x, y, dims, root) for form in (broadcast_pairs._broadcast, broadcast_pairs._multiplied))
    torch.testing.assert_close(joined, plain, rtol=1e-4, atol=1e-4)


def test_pairs_that_take_more_memory_than_there_is_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_room, "for_copies", lambda: 1000)
    x, y = rows()
    (found,) = watched(monkeypatch, lambda: LIKE["norm"][1](x, y).sum())["broadcast_pairs"]
    assert "memory" in found["skipped"] and "plain_ns" not in found


def test_few_pairs_and_pairs_without_gradients_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = rows()

    def step() -> Tensor:
        with torch.no_grad():
            LIKE["norm"][1](x, y)
        return LIKE["norm"][1](x[:10], y[:10]).sum()

    assert "broadcast_pairs" not in watched(monkeypatch, step)
