"""Functions of the user's that compute with gradients, in a step after the window."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tests.probe.watched_steps import watched


class Ranking(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8))

    def computed(self, x: Tensor) -> Tensor:
        return x @ self.weight

    def loss(self, x: Tensor) -> Tensor:
        return self.computed(prepared(x)).pow(2).sum()


def prepared(x: Tensor) -> Tensor:
    return x - x.mean()


def test_methods_that_no_module_call_holds_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Ranking()
    found = watched(monkeypatch, lambda: net.loss(torch.ones(4, 8)))["model_functions"]
    assert sorted(function.rpartition(".")[2] for _, function in found) == ["computed", "loss"]
    assert {file for file, _ in found} == {__file__}


def test_without_gradients_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    leaf = torch.ones((), requires_grad=True)

    def loss() -> Tensor:
        with torch.no_grad():
            prepared(torch.ones(4, 8))
        return leaf

    assert "model_functions" not in watched(monkeypatch, loss)
