"""Attention by two products with a softmax between them: found, and timed by the operator of torch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from flatout.probe import memory_room
from flatout.probe.inspection import unfused_attention
from tests.probe.watched_steps import watched

BIAS = torch.zeros(128, 128, requires_grad=True)
MASK = torch.ones(128, 128).tril() == 0


def scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.transpose(-2, -1) / 4.0


def dropped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.dropout(scores(q, k).softmax(-1), 0.1) @ v


def by_einsum(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = torch.einsum("bhqd,bhkd->bhqk", q, k).softmax(-1)
    return torch.einsum("bhqk,bhkd->bhqd", weights, v)


LIKE: dict[str, tuple[bool, bool, Callable[[Tensor, Tensor, Tensor], Tensor]]] = {
    "plain": (False, False, lambda q, k, v: scores(q, k).softmax(-1) @ v),
    "causal": (True, False, lambda q, k, v: scores(q, k).masked_fill(MASK, -1e9).softmax(-1) @ v),
    "a mask that is added": (True, False, lambda q, k, v: (scores(q, k) + MASK * -1e9).softmax(-1) @ v),
    "where": (True, False, lambda q, k, v: scores(q, k).where(~MASK, torch.tensor(-1e9)).softmax(-1) @ v),
    "dropout": (False, True, dropped),
    "dropout of a GPU": (False, True, lambda q, k, v: torch.native_dropout(scores(q, k).softmax(-1), 0.1, True)[0] @ v),
    "einsum": (False, False, by_einsum),
    "queries scaled": (False, False, lambda q, k, v: torch.matmul(q * 0.25, k.mT).softmax(-1).matmul(v)),
}
OTHERS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "without a softmax": lambda q, k, v: scores(q, k).sigmoid() @ v,
    "torch's own": F.scaled_dot_product_attention,
    "a softmax of something else": lambda q, k, v: (q @ v.mT).relu().softmax(-1).exp() @ v,
    "over the queries": lambda q, k, v: scores(q, k).softmax(-2) @ v,
    "weights transposed": lambda q, k, v: scores(q, k).softmax(-1).transpose(-2, -1) @ v,
    "gated": lambda q, k, v: (scores(q, k).softmax(-1) * torch.sigmoid(q @ k.mT)) @ v,
    "masked after the softmax": lambda q, k, v: (scores(q, k).softmax(-1) * (~MASK).float()) @ v,
    "a learned bias": lambda q, k, v: (scores(q, k) + BIAS).softmax(-1) @ v,
    "weights used twice": lambda q, k, v: (w := scores(q, k).softmax(-1)) @ v + w.pow(2).sum(),
    "several hops": lambda q, k, v: (w := scores(q, k).softmax(-1)) @ (w @ v),
    "scores used twice": lambda q, k, v: (s := scores(q, k)).masked_fill(s < 0, -1e9).softmax(-1) @ v + s.mean(),
    "few weights": lambda q, k, v: scores(q[:1, :1, :8], k[:1, :1]).softmax(-1) @ v[:1, :1],
}


def heads() -> tuple[Tensor, ...]:
    torch.manual_seed(0)
    return tuple(torch.randn(2, 4, 128, 16, requires_grad=True) for _ in range(3))


@pytest.mark.parametrize("name", LIKE)
def test_attention_is_found_and_timed(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    masked, drops, form = LIKE[name]
    given = heads()
    (found,) = watched(monkeypatch, lambda: form(*given).sum() + form(*given).sum())["unfused_attention"]
    assert (found["calls"], found["input"], found["keys"]) == (2, [8, 128, 16], 128)
    assert (found["masked"], found["dropout"]) == (masked, drops)
    assert len(found["plain_ns"]) == len(found["joined_ns"]) >= 2
    assert found["lines"][0][0] == __file__


@pytest.mark.parametrize("name", OTHERS)
def test_other_operators_are_no_attention(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    given = heads()
    assert "unfused_attention" not in watched(monkeypatch, lambda: OTHERS[name](*given).sum())


def test_a_layer_whose_weights_are_asked_for_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = nn.MultiheadAttention(32, 4, batch_first=True), torch.randn(2, 128, 32)
    (found,) = watched(monkeypatch, lambda: layer(x, x, x)[0].sum())["unfused_attention"]
    assert found["input"] == [8, 128, 8]


def test_both_forms_give_the_same() -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(3, 20, 8) for _ in range(3))
    mask = torch.ones(20, 20).tril() == 1
    for used in (None, mask):
        own, other = (form(used, False, q, k, v) for form in (unfused_attention._by_hand, unfused_attention._in_one))
        torch.testing.assert_close(other, own)


def test_weights_that_take_more_memory_than_there_is_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_room, "for_copies", lambda: 1000)
    given = heads()
    found: Any = watched(monkeypatch, lambda: LIKE["plain"][2](*given).sum())["unfused_attention"]
    assert "memory" in found[0]["skipped"]


def test_attention_under_a_penalty_on_gradients_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    given = heads()

    def loss() -> Tensor:
        out = LIKE["plain"][2](*given).pow(2).sum()
        (gradient,) = torch.autograd.grad(out, given[0], create_graph=True)
        return out + gradient.pow(2).sum()

    assert "unfused_attention" not in watched(monkeypatch, loss)
