"""Passes whose result is only read, and passes of which a gradient reaches a weight."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from flatout.probe.recorder import REC
from tests.probe.watched_steps import watched

NET = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
X = torch.randn(256, 64)


def slope(x: Tensor) -> Tensor:
    return torch.autograd.grad(NET(x).sum(), x, create_graph=True)[0].square().mean()


def only_a_loss() -> Tensor:
    NET(X.repeat(8, 1)).mean().item()
    return NET(X).sum()


def only_a_slope() -> Tensor:
    slope(X.repeat(8, 1).requires_grad_()).item()
    return slope(X.clone().requires_grad_())


def detached() -> Tensor:
    NET(X.repeat(8, 1)).mean().detach().item()
    return NET(X).sum()


@pytest.mark.parametrize("loss", [only_a_loss, only_a_slope, detached])
def test_a_loss_that_is_only_read_is_found(monkeypatch: pytest.MonkeyPatch, loss: Callable[[], Tensor]) -> None:
    monkeypatch.setattr(REC, "training_thread", threading.get_ident())
    found = watched(monkeypatch, loss)["read_values"]
    assert 0.3 < found["alone_ns"] / found["ns"] < 1.0
    [[file, _, name, _]] = found["lines"]
    assert (file.rsplit("/", 1)[1], name) == ("test_read_values.py", loss.__name__)


def read_before() -> Tensor:
    loss = NET(X).sum()
    loss.item()
    return loss


def copied_on_the_way() -> Tensor:
    """The gradient of a copy is passed on as it is, without an operator."""
    loss = NET[2](NET[:2](X).repeat(40, 1).t().contiguous().clone().t()).sum() + NET(X).sum()
    loss.item()
    return loss


def penalty() -> Tensor:
    loss = slope(X.clone().requires_grad_())
    loss.detach()
    return loss + NET(X).mean()


def without_gradients() -> Tensor:
    with torch.no_grad():
        NET(X.repeat(8, 1)).mean().item()
    return NET(X).sum()


def many_values() -> Tensor:
    NET(X.repeat(8, 1)).detach()
    return NET(X).sum()


@pytest.mark.parametrize("loss", [read_before, copied_on_the_way, penalty, without_gradients, many_values])
def test_what_gradients_go_through_is_not(monkeypatch: pytest.MonkeyPatch, loss: Callable[[], Tensor]) -> None:
    monkeypatch.setattr(REC, "training_thread", threading.get_ident())
    found = watched(monkeypatch, loss).get("read_values", {"alone_ns": 0, "ns": 1})
    assert found["alone_ns"] < 0.02 * found["ns"]
