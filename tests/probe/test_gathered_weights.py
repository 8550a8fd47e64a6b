"""Rows that are each multiplied by a copy of one of few matrices: found, and timed as one product for each."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from flatout.probe import memory_room
from flatout.probe.inspection.gathered_weights import sorted_products
from tests.probe.watched_steps import watched

ROWS, KINDS, INPUTS, OUTPUTS = 600, 5, 16, 20


@pytest.fixture
def given() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    weights = torch.randn(KINDS, INPUTS, OUTPUTS, requires_grad=True)
    return torch.randn(ROWS, INPUTS, requires_grad=True), weights, torch.randint(KINDS - 1, (ROWS,))


WAYS = {
    "index_select": lambda x, w, kind: torch.bmm(x[:, None], w.index_select(0, kind)),
    "index": lambda x, w, kind: x[:, None] @ w[kind],
    "at the left": lambda x, w, kind: torch.bmm(w[kind].transpose(1, 2), x[:, :, None]),
    "embedding": lambda x, w, kind: x[:, None] @ F.embedding(kind, w.flatten(1)).view(-1, INPUTS, OUTPUTS),
}


@pytest.mark.parametrize("way", WAYS)
def test_they_are_found_and_timed(monkeypatch: pytest.MonkeyPatch, given: tuple[Tensor, ...], way: str) -> None:
    [found] = watched(monkeypatch, lambda: WAYS[way](*given).sum())["gathered_weights"]
    assert (found["calls"], found["input"], found["matrix"]) == (1, [ROWS, INPUTS], [INPUTS, OUTPUTS])
    assert found["matrices"] == KINDS - 1
    assert found["plain_ns"] and found["joined_ns"]
    [[file, *_]] = found["lines"]
    assert file.endswith("test_gathered_weights.py")


OTHERS = {
    "a matrix for each": lambda x, w, kind: x[:KINDS, None] @ w[torch.arange(KINDS)].repeat(1, 40, 1)[:, :INPUTS],
    "many rows of each": lambda x, w, kind: x.expand(ROWS, ROWS, INPUTS)[:, :9] @ w[kind],
    "another memory": lambda x, w, kind: x[:, None] @ (w[kind] * 2.0),
    "no index of matrices": lambda x, w, kind: x[:, None] @ w.mean(0).expand(ROWS, INPUTS, OUTPUTS),
}


@pytest.mark.parametrize("way", OTHERS)
def test_others_are_not(monkeypatch: pytest.MonkeyPatch, given: tuple[Tensor, ...], way: str) -> None:
    assert not watched(monkeypatch, lambda: OTHERS[way](*given).sum()).get("gathered_weights")


def test_rows_that_all_have_another_matrix_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    weights, x = torch.randn(600, INPUTS, OUTPUTS, requires_grad=True), torch.randn(600, INPUTS)
    assert not watched(monkeypatch, lambda: WAYS["index"](x, weights, torch.arange(600)).sum()).get("gathered_weights")


def test_where_memory_is_short_the_record_says_so(monkeypatch: pytest.MonkeyPatch, given: tuple[Tensor, ...]) -> None:
    monkeypatch.setattr(memory_room, "for_copies", lambda: 1000)
    [found] = watched(monkeypatch, lambda: WAYS["index"](*given).sum())["gathered_weights"]
    assert found["skipped"] == "there is no memory for copies of them"


def test_one_product_for_each_matrix_gives_the_same(given: tuple[Tensor, ...]) -> None:
    x, weights, kind = given
    both = torch.bmm(x[:, None], weights[kind]), sorted_products(x[:, None], weights, kind)
    found = [(form, *torch.autograd.grad(form.square().sum(), [x, weights])) for form in both]
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
