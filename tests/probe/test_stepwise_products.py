"""Products of one large weight with inputs in turn: found where none needs another's result, and timed."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from flatout.probe import memory_room
from flatout.probe.recorder import REC
from tests.probe.watched_steps import watched

CELL, OUT, SMALL = nn.GRUCell(32, 256), nn.Linear(256, 300), nn.Linear(256, 8)
BACK = nn.Linear(300, 32)
RAW = nn.Parameter(torch.randn(256, 300))


@pytest.fixture(autouse=True)
def _training_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(REC, "training_thread", threading.get_ident())


def decoded(out: Callable[[Tensor], Tensor], steps: int = 10) -> Tensor:
    state, found = torch.zeros(4, 256), torch.zeros(())
    for _ in range(steps):
        state = CELL(torch.ones(4, 32), state)
        found = found + out(state).sum()
    return found


def fed_back() -> Tensor:
    state, given, found = torch.zeros(4, 256), torch.ones(4, 32), torch.zeros(())
    for _ in range(10):
        state = CELL(given, state)
        scores = OUT(state)
        given = BACK(scores)
        found = found + scores.sum()
    return found


@pytest.mark.parametrize("out", [OUT, lambda state: state @ RAW], ids=["linear", "own weight"])
def test_an_output_layer_in_a_loop_is_found(monkeypatch: pytest.MonkeyPatch, out: Callable[[Tensor], Tensor]) -> None:
    [found] = watched(monkeypatch, lambda: decoded(out))["stepwise_products"]
    assert (found["calls"], found["input"], found["weight"]) == (10, [4, 256], [256, 300])
    assert found["plain_ns"] and found["joined_ns"]
    [[file, _, _, calls]] = found["lines"]
    assert (file.rsplit("/", 1)[1], calls) == ("test_stepwise_products.py", 10)


@pytest.mark.parametrize(
    "loss",
    [fed_back, lambda: decoded(SMALL), lambda: decoded(OUT, steps=5)],
    ids=["fed back", "a small weight", "few steps"],
)
def test_others_are_not(monkeypatch: pytest.MonkeyPatch, loss: Callable[[], Tensor]) -> None:
    assert "stepwise_products" not in watched(monkeypatch, loss)


def test_where_memory_is_short_the_record_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_room, "for_copies", lambda: 1000)
    [found] = watched(monkeypatch, lambda: decoded(OUT))["stepwise_products"]
    assert found["skipped"] == "there is no memory for copies of them"
